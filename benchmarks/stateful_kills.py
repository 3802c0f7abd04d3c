"""Ten kills in the middle of moves: bench-stateful's part `counts`. A task of the detector is moved, and while the move
is under way an executor, a Python worker or the driver is killed. The driver is started again on its state."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psutil
from stateful_run import PatternsRun
from stateful_seen import DETECTOR

from penstock.errors import PenstockError

EXECUTOR, WORKER, DRIVER = "executor", "Python worker", "driver"
#: One after the other. A driver takes longest to be back.
KINDS = (EXECUTOR, WORKER, EXECUTOR, WORKER, DRIVER)
#: Words in the command line of each.
_WORDS = {EXECUTOR: ("CoarseGrainedExecutorBackend",), WORKER: ("worker_daemon", "pyspark.daemon")}
#: Seconds that it may take until nothing is under way, and until a move has begun; and tries for each kill.
SETTLES, BEGINS, TRIES = 150.0, 30.0, 3
#: Seconds in which it is calm before a move.
CALM = 5.0
Json = Mapping[str, Any]


def next_move(status: Json, turn: int) -> Json:
    """Another task each time, to the slot after the one that it has."""
    [detector] = [one for one in status["operators"] if one["name"] == DETECTOR]
    slots = sorted(slot["name"] for machine in status["machines"] for slot in machine["slots"] if slot["usable"])
    task = (7 * turn) % len(detector["tasks"])
    here = detector["tasks"][task]
    after = (slots.index(here) + 1) % len(slots) if here in slots else 0
    return {"operator": DETECTOR, "task": task, "slot": slots[after]}


def is_settled(status: Json) -> bool:
    """Whether nothing is under way, and everything is where it was planned."""
    usable = all(slot["usable"] for machine in status["machines"] for slot in machine["slots"])
    return status["operation"] is None and usable and status["as_planned"] and status["state"] == "running"


def was_in_the_middle(operation: Json, killed_at: float) -> bool:
    """By what the operation says after the kill."""
    return operation["ended_at"] is None or bool(operation["ended_at"] > killed_at)


class Kills:
    """On a run that has been started."""

    def __init__(self, run: PatternsRun, say: Callable[[str], None], seed: int = 1) -> None:
        self._run = run
        self._say = say
        self._random = random.Random(seed)
        #: What was killed in the middle of a move.
        self.done: list[str] = []
        self._moves = 0

    def all(self, count: int) -> Sequence[str]:
        """Fewer, if the tweets end before."""
        for number in range(count):
            for _ in range(TRIES):
                if self._kill_once(KINDS[number % len(KINDS)]):
                    self._say(f"kill {number + 1} of {count}: {self.done[-1]}")
                    break
            if self._run.ended:
                break
        return self.done

    def _kill_once(self, kind: str) -> bool:
        """Whether something was killed in the middle of a move."""
        number = self._move_begun()
        if number is None:
            return False
        # Not always at the same point of the move.
        time.sleep(self._random.uniform(0.0, 1.0))
        before = self._run.ask(f"operations/{number}")
        if before is None or before["ended_at"] is not None:
            self._say("the move was over before the kill")
            return False
        if not (self._kill_driver() if kind == DRIVER else self._kill_other(kind, number)):
            return False
        self.done.append(kind)
        return True

    def _kill_driver(self) -> bool:
        """The operation was under way a moment ago, and nobody can be asked about it any more."""
        self._run.kill()
        self._run.start()
        return True

    def _kill_other(self, kind: str, number: int) -> bool:
        found = [one for one in self._run.driver.children(recursive=True) if _is(one, kind)]
        killed_at = time.time()
        try:
            self._random.choice(found).kill()
        except (IndexError, psutil.Error):
            self._say(f"there was no {kind} to kill")
            return False
        after = self._run.ask(f"operations/{number}")
        return after is not None and was_in_the_middle(after, killed_at)

    def _move_begun(self) -> int | None:
        """The operation of a move that is under way; None if there is none."""
        run = self._run
        settled: list[Json] = []

        def is_calm() -> bool:
            status = run.look()
            settled.extend([status] if status is not None and is_settled(status) else [])
            return bool(settled)

        run.watch(SETTLES, is_calm)
        if not settled:
            self._say("it has not settled")
            return None
        run.watch(CALM)
        self._moves += 1
        try:
            asked = run.ask("move-task", dict(next_move(settled[-1], self._moves)))
        except PenstockError as refused:
            self._say(f"the move was refused: {refused}")
            return None
        return asked["id"] if asked is not None and self._has_begun(asked["id"]) else None

    def _has_begun(self, number: int) -> bool:
        deadline = time.monotonic() + BEGINS
        while time.monotonic() < deadline:
            operation = self._run.ask(f"operations/{number}")
            if operation is not None and operation["began_at"] is not None:
                return operation["ended_at"] is None
            time.sleep(0.05)
        return False


def _is(process: psutil.Process, kind: str) -> bool:
    try:
        line = " ".join(process.cmdline())
    except psutil.Error:
        return False
    # Python workers that wait for work are forks of the daemon, with its command line. The driver's JVM has the name of
    # the daemon among the settings in its own command line, and must not be taken for one.
    is_java = "java" in line.partition(" ")[0]
    return any(word in line for word in _WORDS[kind]) and is_java == (kind == EXECUTOR)
