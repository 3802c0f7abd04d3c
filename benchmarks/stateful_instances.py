"""Instances of the detector that are as slow as one thread of Storm, on Spark.

Spark runs all tasks of a keyed operator on a slot side by side, however many instances the operator has there. An
executor of Storm is one thread, which does the work of its tasks one after the other. So that instances are in this
benchmark what they are in the paper, every task has a seat, and a seat has a second of work to give in a second: tasks
of the same instance have the same seat. Whoever wants more waits, and then the micro-batch takes longer.

A seat saves up what it did not give in the last `burst` seconds. A micro-batch brings the work of some seconds at once,
and its tasks begin together: without that they would wait for each other although the instance is not full, and the
time in which they are busy would be too long.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stela_work import work

SEATS = "seats.json"


def dealt_seats(tasks: Sequence[str], instances: Mapping[str, int]) -> list[str]:
    """The seat of each task: the tasks of a slot are dealt to the instances there."""
    seen: dict[str, int] = {}
    found = []
    for slot in tasks:
        index = seen.get(slot, 0)
        seen[slot] = index + 1
        found.append(f"{slot.replace('/', '_')}-{index % max(instances.get(slot, 1), 1)}")
    return found


def first_seats(tasks: int, instances: int) -> list[str]:
    """Before it is known which slot has which task."""
    return dealt_seats([f"first/{task % instances}" for task in range(tasks)], {})


def seats_of(status: Mapping[str, Any], operator: str) -> list[str]:
    """By `penstock status --json`."""
    [one] = [one for one in status["operators"] if one["name"] == operator]
    return dealt_seats(one["tasks"] or (), one["placement"])


def write_seats(folder: Path, seats: Sequence[str]) -> None:
    """Workers see the old list or the new one, and never half of it."""
    hidden = folder / f"{SEATS}.new"
    hidden.write_text(json.dumps(list(seats)))
    hidden.rename(folder / SEATS)


def read_seat(folder: Path, task: int) -> str:
    seats = json.loads((folder / SEATS).read_text())
    return str(seats[task % len(seats)])


def free_after(free: float, now: float, seconds: float, burst: float) -> float:
    """When a seat that was free from `free` on has given so many seconds more. It saved up `burst` of them at most."""
    return max(free, now - burst) + seconds


@dataclass(frozen=True)
class Work:
    """What the detector does for patterns: it computes for a part of the time, and waits for the rest of it."""

    folder: str
    #: Of an instance, for each pattern of each tweet.
    seconds: float
    #: Which part of that time an instance computes.
    cpu_share: float
    rounds_per_cpu_second: float
    burst: float

    def spend(self, patterns: int) -> None:
        began, seconds = time.time(), patterns * self.seconds
        delay = self._delay(began, seconds)
        work(round(seconds * self.cpu_share * self.rounds_per_cpu_second))
        time.sleep(max(began + delay - time.time(), 0.0))

    def _delay(self, now: float, seconds: float) -> float:
        """How long so much work takes: longer than it is where the seat has other work to do first."""
        folder = Path(self.folder)
        with (folder / f"seat-{read_seat(folder, task_here())}").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            free = 0.0
            with suppress(ValueError):  # nobody has sat there yet
                free = float(file.read())
            free = free_after(free, now, seconds, self.burst)
            file.truncate(0)
            file.write(repr(free))
        return max(seconds, free - now)


def task_here() -> int:
    """The task of a keyed operator that this Spark task is: the number of its state partition."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.partitionId() if context is not None else 0
