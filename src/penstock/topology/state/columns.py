"""What a state holds, between the words of its user and what Spark's state store takes.

A state of one column holds plain values; a state of several columns holds dicts by column. Spark's store gets tuples.
Moments are whole numbers there, because PySpark 4.3 gives a timestamp back in the time zone of the executor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.schema import schema_text, type_text
from penstock.topology.state.values import scalar_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_0 = date(1970, 1, 1)
#: How a type is stored where it is not stored as it is.
_STORED = {pa.timestamp("us", "UTC"): pa.int64(), pa.timestamp("us"): pa.int64(), pa.date32(): pa.int32()}


def problem_of(schema: pa.Schema) -> str:
    """Why a state cannot have these columns; empty if it can."""
    for column in schema:
        if pa.types.is_nested(column.type) or pa.types.is_decimal(column.type):
            return f'its column "{column.name}" has the type {type_text(column.type)}'
    return ""


@dataclass(frozen=True)
class Columns:
    """The columns of one state, or of the keys of a map."""

    schema: pa.Schema
    #: Keys of a map must be hashable: those of several columns are tuples, and not dicts.
    keys: bool = False

    @cached_property
    def stored(self) -> pa.Schema:
        """The columns as Spark's state store has them."""
        return pa.schema([(column.name, _STORED.get(column.type, column.type)) for column in self.schema])

    @cached_property
    def _converters(self) -> list[Any]:
        return [_FROM_STORE.get(column.type) for column in self.schema]

    def pack(self, value: Any) -> tuple[Any, ...]:
        """A value of the user's as Spark's store takes it."""
        return tuple(self._stored(part, column) for part, column in zip(self._parts(value), self.schema, strict=True))

    def unpack(self, stored: Any) -> Any:
        """What Spark's store gave back, as the user set it."""
        parts = [
            part if part is None or convert is None else convert(part)
            for part, convert in zip(stored, self._converters, strict=True)
        ]
        if len(parts) == 1:
            return parts[0]
        return tuple(parts) if self.keys else dict(zip(self.schema.names, parts, strict=True))

    def _parts(self, value: Any) -> tuple[Any, ...]:
        names = self.schema.names
        if len(names) == 1:
            return (value,)
        if self.keys and isinstance(value, tuple) and len(value) == len(names):
            return value
        if not self.keys and isinstance(value, Mapping) and value.keys() <= set(names):
            return tuple(value.get(name) for name in names)
        raise self._wrong(value, f"{'a tuple' if self.keys else 'a dict'} with {', '.join(names)}")

    def _stored(self, part: Any, column: pa.Field) -> Any:
        if part is None:
            return None
        try:
            scalar = scalar_of(part, column.type)
        except ValueError:
            raise self._wrong(part, f"{column.name} {type_text(column.type)}") from None
        return scalar.value if column.type in _STORED else scalar.as_py()

    def _wrong(self, value: Any, wanted: str) -> PenstockError:
        return PenstockError(
            "BAD_STATE",
            f'a state of "{schema_text(self.schema)}" is given {value!r}, a {type(value).__name__}.',
            f"Give {wanted}.",
        )


def _moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _local_moment(micros: int) -> datetime:
    return _moment(micros).replace(tzinfo=None)


def _day(days: int) -> date:
    return _DAY_0 + timedelta(days=days)


_FROM_STORE: Mapping[pa.DataType, Any] = {
    pa.timestamp("us", "UTC"): _moment,
    pa.timestamp("us"): _local_moment,
    pa.date32(): _day,
    pa.binary(): bytes,  # Spark gives a bytearray
}
