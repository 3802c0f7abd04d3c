"""How a micro-batch is shared out: which rows go to which bundle. Pure, so that its invariants can be tested.

Every row of the batch is in exactly one share (shuffle), in the one share of its key's group (by key), or in every
share (broadcast), and a slot's part is in proportion to its instances. Shares are in the order of their rows: what they
write is published in that order, so that a channel has its rows in the order in which they were emitted, however
batches are cut. A keyed operator reads them by task (task_shares.py), which keeps that order, or through Spark's
shuffle, which keeps it from batch to batch but not within a batch; docs/guide.md ("Order") says what users may rely on.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import accumulate
from typing import Any

from penstock.channels.origins import origin_of
from penstock.channels.records import Segment
from penstock.cluster.model import Slot


class Spread(StrEnum):
    """How the rows of one input reach the instances."""

    SHUFFLE = "shuffle"
    BY_KEY = "by_key"
    BROADCAST = "broadcast"
    #: Each task of a keyed operator gets the rows of its own keys, by Spark's hash (task_shares.py).
    BY_TASK = "by_task"


#: Several bundles of a machine read the same rows: these are kept there.
SHARED = (Spread.BROADCAST, Spread.BY_TASK)


@dataclass(frozen=True)
class Bundle:
    """One Spark task of an operator on a slot, with its part of the instances there."""

    slot: Slot
    instances: int
    #: The how-manieth of the operator's tasks on that slot.
    index: int = 0


@dataclass(frozen=True)
class Piece:
    """Rows [start, stop) of one segment, of groups [first_group, stop_group) where the input is split by key, or of
    tasks where it is split by task."""

    path: str
    start: int
    stop: int
    spread: Spread
    born_from: float
    born_to: float
    #: The slot whose bundle wrote the segment: traffic from slot to slot is counted from this.
    producer_slot: str
    first_group: int = 0
    stop_group: int = 0

    @property
    def channel(self) -> str:
        """The channel's name: a segment is in the folder of its channel."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True)
class InputPart:
    """Pieces of one input for one bundle. Where all bundles read the same rows, each its own groups of keys or all of
    them, they share the pieces, which are made and written down once: a batch of many segments for many bundles costs
    the driver their sum and not their product."""

    pieces: tuple[Piece, ...]
    first_group: int = 0
    stop_group: int = 0

    def of_groups(self, first: int, stop: int) -> InputPart:
        """The same rows, of these groups."""
        part = replace(self, first_group=first, stop_group=stop)
        part.__dict__["text"] = self.text
        return part

    @property
    def spread(self) -> Spread:
        """How the rows of its input reach the bundles. A part that is in a share has pieces."""
        return self.pieces[0].spread

    @cached_property
    def text(self) -> str:
        return json.dumps([list(vars(piece).values()) for piece in self.pieces])


@dataclass(frozen=True)
class Share:
    """What one bundle does in one micro-batch: parts of channels, or whatever else a source reads."""

    bundle: Bundle
    parts: tuple[InputPart, ...] = ()
    #: What a source is to read, in the source's own words; None for operators that read channels.
    load: Mapping[str, Any] | None = None

    @property
    def work(self) -> int | None:
        """How much a source is to read, in what the pacer counts; None for operators that read channels: their bundles
        say how many rows that were."""
        return sum(size for _, size in self.load["ranges"]) if self.load and "ranges" in self.load else None

    @cached_property
    def groups(self) -> tuple[int, int] | None:
        """[first, stop) of the groups of keys of the rows that are split by key: the same for all inputs; None if there
        are no such rows."""
        keyed = (part for part in self.parts if part.spread is Spread.BY_KEY)
        return next(((part.first_group, part.stop_group) for part in keyed), None)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """All pieces, each with the groups that this bundle reads."""
        return tuple(
            replace(piece, first_group=part.first_group, stop_group=part.stop_group)
            for part in self.parts
            for piece in part.pieces
        )

    def as_descriptor(self) -> bytes:
        """The text that travels to the executor in the query's only column: JSON."""
        share = json.dumps({"slot": self.bundle.slot.name, "instances": self.bundle.instances, "load": self.load})
        parts = ",".join(f"[{part.first_group},{part.stop_group},{part.text}]" for part in self.parts)
        return f"[{share},[{parts}]]".encode()


