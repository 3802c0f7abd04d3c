"""The feeds behind placed streams: from channels, and from sources. Spark keeps their offsets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.channels.log import Channels
from penstock.clock import run_time
from penstock.cluster.model import Slot
from penstock.cluster.provider import Executor
from penstock.engine.message.shares import Bundle, InputRange, Share, Spread, runs, split, traffic_of
from penstock.engine.query.intake import Intake
from penstock.kinds import Offsets, Range, Unit
from penstock.monitor.report import BundleReport

Partitions = list[tuple[bytes, Executor | None]]


class Seats:
    """Where an operator's bundles are to run now. Both may give another answer at every micro-batch."""

    def __init__(
        self,
        bundles: Callable[[], Sequence[Bundle]],
        executor: Callable[[Slot], Executor | None],
        ran_on: Callable[[BundleReport], str] = lambda report: report.slot,
    ) -> None:
        self._bundles = bundles
        self.executor = executor
        #: The slot on which a bundle ran, where Spark had chosen it.
        self.ran_on = ran_on
        self._asked = Asked()

    def bundles(self) -> Sequence[Bundle]:
        """To be asked once for every input of a micro-batch, before it is planned."""
        if not self._asked.shares:
            self._asked.at = run_time()
        return self._bundles()

    def instances(self) -> int:
        return max(sum(bundle.instances for bundle in self._bundles()), 1)

    def partitions(self, shares: Sequence[Share]) -> Partitions:
        self._asked.shares.append([share.bundle for share in shares])
        return [(share.as_descriptor(), self.executor(share.bundle.slot)) for share in shares]

    def take_asked(self) -> Asked:
        """What Spark was asked for since the last call: one micro-batch."""
        asked, self._asked = self._asked, Asked()
        return asked


@dataclass
class Asked:
    """The bundles of one micro-batch, in the order of the partitions; one list for every input."""

    shares: list[list[Bundle]] = field(default_factory=list)
    at: float = 0.0

    @property
    def bundles(self) -> list[Bundle]:
        return [bundle for share in self.shares for bundle in share]


@dataclass(frozen=True)
class ChannelInput:
    """One channel as one operator reads it."""

    channel: str
    spread: Spread
    groups: int = 1


@dataclass
class Batch:
    """What the feed was last asked to read: it travels on with the operator's report."""

    read_to: Mapping[str, int]
    rows: int = 0
    born_from: float = 0.0
    born_to: float = 0.0
    #: Rows by channel, each counted once, whoever gets it.
    rows_by_channel: Mapping[str, int] = field(default_factory=dict)
    #: Bytes from the slot that wrote them to the slot that reads them: the segments' bytes in proportion to the rows.
    #: Bundles count exactly what they read, but those behind Spark SQL do not see it.
    traffic: Mapping[tuple[str, str], int] = field(default_factory=dict)
    #: What the pacer counts; None: the rows.
    work: int | None = None


