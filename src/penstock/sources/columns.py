"""Random values for any schema: what a source gives when only the types matter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.errors import Location
from penstock.schema import Schema, parse_schema, schema_text, type_text
from penstock.sources.counter import Draws, below, draws, places, unit
from penstock.sources.mistakes import bad_source

#: Dates and timestamps lie within this many days after 1970.
DAYS = 36_525
LONGEST_LIST = 3
_DAY_IN_SECONDS = 86_400
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


@dataclass(frozen=True)
class RandomColumns:
    """Every column at random, over the whole range of its type where that makes sense; no nulls."""

    schema: pa.Schema
    seed: int

    def rows(self, first: int, count: int) -> pa.RecordBatch:
        at = places(first, count)
        arrays = [_array(field.type, draws(self.seed, lane, at)) for lane, field in enumerate(self.schema)]
        return pa.record_batch(arrays, schema=self.schema)

    def describe(self) -> Mapping[str, Any]:
        return {"content": "columns", "schema": schema_text(self.schema), "seed": self.seed}


def columns(schema: Schema, seed: int = 0) -> RandomColumns:
    """Rows of this schema, with random values in every column."""
    content = RandomColumns(parse_schema(schema, Location.of_caller()), seed)
    content.rows(0, 1)  # A type that cannot be made should show here, not on an executor.
    return content


def _array(type_: pa.DataType, bits: Draws) -> pa.Array:
    """One value for each 64 random bits."""
    for is_type, make in _MAKERS:
        if is_type(type_):
            return make(type_, bits)
    raise bad_source(
        f"there are no random values of type {type_text(type_)}.", "Make the rows yourself, with sources.generated."
    )


def _booleans(_: pa.DataType, bits: Draws) -> pa.Array:
    return pa.array((bits & np.uint64(1)).astype(np.bool_))


def _integers(type_: pa.DataType, bits: Draws) -> pa.Array:
    return pa.array((bits >> np.uint64(64 - type_.bit_width)).astype(type_.to_pandas_dtype()))


def _floats(type_: pa.DataType, bits: Draws) -> pa.Array:
    return pa.array(unit(bits)).cast(type_, safe=False)


def _strings(type_: pa.DataType, bits: Draws) -> pa.Array:
    """Sixteen hexadecimal digits."""
    octets = _octets(bits)
    digits = np.stack([octets >> 4, octets & 15], axis=2).reshape(len(bits), 16)
    return _fixed_width(type_, _HEX[digits])


def _binaries(type_: pa.DataType, bits: Draws) -> pa.Array:
    return _fixed_width(type_, _octets(bits))


def _dates(type_: pa.DataType, bits: Draws) -> pa.Array:
    return pa.array(below(bits, DAYS).astype(np.int32)).cast(type_)


def _timestamps(type_: pa.DataType, bits: Draws) -> pa.Array:
    seconds = pa.array(below(bits, DAYS * _DAY_IN_SECONDS).astype(np.int64))
    return seconds.cast(pa.timestamp("s", type_.tz)).cast(type_)


def _decimals(type_: pa.DataType, bits: Draws) -> pa.Array:
    """At most nine digits: Arrow keeps a decimal as a whole number of 128 bits, of which we fill the lower half."""
    halves = np.zeros((len(bits), 2), dtype=np.uint64)
    halves[:, 0] = below(bits, 10 ** min(type_.precision, 9))
    return pa.Array.from_buffers(type_, len(bits), [None, pa.py_buffer(halves)])


def _structs(type_: pa.DataType, bits: Draws) -> pa.Array:
    parts = [_array(part.type, draws(0, lane, bits)) for lane, part in enumerate(type_)]
    return pa.StructArray.from_arrays(parts, fields=list(type_))


def _lists(type_: pa.DataType, bits: Draws) -> pa.Array:
    lengths = below(bits, LONGEST_LIST + 1).astype(np.int32)
    bounds = np.zeros(len(bits) + 1, dtype=np.int32)
    np.cumsum(lengths, out=bounds[1:])
    # An item's counter comes from its list's bits and its place in the list, never from its place in the batch.
    place = np.arange(bounds[-1], dtype=np.uint64) - np.repeat(bounds[:-1], lengths).astype(np.uint64)
    items = _array(type_.value_type, draws(0, 0, np.repeat(bits, lengths) + place))
    return pa.ListArray.from_arrays(pa.array(bounds), items, type=type_)


def _octets(bits: Draws) -> NDArray[np.uint8]:
    return bits.view(np.uint8).reshape(-1, 8)


def _fixed_width(type_: pa.DataType, octets: NDArray[np.uint8]) -> pa.Array:
    """A row of the matrix for each value: no Python object a value."""
    count, width = octets.shape
    bounds = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(octets))]
    return pa.Array.from_buffers(type_, count, buffers)


_MAKERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, Draws], pa.Array]], ...] = (
    (pa.types.is_boolean, _booleans),
    (pa.types.is_integer, _integers),
    (pa.types.is_floating, _floats),
    (pa.types.is_string, _strings),
    (pa.types.is_binary, _binaries),
    (pa.types.is_date32, _dates),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_decimal128, _decimals),
    (pa.types.is_struct, _structs),
    (pa.types.is_list, _lists),
)
