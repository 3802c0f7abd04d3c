"""CSV: columns by name where there is a header, else by position.

Values are read as text first and converted after, so that a row with a bad value can be told from its neighbours
without reading the file again, and line breaks within quotes never matter.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from penstock.sources import losses
from penstock.sources.bad_rows import BadRows, in_schema, keep_good, together
from penstock.sources.file_bytes import BLOCK_BYTES, WHOLE, FileBytes, Part
from penstock.sources.mistakes import bad_source
from penstock.sources.wrong_values import wrong_value

#: A moment that ends in its zone; the time of day must be there, or the day of the month would look like an offset.
_ZONED = r"\d[T ]\d.*(Z|[+-]\d\d(:?\d\d)?)$"
#: The last value of a row that Penstock puts behind each file. Within a quote that is never closed, it is part of the
#: row before.
_END = b"\x04penstock"
_NOT_CLOSED = "a quote is not closed before the end of the file"


@dataclass(frozen=True)
class CsvOptions:
    """How a CSV file is written: whether its first line names the columns, and what stands between two values."""

    header: bool = True
    separator: str = ","


@dataclass(frozen=True)
class CsvFile:
    """One file, or a part of it. Its records are numbered from 1, the header included, blank lines not."""

    file: FileBytes
    schema: pa.Schema
    options: CsvOptions
    bad: BadRows
    part: Part = WHOLE

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def _begins_with_header(self) -> bool:
        return self.options.header and self.part.start == 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """A batch for every few megabytes of text. An empty value is null, except in a string column."""
        names = self._names()
        if not names:
            return  # An empty file, without even a header.
        malformed: list[pv.InvalidRow] = []
        # Arrow takes the header for a row, and need not decode it: names of other columns may be in another encoding.
        header, record = self._begins_with_header, 1
        end = self._end(names)
        for text in self._text(names, malformed):
            self._report(malformed, end)
            rows = self._without_end(text, end, record)
            if rows.num_rows and header:
                rows, header = rows.slice(1), False
                record += 1
            yield from together(self._good_rows(names, rows, record))
            record += rows.num_rows
        self._report(malformed, end)

    def _names(self) -> list[str]:
        if not self.options.header:
            return list(self.schema.names)
        try:
            names = next((fields for _, fields in self._records(WHOLE)), [])
        except csv.Error as error:
            raise bad_source(
                f'the header of "{self.path}" cannot be read: {error}.',
                "Correct the file (a quote may not be closed), or the format of the source if the file is no CSV.",
            ) from None
        # "\ufffd" stands for what is not UTF-8.
        missing = [name for name in self.schema.names if name not in names and not name.isascii()]
        if missing and any("\ufffd" in name for name in names):
            raise bad_source(
                f'the header of "{self.path}" is not UTF-8, so the column {", ".join(missing)} is not found in it.',
                "Write the file in UTF-8.",
            )
        if names and not set(names) & set(self.schema.names):
            raise bad_source(
                f'"{self.path}" has none of the columns {", ".join(self.schema.names)}, but {", ".join(names)}.',
                "Use the names of the file's header, or header=False if it has none.",
            )
        return names

    def _text(self, names: list[str], malformed: list[pv.InvalidRow]) -> Iterator[pa.RecordBatch]:
        """The values as they are written; rows with too few or too many of them are set aside."""

        def set_aside(row: pv.InvalidRow) -> str:
            malformed.append(row)
            return "skip"

        try:
            with self.file.stream(self.part) as stream:
                yield from pv.open_csv(
                    pa.PythonFile(_Followed(stream, self._end(names)), mode="r"),
                    pv.ReadOptions(
                        use_threads=False,
                        block_size=BLOCK_BYTES,
                        column_names=names,
                    ),
                    pv.ParseOptions(
                        delimiter=self.options.separator, newlines_in_values=True, invalid_row_handler=set_aside
                    ),
                    # Not strings: one value that is not UTF-8 would fail the whole block.
                    pv.ConvertOptions(column_types=dict.fromkeys(names, pa.binary()), null_values=[]),
                )
        except pa.ArrowInvalid as error:
            hint = " (a quote may not be closed)" if "straddling" in str(error) else ""
            raise bad_source(
                f'"{self.path}" cannot be read as CSV: {error}{hint}.',
                "Correct the file, or the format of the source if the file is no CSV.",
            ) from None

    def _end(self, names: list[str]) -> bytes:
        """What comes behind the file: a row of its own, unless a quote is open there."""
        return b"\n" + self.options.separator.encode() * (len(names) - 1) + _END

    def _without_end(self, text: pa.RecordBatch, end: bytes, first_record: int) -> pa.RecordBatch:
        """The rows of the file; the last one is bad if it reaches over the end."""
        last = text.num_rows - 1
        if last < 0 or not text.columns[-1][last].as_py().endswith(_END):
            return text
        *before, value = [column[last].as_py() for column in text.columns]
        if value.endswith(end):
            row = self._written([one.decode("utf-8", "replace") for one in (*before, value.removesuffix(end))])
            self.bad.report(row, _NOT_CLOSED, lambda: self._place(first_record + last))
        elif value != _END or any(before):
            return text
        return text.slice(0, last)

    def _good_rows(self, names: list[str], text: pa.RecordBatch, first_record: int) -> Iterator[pa.RecordBatch]:
        columns = [text.column(names.index(name)) if name in names else None for name in self.schema.names]

        def convert(first: int, count: int) -> pa.RecordBatch:
            converted = [
                pa.nulls(count, field.type) if column is None else _converted(column.slice(first, count), field)
                for field, column in zip(self.schema, columns, strict=True)
            ]
            return in_schema(converted, self.schema)

        def report(index: int, error: str) -> None:
            values = [column[index].as_py().decode("utf-8", "replace") for column in text.columns]
            self.bad.report(self._written(values), error, lambda: self._place(first_record + index))

        return keep_good(convert, 0, text.num_rows, report)

    def _report(self, malformed: list[pv.InvalidRow], end: bytes) -> None:
        for row in malformed:
            number, text = row.number, row.text.removesuffix(end.decode())
            closed = f"{row.actual_columns} values for {row.expected_columns} columns"
            error = closed if text == row.text else _NOT_CLOSED
            self.bad.report(text, error, lambda number=number: self._place(number))  # type: ignore[misc]
        malformed.clear()

    def _written(self, values: list[str]) -> str:
        line = io.StringIO()
        csv.writer(line, delimiter=self.options.separator).writerow(values)
        return line.getvalue().removesuffix("\r\n")

    def _place(self, record: int) -> str:
        """Where the user's editor shows the record. Arrow counts records only, so the file is gone through again;
        that happens once, when it fails."""
        try:
            records = enumerate(self._records(self.part), 1)
            return next(f"line {line}" for number, (line, _) in records if number == record)
        except (csv.Error, StopIteration):
            return f"row {record}"

    def _records(self, part: Part) -> Iterator[tuple[int, list[str]]]:
        """The records as Python reads them, each with the line of the file that it starts on."""
        before = self.file.lines_before(part) if part.start else 0
        with self.file.stream(part) as stream:
            reader = csv.reader(
                io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline=""),
                delimiter=self.options.separator,
            )
            line = before + 1
            for fields in reader:
                if fields:
                    yield line, fields
                line = before + reader.line_num + 1


class _Followed(io.RawIOBase):
    """The bytes of a stream, and then some more. Reads are full, also where the two meet: Arrow takes a short block in
    which no row ends for a row that is too long."""

    def __init__(self, stream: pa.NativeFile, more: bytes) -> None:
        super().__init__()
        self._stream = stream
        self._more = more

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(None if size < 0 else size)
        while 0 < len(data) < size and (rest := self._stream.read(size - len(data))):
            data += rest
        if len(data) == size:
            return data
        room = len(self._more) if size < 0 else size - len(data)
        data, self._more = data + self._more[:room], self._more[room:]
        return data


def _converted(values: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return _from_text(values, field.type)
    except pa.ArrowInvalid:
        if len(values) > 1 or pa.types.is_string(field.type):  # text can only be wrong in its encoding
            raise
        raise pa.ArrowInvalid(wrong_value(field, values[0].as_py().decode("utf-8", "replace"))) from None


def _from_text(values: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_binary(type_):
        return values
    text = values.cast(pa.string())
    if pa.types.is_string(type_):
        return text
    text = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return _moments(text, type_)
    return losses.cast(text, type_)


def _moments(text: pa.Array, type_: pa.DataType) -> pa.Array:
    """Timestamps with their zone, or in UTC without one, as pyarrow reads them in JSON."""
    zoned = pc.match_substring_regex(text, _ZONED)
    nothing = pa.scalar(None, pa.string())
    local = pc.if_else(zoned, nothing, text).cast(pa.timestamp(type_.unit))
    return pc.coalesce(pc.if_else(zoned, text, nothing).cast(type_), pc.assume_timezone(local, "UTC").cast(type_))
