"""The end of a topology that another process asks for: its state is free and its process is gone."""

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
NOTHING_READ = "It was stopped before any row was read."
Json = dict[str, Any]
Tell = Callable[[str], None]


class Process:
    """The process of a topology. A program that does other things beside the topology does not end with it, so of
    such a process only the entry counts."""

    def __init__(self, running: Running, descriptor: int | None) -> None:
        self.running = running
        #: Means this very process, even if its number was given to another process since.
        self._descriptor = descriptor
        #: Whether it was asked to end while it was being started.
        self.ended_early = False

    def entry(self) -> Running | None:
        return next((one for one in all_running() if one.label == self.running.label), None)

    def terminate(self) -> None:
        """End a process that is being started."""
        self.ended_early = True
        if self._descriptor is not None:
            signal.pidfd_send_signal(self._descriptor, signal.SIGTERM)
        else:
            os.kill(self.running.pid, signal.SIGTERM)

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, even if its parent has not noticed yet. Always true of a process that nobody
        can wait for: its entry says whether the topology has ended."""
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
    """Ask a topology to stop, whether it is starting, running or ending."""
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
        return _answer(body, "the topology is ending already")
    if seen.phase is Phase.STARTING:
        if not body["dry_run"]:
            process.terminate()
        return _answer(body, "the topology is being started, and stops before it reads any row")
    try:
        with client(seen) as connected:
            return connected.post("stop", body)
    except PenstockError as problem:
        after = process.entry()
        if problem.name == "UNREACHABLE" and (after is None or after.phase is Phase.ENDING):
            return _answer(body, "the topology is ending already")  # it has come to its own end at this very moment
        raise


def _answer(body: Json, reason: str) -> Json:
    return {"action": "stop", **body, "plan": {"actions": [], "reason": reason}}


def await_end(process: Process, deadline: float, tell: Tell) -> tuple[bool, str]:
    """Whether the topology has ended before the deadline, and how, as far as it has said so."""
    how = ""
    while True:
        seen = process.entry()
        if seen is None and process.has_ended:
            # One that has hardly begun is gone before anybody has read what it said.
            return True, how or (NOTHING_READ if process.ended_early else "")
        if seen is not None and seen.phase is Phase.ENDING:
            how = seen.how or how
        if time.monotonic() > deadline:
            return False, how
        tell("waiting for the end of its process" if seen is None else _doing(seen))
        time.sleep(POLL)


def _doing(seen: Running) -> str:
    if seen.phase is Phase.ENDING:
        return "the processes of the topology are being ended"
    return "waiting for rows that are on their way to the sinks"
