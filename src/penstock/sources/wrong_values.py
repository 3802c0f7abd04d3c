"""A value of a file that is not what the schema says: which column it is of, what it should be, how that is written.

The readers' own words ("couldn't parse", "changed from string to number") name a type of Arrow's, and often no column.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.printable import printable
from penstock.schema import schema_text, type_text

#: As much of a value as is shown.
SHOWN = 100


def wrong_value(field: pa.Field, value: Any) -> str:
    """In the user's words: the value, the type that is declared, and how such a value is written."""
    shown = printable(json.dumps(value, ensure_ascii=False, default=str))
    shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."
    declared = schema_text(pa.schema([field]))
    return f'{shown} is no {type_text(field.type)}, but the schema says "{declared}"{_how_it_is_written(field.type)}'


def _how_it_is_written(type_: pa.DataType) -> str:
    if pa.types.is_timestamp(type_):
        zone = "Z, in UTC if it names no zone" if type_.tz else ", without a zone"
        example = f"a {type_text(type_)} is written like 2026-01-31T23:59:59.5{zone}"
    elif pa.types.is_date(type_):
        example = "a date is written like 2026-01-31"
    else:
        return ""
    return f" ({example}; declare another text as string, or a number as long, and convert it in an operator)"


class Suspects:
    """Finds the column to blame for a bad line of JSON. The one that was to blame last time is tried first: where a
    schema is wrong, it is the same column in every line."""

    def __init__(self, schema: pa.Schema, parses: Callable[[bytes, pa.Schema], Any]) -> None:
        self._fields = list(schema)
        self._parses = parses

    def explain(self, line: bytes, error: str) -> str:
        """What is wrong with the line; the given words if no single column is to blame."""
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            return error
        if not isinstance(values, dict):
            return error
        for index, field in enumerate(self._fields):
            if field.name in values and not self._is_good(line, field):
                self._fields.insert(0, self._fields.pop(index))
                return wrong_value(field, values[field.name])
        return error

    def _is_good(self, line: bytes, field: pa.Field) -> bool:
        try:
            self._parses(line, pa.schema([field.with_nullable(True)]))
        except pa.ArrowInvalid:
            return False
        return True
