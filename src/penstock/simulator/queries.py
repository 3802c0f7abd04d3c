"""What runs as one on a fluid cluster: an operator by itself, or a chain, whose operators share their instances' time.

A row costs a chain the time of all its operators. Between them is no channel, so nobody waits there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from penstock.simulator.truth import Truth

#: The CPU time of an instance that waits, for a second that it waits.
CPU_OF_WAITING = 0.02


@dataclass
class Work:
    """What one operator did on one slot since its last batch."""

    slot: str
    instances: int
    rows: float = 0.0
    #: Seconds, of all instances together.
    busy: float = 0.0
    cpu: float = 0.0


@dataclass
class FluidBundle:
    """An operator on a slot: how much of the work it can do, and what it did."""

    slot: int
    work: Work
    #: The share of the operator's rows that belongs here: by tasks, where it is keyed; else by instances.
    share: float
    #: How many of its instances can be busy at once, on work that is dealt as its tasks are.
    most: float


@dataclass
class Pool:
    """An operator."""

    name: str
    truth: Truth
    keyed: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    bundles: list[FluidBundle] = field(default_factory=list)
    #: Rows a second that are offered to a source, and rows that are due and not emitted.
    offered: float = 0.0
    unmet: float = 0.0
    throttled: bool = False
    #: Rows executed since its last batch, and rows a second now.
    rows: float = 0.0
    speed: float = 0.0
    #: Rows that arrive now, and rows a second that arrived in the moment before.
    arriving: float = 0.0
    inflow: float = 0.0


@dataclass(frozen=True)
class FluidQuery:
    """The operators that run as one, in the order of the streams. Its rows are those of the first of them."""

    pools: tuple[Pool, ...]
    #: By operator: the rows that it executes for a row of the query.
    rows: tuple[float, ...]
    #: Streams that leave it, and the rows that each gets for a row of the query; those between its operators.
    outputs: tuple[tuple[int, float], ...]
    inside: tuple[tuple[int, float], ...]

    @staticmethod
    def of(pools: Sequence[Pool], emits: Sequence[float]) -> FluidQuery:
        """`emits` is how many rows each stream gets for a row of its producer."""
        rows, inside, outputs = [1.0], list[tuple[int, float]](), list[tuple[int, float]]()
        for pool, behind in zip(pools, [*pools[1:], None], strict=True):
            to_next = set(behind.inputs) if behind is not None else set()
            for stream in pool.outputs:
                (inside if stream in to_next else outputs).append((stream, rows[-1] * emits[stream]))
            if behind is not None:
                rows.append(inside[-1][1])
        return FluidQuery(tuple(pools), tuple(rows), tuple(outputs), tuple(inside))

    @property
    def first(self) -> Pool:
        return self.pools[0]

    @property
    def bundles(self) -> list[FluidBundle]:
        return self.first.bundles

    @property
    def inputs(self) -> tuple[int, ...]:
        return self.first.inputs

    @cached_property
    def keyed(self) -> bool:
        return self.first.keyed

    @cached_property
    def _seconds(self) -> tuple[float, ...]:
        """By operator: the time of an instance that a row of the query takes."""
        return tuple(rows / pool.truth.rate for rows, pool in zip(self.rows, self.pools, strict=True))

    @cached_property
    def rate(self) -> float:
        """Rows a second of one instance that has a core to itself."""
        return self.first.truth.rate if len(self.pools) == 1 else 1.0 / math.fsum(self._seconds)

    @cached_property
    def cores(self) -> float:
        """How much of a core an instance needs while it is busy."""
        works = [seconds for seconds, pool in zip(self._seconds, self.pools, strict=True) if pool.truth.works]
        return math.fsum(works) / math.fsum(self._seconds)

    @cached_property
    def most(self) -> float:
        """Rows a second of all instances together, however many there are."""
        return min(pool.truth.most / rows for rows, pool in zip(self.rows, self.pools, strict=True) if rows > 0)

    def account(self, place: int, rows: float, crowd: float, full: bool, dt: float) -> None:
        """Write down for every operator what it did for so many rows on one of the slots. An instance that shares its
        core is busy for longer than it has the core. Who is `full` is busy all the time."""
        most = self.bundles[place].work.instances * dt
        busy = []
        for share, seconds, pool in zip(self.rows, self._seconds, self.pools, strict=True):
            work, spent = pool.bundles[place].work, rows * seconds
            work.rows += rows * share
            work.cpu += spent if pool.truth.works else spent * CPU_OF_WAITING
            busy.append(spent * crowd if pool.truth.works else spent)
        total = math.fsum(busy)
        if total > most:
            busy = [most * one / total for one in busy]
        elif full and not self.keyed:
            for number, part in enumerate(self._slowed(busy)):
                busy[number] += (most - total) * part
        for one, pool in zip(busy, self.pools, strict=True):
            pool.bundles[place].work.busy += one

    def _slowed(self, busy: Sequence[float]) -> list[float]:
        """How the time in which instances do not get on is parted: it is that of the service which is at its limit, or
        else of those that need cores."""
        if len(self.pools) == 1:
            return [1.0]
        limits = [
            pool.truth.most / rows if rows else math.inf for rows, pool in zip(self.rows, self.pools, strict=True)
        ]
        if min(limits) < math.inf:
            return [1.0 if number == limits.index(min(limits)) else 0.0 for number in range(len(limits))]
        works = [one if pool.truth.works else 0.0 for one, pool in zip(busy, self.pools, strict=True)]
        parts = works if math.fsum(works) > 0 else busy
        return [one / math.fsum(parts) for one in parts]
