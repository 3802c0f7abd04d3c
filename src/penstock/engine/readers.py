"""How a bundle reads its share, on the executor: from channels, from a rate source, from files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.channels.keys import drop_groups, rows_of_groups
from penstock.channels.segments import MAX_BATCH_ROWS, SegmentStore, open_filesystem
from penstock.engine.program import BadRow, Portion
from penstock.engine.splitting import Descriptor, Piece, Spread, cuts, runs
from penstock.errors import PenstockError
from penstock.sources.content import Content
from penstock.sources.file_bytes import Part
from penstock.sources.mistakes import bad_source
from penstock.sources.reading import read_rows
from penstock.sources.specs import FileSource

#: Rows of a rate source are made in batches of this many.
RATE_BATCH_ROWS = MAX_BATCH_ROWS


@dataclass(frozen=True)
class ChannelReader:
    """Pieces of segments. Shuffled rows are cut into equal parts, one an instance; groups of keys stay whole."""

    store: SegmentStore
    #: What the rows of all inputs are; None: as they lie in the segments. Inputs may differ in what may be null, and
    #: batches of two schemas could not be joined, nor be given to Spark one after the other.
    schema: pa.Schema | None = None

    def read(self, descriptor: Descriptor, bad_rows: Sequence[BadRow] | None) -> Sequence[Iterator[Portion]]:
        count = descriptor.instances
        shuffled = [piece for piece in descriptor.pieces if piece.spread is Spread.SHUFFLE]
        others = [piece for piece in descriptor.pieces if piece.spread is not Spread.SHUFFLE]
        ranges = cuts(sum(piece.stop - piece.start for piece in shuffled), [1] * count)
        return [
            itertools.chain(self._shuffled(shuffled, *ranges[index]), self._others(others, index, count))
            for index in range(count)
        ]

    def rows(self, descriptor: Descriptor) -> Iterator[pa.RecordBatch]:
        """All rows of the pieces in one go, for Spark SQL; columns that only channels need are dropped."""
        for piece in descriptor.pieces:
            for batch in self.store.read(piece.path, piece.start, piece.stop):
                if piece.spread is not Spread.BY_KEY:
                    yield self._in_schema(batch)
                elif piece.stop_group > piece.first_group:
                    yield self._in_schema(rows_of_groups(batch, piece.first_group, piece.stop_group))
                else:
                    yield self._in_schema(drop_groups(batch))

    def born(self, descriptor: Descriptor) -> tuple[float, float]:
        pieces = descriptor.pieces
        return min(piece.born_from for piece in pieces), max(piece.born_to for piece in pieces)

    def _shuffled(self, pieces: Sequence[Piece], start: int, stop: int) -> Iterator[Portion]:
        """Rows [start, stop) of the pieces, counted over all of them."""
        seen = 0
        for piece in pieces:
            rows = piece.stop - piece.start
            low, high = max(start - seen, 0), min(stop - seen, rows)
            seen += rows
            if low < high:
                for batch in self.store.read(piece.path, piece.start + low, piece.start + high):
                    yield piece, self._in_schema(batch)

    def _others(self, pieces: Sequence[Piece], index: int, count: int) -> Iterator[Portion]:
        for piece in pieces:
            if piece.spread is Spread.BROADCAST:
                for batch in self.store.read(piece.path, piece.start, piece.stop):
                    yield piece, self._in_schema(batch)
                continue
            low, high = cuts(piece.stop_group - piece.first_group, [1] * count)[index]
            for batch in self.store.read(piece.path, piece.start, piece.stop):
                mine = rows_of_groups(batch, piece.first_group + low, piece.first_group + high)
                if mine.num_rows:
                    yield piece, self._in_schema(mine)

    def _in_schema(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        # Every value may stay as it is: only what the schema says about nulls changes.
        return batch if self.schema is None or batch.schema.equals(self.schema) else batch.cast(self.schema)


@dataclass(frozen=True)
class RateReader:
    """Rows [first, first + count) of a rate source's content, made here and now."""

    content: Content

    def read(self, descriptor: Descriptor, bad_rows: Sequence[BadRow] | None) -> Sequence[Iterator[Portion]]:
        load = descriptor.load or {}
        ranges = cuts(load["count"], [1] * descriptor.instances)
        return [self._rows(load["first"] + low, load["first"] + high) for low, high in ranges]

    def born(self, descriptor: Descriptor) -> tuple[float, float]:
        load = descriptor.load or {}
        return load["born_from"], load["born_to"]

    def _rows(self, first: int, stop: int) -> Iterator[Portion]:
        for start in range(first, stop, RATE_BATCH_ROWS):
            yield None, self.content.rows(start, min(RATE_BATCH_ROWS, stop - start))


@dataclass(frozen=True)
class FileReader:
    """Files and parts of files, dealt to the instances."""

    spec: FileSource

    def read(self, descriptor: Descriptor, bad_rows: Sequence[BadRow] | None) -> Sequence[Iterator[Portion]]:
        #: Path, bytes, and from where to where.
        files: list[tuple[str, int, int, int | None]] = (descriptor.load or {})["files"]
        parts = runs([size for _, size, _, _ in files], [1] * descriptor.instances)
        refuse: Sequence[BadRow | None] = bad_rows or [None] * len(parts)
        return [
            self._rows([(files[index][0], Part(*files[index][2:])) for index in part], bad_row)
            for part, bad_row in zip(parts, refuse, strict=True)
        ]

    def born(self, descriptor: Descriptor) -> tuple[float, float]:
        born_from, born_to = (descriptor.load or {})["born"]
        return born_from, born_to

    def _rows(self, files: Sequence[tuple[str, Part]], bad_row: BadRow | None) -> Iterator[Portion]:
        spec = self.spec
        filesystem, _ = open_filesystem(spec.path)
        #: What handing over a bad row has raised: it may have rows written, and a full disk is no fault of the file.
        failed: list[Exception] = []

        def hand_over(row: str, why: str) -> None:
            try:
                if bad_row is not None:
                    bad_row(row, why)
            except Exception as error:
                failed.append(error)
                raise

        refuse = None if bad_row is None else hand_over
        for path, part in files:
            try:
                for batch in read_rows(filesystem, path, spec.format, spec.schema, spec.options, refuse, part):
                    yield None, batch
            except (OSError, pa.ArrowException, PenstockError) as error:
                if failed or _may_pass(error):
                    raise  # so that Spark tries again; nothing of this attempt is kept
                why = error.message if isinstance(error, PenstockError) else str(error)
                if bad_row is not None:
                    # As one row, so that others go on.
                    bad_row(path, f"the file cannot be read (further{_within(part)}): {why}")
                elif isinstance(error, PenstockError):
                    raise
                else:
                    raise bad_source(
                        f'"{path}" cannot be read: {why}.',
                        'Restore the file, or declare the source with on_error="skip" or "dead_letter".',
                    ) from error


def _may_pass(error: Exception) -> bool:
    """Whether this tells of the computer or the network, and not of what is in the file."""
    unreadable = isinstance(error, PenstockError) and error.name == "FILE_UNREADABLE"
    return unreadable or isinstance(error, MemoryError | pa.ArrowCancelled)


def _within(part: Part) -> str:
    """Parts behind this one are read nevertheless."""
    return "" if part.stop is None else f", up to {part.stop}"