@dataclass(frozen=True)
class Descriptor:
    """A share as its executor sees it."""

    slot: str
    instances: int
    pieces: tuple[Piece, ...]
    load: Mapping[str, Any] | None

    @staticmethod
    def parse(text: bytes) -> Descriptor:
        share, parts = json.loads(text)
        pieces = tuple(
            Piece(path, start, stop, Spread(spread), born_from, born_to, slot, first, last)
            for first, last, found in parts
            for path, start, stop, spread, born_from, born_to, slot, _, _ in found
        )
        return Descriptor(share["slot"], share["instances"], pieces, share["load"])


@dataclass(frozen=True)
class InputRange:
    """The rows [start, stop) of one channel that are in the batch, and the segments that hold them."""

    segments: Sequence[Segment]
    start: int
    stop: int
    spread: Spread
    groups: int = 1


def bundles_of(slots: Mapping[Slot, int]) -> list[Bundle]:
    """A slot's instances as min(instances, cores) tasks: Python threads share a lock, so cores need processes."""
    bundles = []
    for slot, instances in sorted(slots.items()):
        processes = min(instances, slot.cores)
        for index in range(processes):
            bundles.append(Bundle(slot, part(instances, index, processes), index))
    return bundles


def part(total: int, index: int, parts: int) -> int:
    """The size of one of `parts` nearly equal parts of a whole number."""
    return total * (index + 1) // parts - total * index // parts


