"""One file's rows, in exactly the declared schema. It runs on the executors: pyarrow reads the file."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import fs as pafs

from penstock.errors import PenstockError
from penstock.sources.bad_rows import BadRows, OnBadRow
from penstock.sources.csv_rows import CsvFile, CsvOptions
from penstock.sources.file_bytes import WHOLE, FileBytes, Part
from penstock.sources.json_lines import read_json_lines
from penstock.sources.mistakes import bad_source
from penstock.sources.parquet_rows import read_parquet_rows

FORMATS = ("json", "csv", "parquet")


def read_rows(
    fs: pafs.FileSystem,
    path: str,
    format: str,
    schema: pa.Schema,
    options: CsvOptions | None,
    on_bad_row: OnBadRow | None,
    part: Part = WHOLE,
) -> Iterator[pa.RecordBatch]:
    """Batches of the good rows, in the file's order; none is empty. A bad row goes to `on_bad_row(row, error)`, and
    without that raises BAD_ROW with its file and line. `options` are for CSV. Compressed text (.gz, .bz2, ...) is
    decompressed by the file's name. Bytes that could not be fetched raise FILE_UNREADABLE; any other OSError is about
    what is in the file."""
    file = FileBytes(fs, path)
    try:
        yield from _rows_of(file, format, schema, options or CsvOptions(), BadRows(path, on_bad_row), part)
    except (OSError, pa.ArrowException, PenstockError) as error:
        if file.failure is not None:
            raise file.unreadable() from error
        raise


def _rows_of(
    file: FileBytes, format: str, schema: pa.Schema, options: CsvOptions, bad: BadRows, part: Part
) -> Iterator[pa.RecordBatch]:
    if format == "json":
        return read_json_lines(file, schema, bad, part)
    if format == "csv":
        return CsvFile(file, schema, options, bad, part).batches()
    if format == "parquet":
        return read_parquet_rows(file, schema, bad, part)
    raise unknown_format(format)


def check_types(format: str, schema: pa.Schema) -> None:
    """A type that a format has no way to write is a mistake of the declaration, not of every row."""
    for field in schema:
        if not _is_readable(format, field.type):
            raise bad_source(
                f'the column "{field.name}" is {field.type}, which a {format} file cannot hold.',
                "Read it as a string and convert it in an operator, or use another format.",
            )


def unknown_format(format: str) -> PenstockError:
    return bad_source(f'there is no file format "{format}".', f"Use one of: {', '.join(FORMATS)}.")


def _is_readable(format: str, type_: pa.DataType) -> bool:
    if format == "parquet":
        return True
    if format == "csv":
        return not pa.types.is_nested(type_)
    if pa.types.is_list(type_):
        return _is_readable(format, type_.value_type)
    if pa.types.is_struct(type_):
        return all(_is_readable(format, part.type) for part in type_)
    return not pa.types.is_map(type_)
