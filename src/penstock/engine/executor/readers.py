"""How a bundle reads its share, on the executor: from channels, or the ranges of a source."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.channels.key_hashes import Key, without_hashes
from penstock.channels.keys import drop_groups, rows_of_groups
from penstock.channels.segments import SegmentStore
from penstock.engine.executor.fetching import FetchedRows
from penstock.engine.executor.task_rows import rows_of_task
from penstock.engine.message.program import Portion
from penstock.engine.message.shares import Descriptor, Piece, Spread, cuts, runs
from penstock.kinds import BadRow, SourceKind
from penstock.monitor.read_counts import ReadCounts


@dataclass(frozen=True)
class ChannelReader:
    """Pieces of segments. Shuffled rows are cut into equal parts, one an instance; groups of keys stay whole."""

    store: SegmentStore
    #: What the rows of all inputs are; None: as they lie in the segments. Inputs may differ in what may be null, and
    #: batches of two schemas could not be joined, nor be given to Spark one after the other.
    schema: pa.Schema | None = None
    #: Of a keyed operator that reads by task: its key and how many tasks it has.
    key: Key = ()
    tasks: int = 0

    def read(
        self, descriptor: Descriptor, bad_rows: Sequence[BadRow] | None, counts: ReadCounts | None = None
    ) -> Sequence[Iterator[Portion]]:
        count = descriptor.instances
        shuffled = [piece for piece in descriptor.pieces if piece.spread is Spread.SHUFFLE]
        others = [piece for piece in descriptor.pieces if piece.spread is not Spread.SHUFFLE]
        ranges = cuts(sum(piece.stop - piece.start for piece in shuffled), [1] * count)
        fetched = FetchedRows(self.store, descriptor.pieces, counts)
        return [
            itertools.chain(
                self._shuffled(fetched, shuffled, *ranges[index]), self._others(fetched, others, index, count)
            )
            for index in range(count)
        ]

    def rows(self, descriptor: Descriptor) -> Iterator[pa.RecordBatch]:
        """All rows of the pieces in one go, for Spark SQL; columns that only channels need are dropped."""
        fetched = FetchedRows(self.store, descriptor.pieces)
        if descriptor.pieces and descriptor.pieces[0].spread is Spread.BY_TASK:
            yield from self._of_task(fetched, descriptor.pieces)
            return
        for piece in descriptor.pieces:
            for batch in fetched.of(piece, piece.start, piece.stop):
                if piece.spread is not Spread.BY_KEY:
                    yield self._in_schema(batch)
                elif piece.stop_group > piece.first_group:
                    yield self._in_schema(rows_of_groups(batch, piece.first_group, piece.stop_group))
                else:
                    yield self._in_schema(drop_groups(batch))

    def _of_task(self, fetched: FetchedRows, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
        """The rows of one task of a keyed operator. All inputs of one DataFrame are split in the same way."""
        read = (batch for piece in pieces for batch in fetched.of(piece, piece.start, piece.stop))
        for mine in rows_of_task(pieces, map(self._with_nulls, read), self.key, self.tasks):
            yield self._in_schema(mine)

    def _with_nulls(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with what the schema says about nulls, so that batches of several inputs can be joined. Columns
        behind those of the schema are hashes, and stay."""
        if self.schema is None or without_hashes(batch).schema.equals(self.schema):
            return batch
        hashes = list(batch.schema)[len(self.schema) :]
        return batch.cast(pa.schema([*self.schema, *hashes]))

    def born(self, descriptor: Descriptor) -> tuple[float, float]:
        pieces = descriptor.pieces
        return min(piece.born_from for piece in pieces), max(piece.born_to for piece in pieces)

    def _shuffled(self, fetched: FetchedRows, pieces: Sequence[Piece], start: int, stop: int) -> Iterator[Portion]:
        """Rows [start, stop) of the pieces, counted over all of them."""
        seen = 0
        for piece in pieces:
            rows = piece.stop - piece.start
            low, high = max(start - seen, 0), min(stop - seen, rows)
            seen += rows
            if low < high:
                for batch in fetched.of(piece, piece.start + low, piece.start + high):
                    yield piece, self._in_schema(batch)

    def _others(self, fetched: FetchedRows, pieces: Sequence[Piece], index: int, count: int) -> Iterator[Portion]:
        for piece in pieces:
            if piece.spread is Spread.BROADCAST:
                for batch in fetched.of(piece, piece.start, piece.stop):
                    yield piece, self._in_schema(batch)
                continue
            low, high = cuts(piece.stop_group - piece.first_group, [1] * count)[index]
            for batch in fetched.of(piece, piece.start, piece.stop):
                mine = rows_of_groups(batch, piece.first_group + low, piece.first_group + high)
                if mine.num_rows:
                    yield piece, self._in_schema(mine)

    def _in_schema(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        batch = without_hashes(batch)
        # Every value may stay as it is: only what the schema says about nulls changes.
        return batch if self.schema is None or batch.schema.equals(self.schema) else batch.cast(self.schema)


@dataclass(frozen=True)
class SourceReader:
    """Ranges of a source, dealt to the instances in their order: the source's kind says how a range is read."""

    source: SourceKind

    @property
    def reading_is_work(self) -> bool:
        return self.source.reading_is_work

    def read(
        self, descriptor: Descriptor, bad_rows: Sequence[BadRow] | None, counts: ReadCounts | None = None
    ) -> Sequence[Iterator[Portion]]:
        #: Each in the kind's own words, and its size.
        ranges: list[tuple[Any, int]] = (descriptor.load or {})["ranges"]
        parts = runs([size for _, size in ranges], [1] * descriptor.instances)
        refuse: Sequence[BadRow | None] = bad_rows or [None] * len(parts)
        return [
            self._rows([ranges[index][0] for index in part], bad_row)
            for part, bad_row in zip(parts, refuse, strict=True)
        ]

    def born(self, descriptor: Descriptor) -> tuple[float, float]:
        born_from, born_to = (descriptor.load or {})["born"]
        return born_from, born_to

    def _rows(self, loads: Sequence[Any], bad_row: BadRow | None) -> Iterator[Portion]:
        #: What handing over a bad row has raised: it may have rows written, and a full disk is no fault of the source.
        #: A kind that takes it for one is not believed.
        failed: list[Exception] = []

        def hand_over(row: str, why: str) -> None:
            try:
                if bad_row is not None and not failed:
                    bad_row(row, why)
            except Exception as error:
                failed.append(error)
                raise

        for load in loads:
            for batch in self.source.read(load, None if bad_row is None else hand_over):
                if failed:
                    break
                yield None, batch
            if failed:
                raise failed[0]
