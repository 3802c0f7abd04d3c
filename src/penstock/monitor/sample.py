"""What was measured: a Sample is what one operator did in one micro-batch, Levels are what waits in front of it.

None means not measured, and is never to be read as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.monitor.latency import LatencySketch

#: The slot of work that ran nobody knows where.
UNKNOWN_SLOT = ""
#: (producing slot, consuming slot); of what links carried: (sending machine, receiving slot).
Way = tuple[str, str]


@dataclass(frozen=True)
class Waiting:
    """What waits in one stream for its reader."""

    rows: int
    bytes: int
    #: Seconds since the oldest of it came into the topology; None if nothing waits.
    age: float | None = None


@dataclass(frozen=True)
class Levels:
    """An operator as the driver sees it at one moment, whether or not it runs a batch."""

    at: float
    #: By stream; empty for a source.
    backlog: Mapping[str, Waiting] = field(default_factory=dict)
    #: Of sources: rows that are due and not emitted.
    unmet_rows: int | None = None
    #: Whether it is held back because an output channel is full.
    throttled: bool | None = None
    #: Where one batch runs at a time: when the batch began that is under way; None if there is none.
    batch_since: float | None = None
    #: Where bundles stand: when each batch was cut that is open, by its number. A batch that was just published may
    #: still be among them, and may be counted already. None where one batch runs at a time.
    open_batches: Mapping[int, float] | None = None
    #: Of sources: rows emitted until then, counted from any moment. With those that are due and not emitted this says
    #: what was offered, however much was caught up on meanwhile.
    emitted: int | None = None


@dataclass(frozen=True)
class StateSize:
    """The state of one task of a keyed operator."""

    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Waited:
    """What a bundle that stands has waited since the last time that somebody told it."""

    #: Where it was to run, and the executor that really runs it, as far as that is known.
    slot: str
    executor: str | None
    instances: int
    #: Seconds of all its instances together: with nothing to hand out, and with rows that something held back.
    input: float
    room: float


@dataclass(frozen=True)
class SlotWork:
    """What the bundles of one operator did on one slot in one micro-batch."""

    slot: str
    instances: int
    #: Rows executed, and by the stream they are from.
    rows: int | None = None
    rows_in: Mapping[str, int] | None = None
    #: Rows emitted, by output.
    rows_out: Mapping[str, int] = field(default_factory=dict)
    bytes_in: int | None = None
    bytes_out: int | None = None
    #: Seconds of all instances together.
    busy: float | None = None
    cpu: float | None = None
    #: Seconds of all instances together; None where bundles do not stand.
    waiting_input: float | None = None
    waiting_room: float | None = None
    #: Rows and bytes read by where they came from.
    rows_from: Mapping[str, int] | None = None
    bytes_from: Mapping[str, int] | None = None
    #: Bytes of messages from the driver and to it that crossed a link.
    from_driver: int | None = None
    to_driver: int | None = None
    #: Resident bytes of its worker processes together, and of its executor.
    memory: int | None = None
    executor_memory: int | None = None


@dataclass(frozen=True)
class Sample:
    """One micro-batch of one operator."""

    operator: str
    batch: int
    #: Seconds since the epoch.
    started: float
    finished: float
    #: Rows executed: every row once, also one of a broadcast.
    rows: int
    #: By stream; None where that is not known, empty for a source.
    rows_in: Mapping[str, int] | None
    #: By output.
    rows_out: Mapping[str, int]
    slots: tuple[SlotWork, ...]
    bad_rows: int = 0
    #: Bytes by (producing slot, consuming slot).
    traffic: Mapping[Way, int] | None = None
    #: Bytes that came over a link for these rows, by (sending machine, receiving slot).
    links: Mapping[Way, int] | None = None
    #: Seconds between the batch before and this one.
    waiting: float | None = None
    #: Seconds in which not even the busiest bundle was busy, and what of it Spark accounts for, by part.
    overhead: float | None = None
    overhead_parts: Mapping[str, float] | None = None
    #: Seconds for which a bundle had its share, the most of any of them.
    longest_share: float | None = None
    levels: Levels | None = None
    #: Of sinks: from when a row was due at the source to when this batch was published.
    latency: LatencySketch | None = None
    #: Of keyed operators, by task.
    state: Mapping[int, StateSize] | None = None

    @property
    def seconds(self) -> float:
        return max(self.finished - self.started, 0.0)