class ChannelFeed:
    """Rows of one or several interleaved channels. The offset is a JSON object: channel -> row."""

    def __init__(
        self,
        operator: str,
        inputs: Sequence[ChannelInput],
        channels: Channels,
        intake: Intake,
        seats: Seats,
        most_bytes: int,
    ) -> None:
        self._operator = operator
        self._inputs = inputs
        self._channels = channels
        self._intake = intake
        self._seats = seats
        self._most_bytes = most_bytes
        self.position = {item.channel: channels.committed_position(operator, item.channel) for item in inputs}
        self.batch = Batch(dict(self.position))
        #: Whether Spark has an offset of this feed.
        self._known = False
        intake.add(self)

    def available(self) -> int:
        return sum(self._channels.end(item.channel) - self.position[item.channel] for item in self._inputs)

    def due_in(self) -> float | None:
        return None

    def look(self) -> None:
        pass

    @property
    def drained(self) -> bool:
        return all(
            self._channels.read_position(self._operator, item.channel) == self._channels.end(item.channel)
            for item in self._inputs
        )

    def seek(self, start: str) -> None:
        self.position, self._known = json.loads(start), True

    @property
    def told(self) -> Mapping[str, int]:
        """Where Spark says that its newest batch ends; empty as long as it has said nothing."""
        return dict(self.position) if self._known else {}

    def latest(self) -> str | None:
        admitted = self._intake.admits(self)
        end = dict(self.position)
        if admitted:
            waiting = [self._channels.end(item.channel) - self.position[item.channel] for item in self._inputs]
            for item, rows in zip(self._inputs, waiting, strict=True):
                start = self.position[item.channel]
                most = -(-admitted * rows // sum(waiting))
                end[item.channel] = self._within_bytes(item.channel, start, start + min(rows, most))
        # An offset where there was none would be a first batch, of no rows.
        return _text(end) if admitted or self._known else None

    def partitions(self, start: str | None, end: str) -> Partitions:
        begin, stop = json.loads(start) if start else {}, json.loads(end)
        self.position, self._known = stop, True
        ranges, rows = [], {}
        for item in self._inputs:
            first = begin.get(item.channel, self._channels.committed_position(self._operator, item.channel))
            last = stop.get(item.channel, first)
            if last <= self._channels.committed_position(self._operator, item.channel):
                continue  # after a restart Spark shows the last finished batch again, only to say where it stood
            segments = self._channels.segments(item.channel, first, last)
            ranges.append(InputRange(segments, first, last, item.spread, item.groups))
            rows[item.channel] = last - first
        held = [segment for one in ranges for segment in one.segments if one.start < one.stop]
        shares = split(ranges, self._seats.bundles())
        self.batch = Batch(
            stop,
            sum(rows.values()),
            min((segment.born_from for segment in held), default=0.0),
            max((segment.born_to for segment in held), default=0.0),
            rows,
            traffic_of(shares, {segment.path: segment.bytes / segment.rows for segment in held}),
        )
        return self._seats.partitions(shares)

    @property
    def unmet(self) -> int | None:
        """Rows that wait in a channel are its backlog."""
        return None

    def close(self) -> None:
        pass

    def take_batch(self) -> Batch:
        """What the batch that has just run was asked to read; a batch without rows, which Spark runs to move a
        watermark, asks nobody."""
        batch, self.batch = self.batch, Batch(self.batch.read_to)
        return batch

    def fail(self, error: Exception) -> None:
        self._intake.fail(error)

    def committed(self, end: str) -> None:
        for channel, row in json.loads(end).items():
            self._channels.commit(self._operator, channel, row)

    def _within_bytes(self, channel: str, start: int, stop: int) -> int:
        """Where a batch must stop so as not to read too many bytes; it always takes at least one row."""
        size = 0.0
        for segment in self._channels.segments(channel, start, stop):
            low, high = max(start, segment.first_row), min(stop, segment.stop_row)
            bytes_per_row = segment.bytes / segment.rows
            if size + (high - low) * bytes_per_row > self._most_bytes:
                return max(start + 1, low + int((self._most_bytes - size) / bytes_per_row))
            size += (high - low) * bytes_per_row
        return stop


class SourceFeed:
    """The ranges of a source, dealt to its bundles. The source's own offsets say what there is and where it lies; Spark
    keeps them, and nobody reads a range again once Spark has committed its end."""

    def __init__(self, offsets: Offsets, unit: Unit, intake: Intake, seats: Seats) -> None:
        self._offsets = offsets
        #: Rows of other units are counted by who reads them.
        self._counts_rows = unit is Unit.ROWS
        self._intake = intake
        self._seats = seats
        #: Whether Spark has said where this stream is: before that, the position says nothing.
        self.found = False
        self.batch = Batch({})
        #: Which bundle is first goes around, so that batches do whose ranges are fewer than the bundles. Others stay: a
        #: worker may have fetched ahead what comes next of its ranges.
        self._turn = 0
        intake.add(self)

    def available(self) -> int:
        return self._offsets.available()

    def due_in(self) -> float | None:
        return self._offsets.due_in()

    def look(self) -> None:
        self._offsets.look()

    @property
    def unmet(self) -> int | None:
        """Rows that are there and not emitted. A source that was closed for good owes nothing more."""
        if not self.found or self._intake.closed:
            return 0 if self._counts_rows else None
        return self._offsets.unmet

    @property
    def drained(self) -> bool:
        return self._offsets.ended

    @property
    def position(self) -> Any:
        """Where the newest batch ends: an offset of the source's kind."""
        return self._offsets.position

    @property
    def told(self) -> Mapping[str, Any]:
        """Where Spark says that its newest batch ends, of the only input that a source has."""
        return {"0": self.position} if self.found else {}

    def seek(self, start: str) -> None:
        self._offsets.go_to(json.loads(start))
        self.found = True

    def latest(self) -> str | None:
        self.found = True  # of a stream that goes on, Spark has asked for the last batch before this
        end = self._offsets.end(self._intake.admits(self), self._seats.instances())
        return None if end is None else _text(end)

    def partitions(self, start: str | None, end: str) -> Partitions:
        self.seek(end)
        bundles = list(self._seats.bundles())
        first = json.loads(start) if start else None
        ranges = self._offsets.ranges(first, json.loads(end), self._seats.instances())
        size = sum(one.size for one in ranges)
        self.batch = Batch({}, size if self._counts_rows else 0, *_born(ranges), work=size)
        if len(ranges) < len(bundles):
            turn, self._turn = self._turn % len(bundles), self._turn + 1
            bundles = [*bundles[turn:], *bundles[:turn]]
        # In the order of the rows: so they are published (see message/shares.py).
        shares = []
        parts = runs([one.size for one in ranges], [bundle.instances for bundle in bundles])
        for bundle, part in zip(bundles, parts, strict=True):
            if mine := ranges[part.start : part.stop]:
                load = {"ranges": [[one.load, one.size] for one in mine], "born": _born(mine)}
                shares.append(Share(bundle, load=load))
        return self._seats.partitions(shares)

    def take_batch(self) -> Batch:
        batch, self.batch = self.batch, Batch({})
        return batch

    def fail(self, error: Exception) -> None:
        self._intake.fail(error)

    def committed(self, end: str) -> None:
        self._offsets.committed(json.loads(end))

    def close(self) -> None:
        self._offsets.close()


def _born(ranges: Sequence[Range]) -> tuple[float, float]:
    """When the oldest and the newest row of them came into the topology."""
    return min((one.born_from for one in ranges), default=0.0), max((one.born_to for one in ranges), default=0.0)


def _text(offset: Any) -> str:
    # Spark compares offsets as texts, so the same offset must always be the same text.
    return json.dumps(offset, sort_keys=True)
