"""Where the rows of standing bundles come from: channels, or a source. A supply says what waits and cuts batches of it.

The catalog alone knows how far an operator has read: a batch is published together with where it ends. So a query that
is started again goes on there, whatever was cut and not published before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from penstock.channels.log import Channels
from penstock.channels.records import Segment
from penstock.engine.message.shares import Bundle, InputRange, Share, Spread, runs, split
from penstock.engine.query.feeds import Batch, ChannelInput
from penstock.engine.standing.batches import CutBatch
from penstock.engine.standing.dealer import Dealer
from penstock.kinds import Offsets, Range, SourceKind, Unit

T = TypeVar("T")


class ChannelSupply:
    """Rows of one or several interleaved channels."""

    def __init__(self, operator: str, inputs: Sequence[ChannelInput], channels: Channels, most_bytes: int) -> None:
        self._operator = operator
        self._inputs = inputs
        self._channels = channels
        self._most_bytes = most_bytes
        self.any_bundle = all(item.spread is Spread.SHUFFLE for item in inputs)
        self.position: dict[str, int] = {}
        self.counts_rows = True
        self.go_back(None)

    def look(self) -> None:
        pass

    def available(self) -> int:
        return sum(self._waiting(item) for item in self._inputs)

    def due_in(self) -> float | None:
        return None

    def cut(self, most: int, bundles: Sequence[Bundle]) -> CutBatch | None:
        waiting = [self._waiting(item) for item in self._inputs]
        total = sum(waiting)
        if not total:
            return None
        end, ranges, rows = dict(self.position), [], {}
        for item, there in zip(self._inputs, waiting, strict=True):
            start = self.position[item.channel]
            stop = start + min(there, -(-most * there // total))
            if start < stop:
                segments = self._channels.segments(item.channel, start, stop)
                stop = self._within_bytes(segments, start, stop)
                end[item.channel], rows[item.channel] = stop, stop - start
                ranges.append(InputRange(segments, start, stop, item.spread, item.groups))
        held = [segment for one in ranges for segment in one.segments]
        shares = split(ranges, bundles)
        self.position = end
        born = min(segment.born_from for segment in held), max(segment.born_to for segment in held)
        return CutBatch(Batch(end, sum(rows.values()), *born, rows), tuple(shares), dict(end))

    def go_back(self, ends: Mapping[str, Any] | None) -> None:
        self.position = {
            item.channel: self._channels.read_position(self._operator, item.channel) for item in self._inputs
        } | dict(ends or {})

    def published(self, ends: Mapping[str, Any]) -> None:
        """Nobody will read again what lies before."""
        for channel, row in ends.items():
            self._channels.commit(self._operator, channel, row)

    @property
    def drained(self) -> bool:
        return all(
            self._channels.read_position(self._operator, item.channel) == self._channels.end(item.channel)
            for item in self._inputs
        )

    @property
    def unmet(self) -> int | None:
        """Rows that wait in a channel are its backlog."""
        return None

    def close(self) -> None:
        pass

    def _waiting(self, item: ChannelInput) -> int:
        return self._channels.end(item.channel) - self.position[item.channel]

    def _within_bytes(self, segments: Sequence[Segment], start: int, stop: int) -> int:
        """Where a batch must stop so as not to read too many bytes; it always takes at least one row."""
        size = 0.0
        for segment in segments:
            low, high = max(start, segment.first_row), min(stop, segment.stop_row)
            bytes_per_row = segment.bytes / segment.rows
            if size + (high - low) * bytes_per_row > self._most_bytes:
                return max(start + 1, low + int((self._most_bytes - size) / bytes_per_row))
            size += (high - low) * bytes_per_row
        return stop


class SourceSupply:
    """The ranges of a source. Its own offsets say what there is and where it lies."""

    def __init__(self, offsets: Offsets, spec: SourceKind, published: Any, dealer: Dealer) -> None:
        """`published` is where the newest published batch ends; None if there is none."""
        self.any_bundle = not spec.fetches_ahead
        self._offsets = offsets
        #: Rows of other units are counted by who reads them.
        self.counts_rows = spec.unit is Unit.ROWS
        self._dealer = dealer
        #: Where the source begins.
        self._begin = offsets.position
        self._published = published
        #: Where the newest batch ends that was cut.
        self._last = published
        self._turn = 0
        self.go_back(None)

    def look(self) -> None:
        self._offsets.look()

    def available(self) -> int:
        return self._offsets.available()

    def due_in(self) -> float | None:
        return self._offsets.due_in()

    def cut(self, most: int, bundles: Sequence[Bundle]) -> CutBatch | None:
        instances = sum(bundle.instances for bundle in bundles)
        end = self._offsets.end(min(most, self._offsets.available()), instances)
        if end is None or end == self._last:
            return None
        ranges = self._offsets.ranges(self._last, end, instances)
        self._offsets.go_to(end)
        self._last = end
        size = sum(one.size for one in ranges)
        read = Batch({}, size if self.counts_rows else 0, *_born(ranges), work=size)
        weights = [bundle.instances for bundle in bundles] if self.any_bundle else self._dealer.weights(bundles)
        if len(ranges) < len(bundles):
            # Who is first goes around, so that all have something to do in turn.
            turn, self._turn = self._turn % len(bundles), self._turn + 1
            bundles, weights = _turned(bundles, turn), _turned(weights, turn)
        shares = []
        parts = runs([one.size for one in ranges], weights)
        for bundle, part in zip(bundles, parts, strict=True):
            if mine := ranges[part.start : part.stop]:
                load = {"ranges": [[one.load, one.size] for one in mine], "born": _born(mine)}
                shares.append(Share(bundle, load=load))
        return CutBatch(read, tuple(shares), {"0": end})

    def go_back(self, ends: Mapping[str, Any] | None) -> None:
        self._last = ends["0"] if ends else self._published
        self._offsets.go_to(self._begin if self._last is None else self._last)

    def published(self, ends: Mapping[str, Any]) -> None:
        self._published = ends["0"]
        self._offsets.committed(self._published)

    @property
    def position(self) -> Any:
        """Where the newest batch ends: an offset of the source's kind."""
        return self._offsets.position

    @property
    def drained(self) -> bool:
        return self._offsets.ended

    @property
    def unmet(self) -> int | None:
        """Rows that are there and not emitted. A source that was closed for good owes nothing more, and one that waits
        for more rows owes nothing yet."""
        unmet = self._offsets.unmet
        if self._dealer.closed or self._dealer.lingers:
            return 0 if self.counts_rows or unmet is not None else None
        return unmet

    def close(self) -> None:
        self._offsets.close()


def _turned(items: Sequence[T], first: int) -> list[T]:
    return [*items[first:], *items[:first]]


def _born(ranges: Sequence[Range]) -> tuple[float, float]:
    """When the oldest and the newest row of them came into the topology."""
    return min((one.born_from for one in ranges), default=0.0), max((one.born_to for one in ranges), default=0.0)