def cuts(total: int, weights: Sequence[int], turn: int = 0) -> list[tuple[int, int]]:
    """[start, stop) for each weight, in proportion. `turn` says who is first, so that small batches go around."""
    order = [(turn + index) % len(weights) for index in range(len(weights))]
    whole, seen = sum(weights), 0
    ranges = [(0, 0)] * len(weights)
    for index in order:
        start = total * seen // whole
        seen += weights[index]
        ranges[index] = (start, total * seen // whole)
    return ranges


def runs(sizes: Sequence[int], weights: Sequence[int]) -> list[range]:
    """Consecutive items for each weight, in order, of about its proportion of all sizes: an item goes where its middle
    falls."""
    whole, total, seen = sum(weights), max(sum(sizes), 1), 0
    bounds = [total * bound / whole for bound in accumulate(weights)]
    counts = [0] * len(weights)
    for size in sizes:
        counts[min(bisect_right(bounds, seen + size / 2), len(weights) - 1)] += 1
        seen += size
    ends = list(accumulate(counts))
    return [range(end - count, end) for end, count in zip(ends, counts, strict=True)]


def split(inputs: Sequence[InputRange], bundles: Sequence[Bundle]) -> list[Share]:
    """The shares of a micro-batch; a bundle that gets no row has none."""
    weights = [bundle.instances for bundle in bundles]
    parts: list[list[InputPart]] = [[] for _ in bundles]
    # The same for all inputs: the shares can only be in one order. Keys have their bundle, whoever is first.
    turn = sum(item.start for item in inputs if item.spread is Spread.SHUFFLE) % len(bundles)
    for item in inputs:
        if item.spread is Spread.SHUFFLE:
            ranges = cuts(item.stop - item.start, weights, turn)
            for mine, (low, high) in zip(parts, ranges, strict=True):
                mine.append(InputPart(pieces_of(item, item.start + low, item.start + high)))
        elif item.spread is Spread.BY_KEY:
            everything = InputPart(pieces_of(item, item.start, item.stop))
            # The same cut whatever the batch, so that a key stays with its bundle while the placement stays.
            for mine, (low, high) in zip(parts, cuts(item.groups, weights), strict=True):
                if low < high:
                    mine.append(everything.of_groups(low, high))
        elif item.spread is Spread.BY_TASK:
            raise ValueError("rows that are split by task are shared out by split_by_task")
        else:
            everything = InputPart(pieces_of(item, item.start, item.stop))
            for mine in parts:
                mine.append(everything)
    filled = [tuple(part for part in mine if part.pieces) for mine in parts]
    shares = [Share(bundle, mine) for bundle, mine in zip(bundles, filled, strict=True)]
    return [share for share in [*shares[turn:], *shares[:turn]] if share.parts]


def traffic_of(shares: Sequence[Share], bytes_per_row: Mapping[str, float]) -> dict[tuple[str, str], int]:
    """Bytes from the slot that wrote them to the slot that reads them, by the size of a row in each segment. Groups of
    keys count as if they were equal: what is in them is not known here."""
    # Parts with the same pieces are added up once; by these, how many groups there are.
    written: dict[int, dict[str, float]] = {}
    groups: dict[int, int] = {}
    for share in shares:
        for part in share.parts:
            same = id(part.pieces)
            groups[same] = max(groups.get(same, 0), part.stop_group)
            if same not in written:
                by_slot: dict[str, float] = {}
                written[same] = by_slot
                for piece in part.pieces:
                    size = (piece.stop - piece.start) * bytes_per_row[piece.path]
                    by_slot[piece.producer_slot] = by_slot.get(piece.producer_slot, 0.0) + size
    traffic: dict[tuple[str, str], float] = {}
    for share in shares:
        for part in share.parts:
            same = id(part.pieces)
            portion = (part.stop_group - part.first_group) / groups[same] if groups[same] else 1.0
            for producer, size in written[same].items():
                way = (producer, share.bundle.slot.name)
                traffic[way] = traffic.get(way, 0.0) + size * portion
    return {way: round(size) for way, size in traffic.items()}


def links_of(shares: Sequence[Share], bytes_per_row: Mapping[str, float]) -> dict[tuple[str, str], int]:
    """Bytes that should come over links, from the machine that wrote them to the slot that reads them. What several
    bundles of a machine read comes once, as a whole, for the first of them."""
    had: set[tuple[int, str]] = set()
    fetched = []
    for share in shares:
        machine = share.bundle.slot.machine
        own = [part for part in share.parts if part.pieces[0].spread not in SHARED]
        shared = {(id(part.pieces), machine): part for part in share.parts if part.pieces[0].spread in SHARED}
        first = [replace(part, first_group=0, stop_group=0) for key, part in shared.items() if key not in had]
        had |= shared.keys()
        fetched.append(replace(share, parts=(*own, *first)))
    links: dict[tuple[str, str], int] = {}
    for (producer, slot), size in traffic_of(fetched, bytes_per_row).items():
        sender = origin_of(producer)
        if sender not in (None, slot.rpartition("/")[0]):
            links[sender, slot] = links.get((sender, slot), 0) + size
    return links


def pieces_of(item: InputRange, start: int, stop: int) -> tuple[Piece, ...]:
    """The segments' rows from `start` to `stop`. They are in order and contiguous, so most need not be looked at."""
    found = []
    first = max(bisect_right(item.segments, start, key=lambda segment: segment.first_row) - 1, 0)
    for index in range(first, len(item.segments)):
        segment = item.segments[index]
        if segment.first_row >= stop:
            break
        low, high = max(start, segment.first_row), min(stop, segment.stop_row)
        if low < high:
            found.append(
                Piece(
                    segment.path,
                    low - segment.first_row,
                    high - segment.first_row,
                    item.spread,
                    segment.born_from,
                    segment.born_to,
                    segment.slot,
                )
            )
    return tuple(found)
