"""What to do with the rows of a file that cannot be read: keep the good ones, hand over each bad one.

Whole blocks are converted at once, which is fast and says little about what went wrong. Only a block that fails is
halved until the bad rows stand alone: twice the logarithm of the block's size in conversions for one bad row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import PenstockError

#: Called with a bad row as text, and what is wrong with it.
OnBadRow = Callable[[str, str], None]
#: (first, count) -> these rows; raises ArrowInvalid when one of them is bad.
Convert = Callable[[int, int], pa.RecordBatch]


@dataclass(frozen=True)
class BadRows:
    """Where the bad rows of one file go: to the callback, or, without one, up as BAD_ROW."""

    path: str
    callback: OnBadRow | None

    def report(self, row: str, error: str, place: Callable[[], str]) -> None:
        """`place` says where in the file the row is, such as "line 7"; it is asked only when the file fails."""
        if self.callback is None:
            raise PenstockError(
                "BAD_ROW",
                f'{place()} of "{self.path}" cannot be read: {error.rstrip(".")}.',
                'Correct the row, or declare the source with on_error="skip" or "dead_letter".',
            )
        self.callback(row, error)


def keep_good(convert: Convert, first: int, count: int, bad: Callable[[int, str], None]) -> Iterator[pa.RecordBatch]:
    """The rows that convert, in order; `bad` gets the number of each that does not, and why."""
    if count == 0:
        return
    try:
        yield convert(first, count)
    except pa.ArrowInvalid as error:
        if count == 1:
            bad(first, str(error))
            return
        half = count // 2
        yield from keep_good(convert, first, half, bad)
        yield from keep_good(convert, first + half, count - half, bad)


def together(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One batch from what is left of a block, so that a few bad rows do not leave a trail of tiny batches."""
    left = [part for part in parts if part.num_rows]
    if left:
        yield left[0] if len(left) == 1 else pa.concat_batches(left)


def in_schema(columns: list[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """The columns as a batch of exactly this schema; a null where the schema allows none is a bad row."""
    for field, column in zip(schema, columns, strict=True):
        if not field.nullable and column.null_count:
            raise pa.ArrowInvalid(f'the column "{field.name}" must not be null')
    return pa.record_batch(columns, schema=schema)
