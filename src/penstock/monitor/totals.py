"""Samples added up, and sums that can be merged: those of two intervals are the sums of both together.

A sum with an unknown part is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.monitor.latency import LatencySketch
from penstock.monitor.sample import Levels, Sample, SlotWork, StateSize, Waited, Way
from penstock.monitor.unknown import Number, largest, plus

Key = TypeVar("Key")

#: As many bundles at most are told apart at the begin of a window.
FIRST_STARTS = 32


@dataclass
class SlotTotals:
    """One operator on one slot."""

    batches: int = 0
    #: As the bundles had them last; 0 where Spark chose the threads.
    instances: int = 0
    rows: int | None = 0
    rows_out: int = 0
    bytes_in: int | None = 0
    bytes_out: int | None = 0
    busy: float | None = 0.0
    cpu: float | None = 0.0
    waiting_input: float | None = 0.0
    waiting_room: float | None = 0.0
    #: Rows and bytes read by where they came from.
    rows_from: dict[str, int] | None = field(default_factory=dict)
    bytes_from: dict[str, int] | None = field(default_factory=dict)
    from_driver: int | None = 0
    to_driver: int | None = 0
    memory: int | None = None
    executor_memory: int | None = None

    def add(self, work: SlotWork) -> None:
        self._take(work, 1, sum(work.rows_out.values()))

    @staticmethod
    def silent() -> SlotTotals:
        """Of a slot that nothing was heard of: nothing ran there. What bundles there have waited, they would have told,
        if they stood; in micro-batches nobody measures it."""
        return SlotTotals(waiting_input=None, waiting_room=None)

    def wait(self, bundles: Sequence[Waited]) -> None:
        self.instances = sum(one.instances for one in bundles)
        self.waiting_input = plus(self.waiting_input, sum(one.input for one in bundles))
        self.waiting_room = plus(self.waiting_room, sum(one.room for one in bundles))

    def merge(self, other: SlotTotals) -> None:
        self._take(other, other.batches, other.rows_out)

    def _take(self, one: SlotWork | SlotTotals, batches: int, rows_out: int) -> None:
        self.batches += batches
        self.instances = one.instances
        self.rows = plus(self.rows, one.rows)
        self.rows_out += rows_out
        self.bytes_in = plus(self.bytes_in, one.bytes_in)
        self.bytes_out = plus(self.bytes_out, one.bytes_out)
        self.busy = plus(self.busy, one.busy)
        self.cpu = plus(self.cpu, one.cpu)
        self.waiting_input = plus(self.waiting_input, one.waiting_input)
        self.waiting_room = plus(self.waiting_room, one.waiting_room)
        self.rows_from = plus_each(self.rows_from, one.rows_from)
        self.bytes_from = plus_each(self.bytes_from, one.bytes_from)
        self.from_driver = plus(self.from_driver, one.from_driver)
        self.to_driver = plus(self.to_driver, one.to_driver)
        self.memory = largest(self.memory, one.memory)
        self.executor_memory = largest(self.executor_memory, one.executor_memory)


@dataclass
class OperatorTotals:
    """One operator over one interval, or over several."""

    #: Intervals in which there was something: a batch, or a look at it.
    intervals: int = 0
    batches: int = 0
    seconds: float = 0.0
    rows: int = 0
    rows_in: dict[str, int] | None = field(default_factory=dict)
    rows_out: dict[str, int] = field(default_factory=dict)
    bad_rows: int = 0
    late_rows: int = 0
    waiting: float | None = 0.0
    overhead: float | None = 0.0
    longest_shares: float | None = 0.0
    #: Spark accounts for a batch only after it: these are the sums of so many of the batches.
    overhead_parts: dict[str, float] = field(default_factory=dict)
    overhead_batches: int = 0
    traffic: dict[Way, int] | None = field(default_factory=dict)
    links: dict[Way, int] | None = field(default_factory=dict)
    #: Bytes by slot that Spark's shuffle brought from other machines; None as long as nobody has looked.
    shuffled: dict[str, int] | None = None
    slots: dict[str, SlotTotals] = field(default_factory=dict)
    latency: LatencySketch | None = None
    #: The newest that is known.
    state: Mapping[int, StateSize] | None = None
    #: The last of each interval, oldest first.
    levels: list[Levels] = field(default_factory=list)
    #: When the first batches began, the earliest first: at most `FIRST_STARTS`.
    first_starts: list[float] = field(default_factory=list)
    last_started: float | None = None
    last_finished: float | None = None
    #: The number of the batch that was counted last. After a chain was joined or split, numbers may begin anew.
    last_batch: int | None = None

    @property
    def first_started(self) -> float | None:
        return self.first_starts[0] if self.first_starts else None

    @property
    def heard_at(self) -> float | None:
        """When there was last something."""
        seen = self.levels[-1].at if self.levels else None
        return largest(self.last_finished, seen)

    def add(self, sample: Sample) -> None:
        self.intervals = 1
        self.batches += 1
        self.seconds += sample.seconds
        self.rows += sample.rows
        self.rows_in = plus_each(self.rows_in, sample.rows_in)
        _add_each(self.rows_out, sample.rows_out)
        self.bad_rows += sample.bad_rows
        self.waiting = plus(self.waiting, sample.waiting)
        self.overhead = plus(self.overhead, sample.overhead)
        self.longest_shares = plus(self.longest_shares, sample.longest_share)
        if sample.overhead_parts is not None:
            _add_each(self.overhead_parts, sample.overhead_parts)
            self.overhead_batches += 1
        self.traffic = plus_each(self.traffic, sample.traffic)
        self.links = plus_each(self.links, sample.links)
        for work in sample.slots:
            self._slot(work.slot).add(work)
        self._take_latency(sample.latency)
        self.state = sample.state if sample.state is not None else self.state
        self._stretch([sample.started], sample.started, sample.finished)
        self.last_batch = sample.batch
        if sample.levels is not None:
            self.see(sample.levels)

    def see(self, levels: Levels) -> None:
        """Within an interval, the newest look replaces the one before."""
        self.intervals = 1
        if not self.levels or levels.at >= self.levels[-1].at:
            self.levels = [levels]

    def shuffle(self, by_slot: Mapping[str, int]) -> None:
        """Spark says that its shuffle has brought so much from other machines since somebody asked last."""
        self.shuffled = self.shuffled or {}
        _add_each(self.shuffled, by_slot)

    def wait(self, slot: str, bundles: Sequence[Waited]) -> None:
        """What the bundles of a slot have waited, with or without a batch."""
        self._slot(slot).wait(bundles)

    def merge(self, other: OperatorTotals) -> None:
        """Take in what came after."""
        self.intervals += other.intervals
        self.batches += other.batches
        self.seconds += other.seconds
        self.rows += other.rows
        self.rows_in = plus_each(self.rows_in, other.rows_in)
        _add_each(self.rows_out, other.rows_out)
        self.bad_rows += other.bad_rows
        self.late_rows += other.late_rows
        self.waiting = plus(self.waiting, other.waiting)
        self.overhead = plus(self.overhead, other.overhead)
        self.longest_shares = plus(self.longest_shares, other.longest_shares)
        _add_each(self.overhead_parts, other.overhead_parts)
        self.overhead_batches += other.overhead_batches
        self.traffic = plus_each(self.traffic, other.traffic)
        self.links = plus_each(self.links, other.links)
        if other.shuffled is not None:
            self.shuffle(other.shuffled)
        for slot, totals in other.slots.items():
            self._slot(slot).merge(totals)
        self._take_latency(other.latency)
        self.state = other.state if other.state is not None else self.state
        self.levels = self.levels + other.levels
        if other.last_started is not None and other.last_finished is not None:
            self._stretch(other.first_starts, other.last_started, other.last_finished)
        self.last_batch = other.last_batch if other.last_batch is not None else self.last_batch

    def in_one_interval(self) -> None:
        """What was merged are parts of one interval: only the newest look counts."""
        self.intervals = 1
        self.levels = sorted(self.levels, key=lambda levels: levels.at)[-1:]

    def _slot(self, slot: str) -> SlotTotals:
        return self.slots.setdefault(slot, SlotTotals())

    def _take_latency(self, latency: LatencySketch | None) -> None:
        if latency is not None:
            # That of a sample is shared with others; the one here is its own.
            self.latency = self.latency or LatencySketch()
            self.latency.merge(latency)

    def _stretch(self, first_starts: Sequence[float], last_started: float, finished: float) -> None:
        if len(self.first_starts) < FIRST_STARTS or first_starts[0] < self.first_starts[-1]:
            self.first_starts = sorted((*self.first_starts, *first_starts))[:FIRST_STARTS]
        self.last_started = largest(self.last_started, last_started)
        self.last_finished = largest(self.last_finished, finished)

    @property
    def turn(self) -> float:
        """Seconds from the start of a batch to that of the next, on average; 0 as long as that is not known."""
        if self.batches < 2 or self.first_started is None or self.last_started is None:
            return 0.0
        return (self.last_started - self.first_started) / (self.batches - 1)


ByOperator = Mapping[str, OperatorTotals]


def merge_operators(*parts: ByOperator) -> dict[str, OperatorTotals]:
    """All of them in a new one, the oldest first; none of them is changed or shared."""
    total: dict[str, OperatorTotals] = {}
    for part in parts:
        for name, totals in part.items():
            total.setdefault(name, OperatorTotals()).merge(totals)
    return total


def plus_each(total: dict[Key, int] | None, more: Mapping[Key, int] | None) -> dict[Key, int] | None:
    if total is None or more is None:
        return None
    _add_each(total, more)
    return total


def _add_each(total: dict[Key, Number], more: Mapping[Key, Number]) -> None:
    for key, value in more.items():
        total[key] = total.get(key, 0) + value
