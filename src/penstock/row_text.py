"""A bad row as text, whatever is in it: that Python cannot hold a value must not hide that the row is bad."""

from __future__ import annotations

import json

import pyarrow as pa

#: What Python's and Arrow's types raise for a value that they cannot hold or show.
_CANNOT = (ArithmeticError, LookupError, NotImplementedError, TypeError, ValueError, pa.ArrowException)


def row_text(row: pa.RecordBatch) -> str:
    """A batch of one row as a JSON object. If Python cannot hold a value, as a time after the year 9999, all values are
    there in Arrow's words."""
    try:
        return json.dumps(row.to_pylist()[0], default=str)
    except _CANNOT:
        return json.dumps({name: _in_arrows_words(row.column(index)) for index, name in enumerate(row.schema.names)})


def _in_arrows_words(column: pa.Array) -> str:
    try:
        text: str = column.to_string(skip_new_lines=True)
    except _CANNOT:  # such as UnicodeDecodeError
        return f"<{column.type}>"
    return text[1:-1].strip()
