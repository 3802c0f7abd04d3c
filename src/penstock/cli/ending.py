"""Stopping a topology from another process, and waiting until it is really over: its state free, its process gone."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.api.discovery import Phase, Running, all_running
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.api.client import Client

POLL = 0.1
Json = dict[str, Any]
Tell = Callable[[str], None]


class Process:
    """The process of a topology, which may have others to do when that is over: then only its entry is looked at."""

    def __init__(self, running: Running, descriptor: int | None) -> None:
        self.running = running
        #: Stands for this very process, also when another one has its number.
        self._descriptor = descriptor

    def entry(self) -> Running | None:
        return next((one for one in all_running() if one.label == self.running.label), None)

    def terminate(self) -> None:
        if self._descriptor is not None:
            signal.pidfd_send_signal(self._descriptor, signal.SIGTERM)
        else:
            os.kill(self.running.pid, signal.SIGTERM)

    @property
    def has_ended(self) -> bool:
        """Also if its parent has not noticed yet. Where a process cannot be waited for, its entry is all there is."""
        if not self.running.own_process or self._descriptor is None:
            return True
        return bool(select.select([self._descriptor], [], [], 0)[0])


@contextmanager
def process_of(running: Running) -> Iterator[Process]:
    descriptor = None
    if running.own_process and hasattr(os, "pidfd_open"):
        try:
            descriptor = os.pidfd_open(running.pid)
        except OSError:  # gone meanwhile, or a kernel without it
            descriptor = None
    try:
        yield Process(running, descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def ask(process: Process, client: Callable[[Running], Client], body: Json, deadline: float, tell: Tell) -> Json:
    """Ask for the end, whatever the topology is doing."""
    running, seen = process.running, process.entry()
    while seen is not None and seen.phase is Phase.STARTING and not running.own_process and not body["dry_run"]:
        # A program starts it, and a signal would end the program: wait until it can be asked.
        tell(f"{running.label} is being started by a program: waiting until it can be asked to stop")
        if time.monotonic() > deadline:
            raise PenstockError(
                "STARTING",
                f"{running.label} is being started by a program.",
                "Ask again when it runs; see: penstock ps",
            )
        time.sleep(POLL)
        seen = process.entry()
    if seen is None or seen.phase is Phase.ENDING:
        return _answer(body, "it is ending already")
    if seen.phase is Phase.STARTING:
        if not body["dry_run"]:
            process.terminate()
        return _answer(body, "it is being started, and stops before any row is read")
    try:
        with client(seen) as connected:
            return connected.post("stop", body)
    except PenstockError as problem:
        after = process.entry()
        if problem.name == "UNREACHABLE" and (after is None or after.phase is Phase.ENDING):
            return _answer(body, "it is ending already")  # it has come to its own end at this very moment
        raise


def _answer(body: Json, reason: str) -> Json:
    return {"action": "stop", **body, "plan": {"actions": [], "reason": reason}}


def await_end(process: Process, deadline: float, tell: Tell) -> tuple[bool, str]:
    """Whether it has ended before that time, and how, as far as it has said so."""
    how = ""
    while True:
        seen = process.entry()
        if seen is None and process.has_ended:
            return True, how
        if seen is not None and seen.phase is Phase.ENDING:
            how = seen.how or how
        if time.monotonic() > deadline:
            return False, how
        tell("its process ends" if seen is None else _doing(seen))
        time.sleep(POLL)


def _doing(seen: Running) -> str:
    if seen.phase is Phase.ENDING:
        return "everything that was started for it is being ended"
    return "waiting for what is on its way"
