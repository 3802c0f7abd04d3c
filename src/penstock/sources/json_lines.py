"""JSON lines, one object a line: missing columns are null, other columns are ignored."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.json as pj

from penstock.sources import losses
from penstock.sources.bad_rows import BadRows, in_schema, keep_good, together
from penstock.sources.file_bytes import BLOCK_BYTES, BYTE_ORDER_MARK, FileBytes, Part
from penstock.sources.wrong_values import Suspects

_NULL_FIRST = re.compile(rb"\s*null")
_NULL_AFTER_OBJECT = re.compile(rb"\}\s*null")
#: The end of one object and the beginning of the next: side by side on a line, and with line ends between them.
_SIDE_BY_SIDE = re.compile(rb"\}[ \t\r]*\{")
_ONE_AFTER_ANOTHER = re.compile(rb"\}\s*\{")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')


def read_json_lines(file: FileBytes, schema: pa.Schema, bad: BadRows, part: Part) -> Iterator[pa.RecordBatch]:
    """A batch for every few megabytes of lines."""
    line = 1

    def place(number: int) -> str:
        return f"line {number + (file.lines_before(part) if part.start else 0)}"

    for block in _blocks(file, part):
        batch = _parse_if_clean(block, schema)
        if batch is not None:
            yield batch
        else:
            yield from together(_keep_good_lines(block, schema, line, bad, place))
        line += block.count(b"\n")


def _blocks(file: FileBytes, part: Part) -> Iterator[bytes]:
    """The text in pieces that end where a line ends."""
    rest = b""
    with file.stream(part) as stream:
        start = stream.read(BLOCK_BYTES)
        if part.start == 0:
            start = start.removeprefix(BYTE_ORDER_MARK)
        while start:
            lines, newline, tail = start.rpartition(b"\n")
            if newline:
                yield rest + lines + newline
                rest = tail
            else:
                rest += tail
            start = stream.read(BLOCK_BYTES)
    if rest:
        yield rest


def _parse_if_clean(block: bytes, schema: pa.Schema) -> pa.RecordBatch | None:
    """The whole block at once, or None when any line of it needs a closer look."""
    if _may_hold_null_object(block):
        return None
    try:
        batch = _parse(block, schema)
    except pa.ArrowInvalid:
        return None
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    # As many objects as lines, and no two of them on one line: an object on each.
    return batch if batch.num_rows == lines and not _holds(_SIDE_BY_SIDE, block) else None


def parse_lines(lines: list[bytes], schema: pa.Schema) -> pa.RecordBatch:
    """One row for each line; ArrowInvalid if any of them is no object of this schema."""
    _check_objects(lines)
    block = b"\n".join(lines)
    batch = _parse(block, schema)
    if batch.num_rows != len(lines) or (len(lines) > 1 and _share_a_line(lines, block)):
        raise pa.ArrowInvalid("a line must hold one JSON object")
    return batch


def _share_a_line(lines: list[bytes], block: bytes) -> bool:
    """Whether one of the lines has an object's end and another one's beginning. Kafka's messages are lines that may
    have line ends within."""
    if block.count(b"\n") == len(lines) - 1:
        return _holds(_SIDE_BY_SIDE, block)
    return any(_holds(_ONE_AFTER_ANOTHER, line) for line in lines)


def _holds(pattern: re.Pattern[bytes], text: bytes) -> bool:
    """Whether JSON that was parsed has the pattern outside of its strings. To leave these out takes longer than the
    search, so it is done only where there is something to find, and only for the lines that it is on: no string of JSON
    has a line end."""
    found = pattern.search(text)
    while found:
        begin, end = text.rfind(b"\n", 0, found.start()) + 1, text.find(b"\n", found.end())
        end = len(text) if end < 0 else end
        if pattern.search(_STRING.sub(b'""', text[begin:end])):
            return True
        found = pattern.search(text, end)
    return False


def suspects_of(schema: pa.Schema) -> Suspects:
    """Finds the column to blame for a bad line."""
    return Suspects(schema, _parse)


def _keep_good_lines(
    block: bytes, schema: pa.Schema, first_line: int, bad: BadRows, place: Callable[[int], str]
) -> Iterator[pa.RecordBatch]:
    suspects = suspects_of(schema)
    numbered = [(first_line + index, line) for index, line in enumerate(block.split(b"\n")) if line.strip()]

    def convert(first: int, count: int) -> pa.RecordBatch:
        return parse_lines([line for _, line in numbered[first : first + count]], schema)

    def report(index: int, error: str) -> None:
        number, line = numbered[index]
        why = suspects.explain(line, error)
        bad.report(line.decode("utf-8", "replace").rstrip("\r"), why, lambda: place(number))

    return keep_good(convert, 0, len(numbered), report)


def _may_hold_null_object(block: bytes) -> bool:
    """Whether there may be a null in place of an object. pyarrow's reader takes it for a row of nulls, or crashes the
    process when it comes first, so it must never get to see one. The same letters within a string look alike."""
    # The first test is ten times as fast as the others, and most often enough.
    return b"null" in block and bool(_NULL_FIRST.match(block) or _NULL_AFTER_OBJECT.search(block))


def _check_objects(lines: list[bytes]) -> None:
    """Raises when pyarrow could meet a null in place of an object. Several lines are not looked at closely: they are
    halved until the suspect stands alone, and then Python's own reader tells a null from the letters in a string."""
    if not _may_hold_null_object(b"\n".join(lines)):
        return
    try:
        is_object = len(lines) == 1 and isinstance(json.loads(lines[0]), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise pa.ArrowInvalid("a line must hold one JSON object")


def _parse(block: bytes, schema: pa.Schema) -> pa.RecordBatch:
    columns = _columns(block, schema)
    if any(losses.has_infinity(column) for column in columns):
        # For pyarrow.json, a number beyond the largest float is infinite, but one beyond the largest double a mistake.
        wide = pa.schema([pa.field(field.name, _with_doubles(field.type)) for field in schema])
        for before, after in zip(_columns(block, wide), columns, strict=True):
            losses.check(before, after)
    return in_schema(columns, schema)


def _columns(block: bytes, schema: pa.Schema) -> list[pa.Array]:
    table = pj.read_json(
        pa.BufferReader(block),
        # One thread and one block: the executor's cores are shared out already, and rows keep their order.
        pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
        pj.ParseOptions(explicit_schema=_as_written(schema), unexpected_field_behavior="ignore"),
    )
    table.validate(full=True)  # pyarrow.json lets text through that is not UTF-8.
    return [
        column.combine_chunks() if column.type.equals(field.type) else column.combine_chunks().cast(field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]


def _as_written(schema: pa.Schema) -> pa.Schema:
    """The schema to parse with. Dates are strings in JSON, and pyarrow.json would only take a number of days. It would
    also take a moment with a zone for a timestamp without one, and move it to UTC, which a cast refuses."""
    return pa.schema([pa.field(field.name, _type_as_written(field.type)) for field in schema])


def _type_as_written(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_date(type_) or (pa.types.is_timestamp(type_) and type_.tz is None):
        return pa.string()
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(part.name, _type_as_written(part.type)) for part in type_])
    if pa.types.is_list(type_):
        return pa.list_(_type_as_written(type_.value_type))
    return type_


def _with_doubles(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(type_):
        return pa.float64()
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(part.name, _with_doubles(part.type)) for part in type_])
    if pa.types.is_list(type_):
        return pa.list_(_with_doubles(type_.value_type))
    return type_
