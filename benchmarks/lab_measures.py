"""What benchmarks/lab.py counts while a topology runs: rows by slot from batch to batch, bytes between machines, and
what machines used. No Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.channels.origins import origin_of
from penstock.clock import run_time
from penstock.cluster.readings import MachineReading, MachineUse, use_between
from penstock.monitor.read_counts import STORE
from penstock.monitor.report import BatchReport

#: A slot must have published so often in a round for its rate to say anything.
LEAST_BATCHES = 4


@dataclass(frozen=True)
class Part:
    """What one bundle did for a batch that was published."""

    #: In run time.
    at: float
    operator: str
    slot: str
    rows: int
    #: Bytes that another machine wrote, and bytes that were read from the store although another machine wrote them.
    crossed: int
    from_store: int


class Heard:
    """Every batch that is published while it listens. Any thread may add one."""

    def __init__(self, clock: Callable[[], float] = run_time) -> None:
        self._clock = clock
        self._parts: list[Part] = []
        self._lock = threading.Lock()

    def add(self, report: BatchReport) -> None:
        now = self._clock()
        parts = []
        for bundle in report.bundles:
            here = bundle.slot.rpartition("/")[0]
            crossed = sum(size for slot, size in bundle.traffic.items() if origin_of(slot) not in (None, here))
            store = bundle.bytes_from.get(STORE, 0)
            parts.append(Part(now, report.operator, bundle.slot, bundle.rows_in, crossed, store))
        with self._lock:
            self._parts += parts

    def between(self, start: float, stop: float) -> list[Part]:
        with self._lock:
            return [part for part in self._parts if start < part.at <= stop]


def rate(parts: Iterable[Part], operator: str) -> float:
    """Rows a second that an operator reads on all its slots, each from its first batch to its last. By the clock alone
    a batch more or less would count, and on a slow machine a batch takes seconds.

    Raises RuntimeError where a slot had too few batches to say."""
    by_slot: dict[str, list[Part]] = {}
    for part in parts:
        if part.operator == operator:
            by_slot.setdefault(part.slot, []).append(part)
    total = 0.0
    for slot, mine in by_slot.items():
        if len(mine) < LEAST_BATCHES:
            raise RuntimeError(f"{operator} on {slot} published {len(mine)} batches: measure for longer")
        total += sum(part.rows for part in mine[1:]) / (mine[-1].at - mine[0].at)
    if not by_slot:
        raise RuntimeError(f"{operator} published nothing")
    return total


def crossed(parts: Iterable[Part]) -> int:
    return sum(part.crossed for part in parts)


def from_store(parts: Sequence[Part]) -> float:
    """The share of what other machines wrote that was read from the store: it did not cross a link."""
    return sum(part.from_store for part in parts) / max(crossed(parts), 1)


def uses(before: Mapping[str, MachineReading], after: Mapping[str, MachineReading]) -> dict[str, MachineUse]:
    """What every machine used between two readings."""
    found = {name: use_between(one, after[name]) for name, one in before.items() if name in after}
    return {name: use for name, use in found.items() if use is not None}


def fullest_link(used: Mapping[str, MachineUse]) -> float:
    """The share of its link that the machine used which used most of it."""
    return max((use.link for use in used.values()), default=float("nan"))
