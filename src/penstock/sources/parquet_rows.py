"""Parquet: columns by name, cast to the declared types where no value is lost; missing columns are null."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.row_text import row_text
from penstock.sources import losses
from penstock.sources.bad_rows import BadRows, in_schema, keep_good, together
from penstock.sources.file_bytes import FileBytes, Part
from penstock.sources.mistakes import bad_source

BATCH_ROWS = 65_536
BATCH_BYTES = 16 << 20
#: Pages are fetched in pieces of this size, and not whole columns of a row group.
FETCH_BYTES = 1 << 20


def read_parquet_rows(file: FileBytes, schema: pa.Schema, bad: BadRows, part: Part) -> Iterator[pa.RecordBatch]:
    """The rows, some of a row group at a time, so that only those are in memory."""
    with file.random_access() as opened:
        parquet = _open(opened, file.path)
        present = [name for name in schema.names if name in parquet.schema_arrow.names]
        _check_columns(parquet.schema_arrow, schema, present, file.path)
        groups = parquet.metadata.num_row_groups
        row = 1 + sum(parquet.metadata.row_group(group).num_rows for group in range(min(part.start, groups)))
        for group in range(part.start, groups if part.stop is None else min(part.stop, groups)):
            rows = _rows_at_once(parquet.metadata.row_group(group))
            for batch in parquet.iter_batches(rows, row_groups=[group], columns=present, use_threads=False):
                yield from together(_keep_good_rows(batch, schema, row, bad))
                row += batch.num_rows


def _rows_at_once(group: pq.RowGroupMetaData) -> int:
    """Fewer rows where they are large."""
    size = max(group.total_byte_size // max(group.num_rows, 1), 1)
    return int(max(1, min(BATCH_ROWS, BATCH_BYTES // size)))


def _open(file: pa.NativeFile, path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file, buffer_size=FETCH_BYTES)
    except pa.ArrowInvalid as error:
        raise bad_source(
            f'"{path}" cannot be read as Parquet: {error}.',
            "Restore the file, or correct the format of the source if the file is no Parquet.",
        ) from None


def _check_columns(found: pa.Schema, schema: pa.Schema, present: list[str], path: str) -> None:
    if not present:
        raise bad_source(
            f'"{path}" has none of the columns {", ".join(schema.names)}, but {", ".join(found.names)}.',
            "Use the names of the file's columns.",
        )
    for name in present:
        written, declared = found.field(name).type, schema.field(name).type
        if not _can_be_cast(written, declared):
            raise bad_source(
                f'the column "{name}" of "{path}" is {written}, which cannot be read as {declared}.',
                "Declare the type that the file has, and convert it in an operator.",
            )


def _can_be_cast(written: pa.DataType, declared: pa.DataType) -> bool:
    try:
        pa.nulls(0, written).cast(declared)
    except pa.ArrowNotImplementedError:
        return False
    return losses.fits(written, declared)


def _keep_good_rows(batch: pa.RecordBatch, schema: pa.Schema, first_row: int, bad: BadRows) -> Iterator[pa.RecordBatch]:
    def convert(first: int, count: int) -> pa.RecordBatch:
        part = batch.slice(first, count)
        columns = [
            losses.cast(part.column(field.name), field.type)
            if field.name in batch.schema.names
            else pa.nulls(count, field.type)
            for field in schema
        ]
        return in_schema(columns, schema)

    def report(index: int, error: str) -> None:
        bad.report(row_text(batch.slice(index, 1)), error, lambda: f"row {first_row + index}")

    return keep_good(convert, 0, batch.num_rows, report)
