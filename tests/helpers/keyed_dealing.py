"""Numbered rows that are dealt by key: row n is of group n modulo the number of groups. Without Spark and segments."""

from __future__ import annotations

from collections.abc import Sequence

from dealing import Rows

from penstock.channels.records import Segment
from penstock.cluster.model import Slot
from penstock.engine.message.shares import Bundle, InputRange, Share, Spread, split
from penstock.engine.query.feeds import Batch
from penstock.engine.standing.batches import CutBatch

GROUPS = 12
A, B, C = (Bundle(Slot(name, 0), 1) for name in "abc")


def segment(start: int, stop: int, channel: str = "rows") -> Segment:
    return Segment(channel, f"{channel}/{start}", stop - start, 1, "a/0", 0.0, 0.0, start, "read", 0)


class KeyedRows(Rows):
    """A supply of them. Every batch has one row of each group, however many are asked for. Where `also` is given,
    another input comes with them, or in their place, which is spread like that."""

    def __init__(self, rows: int, also: Spread | None = None, *, by_key: bool = True) -> None:
        super().__init__(rows, any_bundle=False)
        self._also, self._by_key = also, by_key

    def cut(self, most: int, bundles: Sequence[Bundle]) -> CutBatch | None:
        self.begun.set()
        assert self.may_go_on.wait(5)
        start, stop = self.position, min(self.position + GROUPS, self.rows)
        if start == stop:
            return None
        self.position = stop
        inputs = []
        if self._by_key:
            inputs.append(InputRange([segment(start, stop)], start, stop, Spread.BY_KEY, GROUPS))
        if self._also is not None:
            inputs.append(InputRange([segment(start, stop, "also")], start, stop, self._also))
        return CutBatch(Batch({}, stop - start), tuple(split(inputs, bundles)), {"0": stop})


def rows_by_key(share: Share) -> list[int]:
    """The numbers of the rows by key that a bundle reads, in the order in which it does."""
    pieces = [piece for piece in share.pieces if piece.spread is Spread.BY_KEY]
    numbers = ((piece, int(piece.path.rpartition("/")[2])) for piece in pieces)
    return [
        row
        for piece, first in numbers
        for row in range(first + piece.start, first + piece.stop)
        if piece.first_group <= row % GROUPS < piece.stop_group
    ]


def groups_of(share: Share) -> list[int]:
    return sorted({row % GROUPS for row in rows_by_key(share)})
