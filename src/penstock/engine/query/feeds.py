"""Feeds: a feed says what a batch of a query reads, from channels or from a source.

Every feed has two halves. `shares` says what each bundle reads between two positions, and knows nothing of Spark. What
Spark's micro-batches ask for (`seek`, `latest`, `partitions`, `committed`) is the other half: Spark keeps the positions
as offsets, which are texts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.channels.log import Channels
from penstock.engine.message.shares import InputRange, Share, Spread, links_of, runs, split, traffic_of
from penstock.engine.query.intake import Intake
from penstock.engine.query.seats import Partitions, Seats
from penstock.kinds import Offsets, Range, Unit


@dataclass(frozen=True)
class ChannelInput:
    """One channel as one operator reads it."""

    channel: str
    spread: Spread
    groups: int = 1


@dataclass
class Batch:
    """What a feed gave to a batch to read. The query publishes and reports it with the batch."""

    #: By channel: the row up to which the operator has read once this batch is published.
    read_to: Mapping[str, int]
    rows: int = 0
    #: When the oldest and the newest of these rows came into the topology.
    born_from: float = 0.0
    born_to: float = 0.0
    #: Rows by channel. A row counts once, however many bundles get it.
    rows_by_channel: Mapping[str, int] = field(default_factory=dict)
    #: Bytes from the slot that wrote them to the slot that reads them: the segments' bytes in proportion to the rows.
    #: A bundle counts exactly what it reads, but a bundle behind Spark SQL does not see where its rows are from.
    traffic: Mapping[tuple[str, str], int] = field(default_factory=dict)
    #: Bytes that should come over links for that, by (sending machine, receiving slot); empty where bundles count them.
    links: Mapping[tuple[str, str], int] = field(default_factory=dict)
    #: What the pacer counts; None means that it counts the rows.
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
        *,
        estimates_links: bool = False,
    ) -> None:
        """`estimates_links`: rows come from the machines that wrote them, and nobody counts them there, because Spark
        SQL reads."""
        self._operator = operator
        self._inputs = inputs
        self._channels = channels
        self._intake = intake
        self._seats = seats
        self._most_bytes = most_bytes
        self._estimates_links = estimates_links
        self.position = {item.channel: channels.committed_position(operator, item.channel) for item in inputs}
        self.batch = Batch(dict(self.position))
        #: Whether Spark has an offset of this feed.
        self._known = False
        intake.add(self)

    # What a batch reads

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

    @property
    def unmet(self) -> int | None:
        """None: rows that wait in a channel are the backlog of the channel."""
        return None

    def end_of(self, most: int) -> dict[str, int]:
        """Where a batch ends that reads at most so many rows from here: each channel gives its part of them."""
        end = dict(self.position)
        if most:
            waiting = [self._channels.end(item.channel) - self.position[item.channel] for item in self._inputs]
            for item, rows in zip(self._inputs, waiting, strict=True):
                start = self.position[item.channel]
                part = -(-most * rows // sum(waiting))
                end[item.channel] = self._within_bytes(item.channel, start, start + min(rows, part))
        return end

    def shares(self, start: Mapping[str, int], stop: dict[str, int]) -> list[Share]:
        """What each bundle reads in a batch between these positions; the feed stands at the end of the batch then. A
        channel without a start is read from where the operator has committed it."""
        self.position = stop
        ranges, rows = [], {}
        for item in self._inputs:
            first = start.get(item.channel, self._channels.committed_position(self._operator, item.channel))
            last = stop.get(item.channel, first)
            if last <= self._channels.committed_position(self._operator, item.channel):
                continue  # after a restart Spark shows the last finished batch again, only to say where it stood
            segments = self._channels.segments(item.channel, first, last)
            ranges.append(InputRange(segments, first, last, item.spread, item.groups))
            rows[item.channel] = last - first
        held = [segment for one in ranges for segment in one.segments if one.start < one.stop]
        shares = self._split(ranges)
        sizes = {segment.path: segment.bytes / segment.rows for segment in held}
        self.batch = Batch(
            stop,
            sum(rows.values()),
            min((segment.born_from for segment in held), default=0.0),
            max((segment.born_to for segment in held), default=0.0),
            rows,
            traffic_of(shares, sizes),
            links_of(shares, sizes) if self._estimates_links else {},
        )
        return shares

    def _split(self, ranges: Sequence[InputRange]) -> list[Share]:
        return split(ranges, self._seats.bundles())

    def take_batch(self) -> Batch:
        """What the batch that has just run was given to read. A batch without rows, which Spark runs to move a
        watermark, was given nothing."""
        batch, self.batch = self.batch, Batch(self.batch.read_to)
        return batch

    def close(self) -> None:
        pass

    def _within_bytes(self, channel: str, start: int, stop: int) -> int:
        """Where a batch must stop so that it does not read too many bytes. It always reads at least one row."""
        size = 0.0
        for segment in self._channels.segments(channel, start, stop):
            low, high = max(start, segment.first_row), min(stop, segment.stop_row)
            bytes_per_row = segment.bytes / segment.rows
            if size + (high - low) * bytes_per_row > self._most_bytes:
                return max(start + 1, low + int((self._most_bytes - size) / bytes_per_row))
            size += (high - low) * bytes_per_row
        return stop

    # What Spark's micro-batches ask for

    def seek(self, start: str) -> None:
        self.position, self._known = json.loads(start), True

    @property
    def told(self) -> Mapping[str, int]:
        """Where Spark says that its newest batch ends; empty as long as Spark has said nothing."""
        return dict(self.position) if self._known else {}

    def latest(self) -> str | None:
        admitted = self._intake.admits(self)
        end = self.end_of(admitted)
        # An offset where there was none before would make Spark run a first batch, of no rows.
        return _text(end) if admitted or self._known else None

    def partitions(self, start: str | None, end: str) -> Partitions:
        begin, stop = json.loads(start) if start else {}, json.loads(end)
        self._known = True
        return self._seats.partitions(self.shares(begin, stop))

    def committed(self, end: str) -> None:
        for channel, row in json.loads(end).items():
            self._channels.commit(self._operator, channel, row)

    def fail(self, error: Exception) -> None:
        self._intake.fail(error)


class SourceFeed:
    """The ranges of a source, dealt to its bundles. The source's own offsets say what there is and where it lies. Spark
    keeps them, and nobody reads a range again once Spark has committed its end."""

    def __init__(self, offsets: Offsets, unit: Unit, intake: Intake, seats: Seats) -> None:
        self._offsets = offsets
        #: Whether a range says how many rows it has. Where its size is in another unit, its reader counts the rows.
        self._counts_rows = unit is Unit.ROWS
        self._intake = intake
        self._seats = seats
        #: Whether Spark has said where this stream is. Before that, the position says nothing.
        self.found = False
        self.batch = Batch({})
        #: Batches that have fewer ranges than there are bundles begin with another bundle each time. Other batches do
        #: not: a worker may have fetched ahead what comes next of its ranges.
        self._first_bundle = 0
        intake.add(self)

    # What a batch reads

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

    def shares(self, start: Any, stop: Any) -> list[Share]:
        """What each bundle reads in a batch between these offsets; the source stands at the end of the batch then. None
        is the start of the source."""
        self._go_to(stop)
        bundles = list(self._seats.bundles())
        ranges = self._offsets.ranges(start, stop, self._seats.instances())
        size = sum(one.size for one in ranges)
        self.batch = Batch({}, size if self._counts_rows else 0, *_born(ranges), work=size)
        if len(ranges) < len(bundles):
            first, self._first_bundle = self._first_bundle % len(bundles), self._first_bundle + 1
            bundles = [*bundles[first:], *bundles[:first]]
        # The shares are in the order of the rows, and so their rows are published (see message/shares.py).
        shares = []
        parts = runs([one.size for one in ranges], [bundle.instances for bundle in bundles])
        for bundle, part in zip(bundles, parts, strict=True):
            if mine := ranges[part.start : part.stop]:
                load = {"ranges": [[one.load, one.size] for one in mine], "born": _born(mine)}
                shares.append(Share(bundle, load=load))
        return shares

    def take_batch(self) -> Batch:
        """What the batch that has just run was given to read."""
        batch, self.batch = self.batch, Batch({})
        return batch

    def close(self) -> None:
        self._offsets.close()

    def _go_to(self, offset: Any) -> None:
        self._offsets.go_to(offset)
        self.found = True

    # What Spark's micro-batches ask for

    def seek(self, start: str) -> None:
        self._go_to(json.loads(start))

    @property
    def told(self) -> Mapping[str, Any]:
        """Where Spark says that its newest batch ends. A source has only one input: the input "0"."""
        return {"0": self.position} if self.found else {}

    def latest(self) -> str | None:
        self.found = True  # Spark has shown the last batch before this call, if the stream goes on from an earlier run
        most = self._intake.admits(self)
        end = self._offsets.end(most, self._seats.instances())
        # Spark compares texts, and so they are compared here: a tuple that went through JSON is a list.
        if most and (end is None or _text(end) == _text(self._offsets.position)):
            self._intake.nothing_came()
        return None if end is None else _text(end)

    def partitions(self, start: str | None, end: str) -> Partitions:
        first = json.loads(start) if start else None
        return self._seats.partitions(self.shares(first, json.loads(end)))

    def committed(self, end: str) -> None:
        self._offsets.committed(json.loads(end))

    def fail(self, error: Exception) -> None:
        self._intake.fail(error)


AnyFeed = ChannelFeed | SourceFeed


def _born(ranges: Sequence[Range]) -> tuple[float, float]:
    """When the oldest and the newest row of these ranges came into the topology."""
    return min((one.born_from for one in ranges), default=0.0), max((one.born_to for one in ranges), default=0.0)


def _text(offset: Any) -> str:
    # Spark compares offsets as texts, so the same offset must always be the same text.
    return json.dumps(offset, sort_keys=True)
