"""Parquet: columns by name, cast to the declared types where no value is lost; missing columns are null."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs as pafs

from penstock.sources.bad_rows import BadRows, in_schema, keep_good, together
from penstock.sources.mistakes import bad_source

BATCH_ROWS = 65_536


def read_parquet_rows(fs: pafs.FileSystem, path: str, schema: pa.Schema, bad: BadRows) -> Iterator[pa.RecordBatch]:
    """The rows, row group by row group, so that only one of them is in memory."""
    with fs.open_input_file(path) as file:
        parquet = _open(file, path)
        present = [name for name in schema.names if name in parquet.schema_arrow.names]
        _check_columns(parquet.schema_arrow, schema, present, path)
        row = 1
        for group in range(parquet.num_row_groups):
            for batch in parquet.iter_batches(BATCH_ROWS, row_groups=[group], columns=present, use_threads=False):
                yield from together(_keep_good_rows(batch, schema, row, bad))
                row += batch.num_rows


def _open(file: pa.NativeFile, path: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file)
    except pa.ArrowInvalid as error:
        raise bad_source(f'"{path}" cannot be read as Parquet: {error}.', "Is this the right format?") from None


def _check_columns(found: pa.Schema, schema: pa.Schema, present: list[str], path: str) -> None:
    if not present:
        raise bad_source(
            f'"{path}" has none of the columns {", ".join(schema.names)}, but {", ".join(found.names)}.',
            "Use the names of the file's columns.",
        )
    for name in present:
        written, declared = found.field(name).type, schema.field(name).type
        try:
            pa.nulls(0, written).cast(declared)
        except pa.ArrowNotImplementedError:
            raise bad_source(
                f'the column "{name}" of "{path}" is {written}, which cannot be read as {declared}.',
                "Declare the type that the file has, and convert it in an operator.",
            ) from None


def _keep_good_rows(batch: pa.RecordBatch, schema: pa.Schema, first_row: int, bad: BadRows) -> Iterator[pa.RecordBatch]:
    def convert(first: int, count: int) -> pa.RecordBatch:
        part = batch.slice(first, count)
        columns = [
            part.column(field.name).cast(field.type)
            if field.name in batch.schema.names
            else pa.nulls(count, field.type)
            for field in schema
        ]
        return in_schema(columns, schema)

    def report(index: int, error: str) -> None:
        (values,) = batch.slice(index, 1).to_pylist()
        bad.report(json.dumps(values, default=str), error, lambda: f"row {first_row + index}")

    return keep_good(convert, 0, batch.num_rows, report)
