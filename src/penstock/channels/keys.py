"""Splitting rows by key: which group a row belongs to, and batches that are sorted by group.

The group of a key must be the same in every process, on every machine and in every batch, since a task's state stays
where the rows of its groups went before. So the hash depends on nothing but the value: Python's own is salted, and
Arrow's is not promised to stay the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.topology.definition import GROUP_COLUMN

#: What `sort_by_group` adds: the last column of a segment that is split by key.
GROUP_FIELD = pa.field(GROUP_COLUMN, pa.uint16(), nullable=False)
MAX_GROUPS = 1 << 16

Hashes = NDArray[np.uint64]

#: Null is a key like any other; the number has no meaning.
_NULL = np.uint64(0x9E3779B97F4A7C15)
#: Makes the order of key columns matter: (a, b) is another key than (b, a).
_ORDER = np.uint64(0xD6E8FEB86659FD93)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def group_of_rows(batch: pa.RecordBatch, columns: Sequence[str], groups: int) -> NDArray[np.uint16]:
    """The group, 0 to groups - 1, of each row."""
    if not 1 <= groups <= MAX_GROUPS:
        raise ValueError(f"{groups} groups: there must be 1 to {MAX_GROUPS}")
    if not columns:
        raise ValueError("a split by key needs a key column")
    hashes: Hashes = np.zeros(batch.num_rows, np.uint64)
    for name in columns:
        hashes = _mix(hashes * _ORDER + _hash(_column(batch, name), name))
    return (hashes % np.uint64(groups)).astype(np.uint16)


def sort_by_group(batch: pa.RecordBatch, columns: Sequence[str], groups: int) -> pa.RecordBatch:
    """The rows sorted by group, those of one group in the order they had, and a last column with the group."""
    return in_group_order(batch.append_column(GROUP_FIELD, pa.array(group_of_rows(batch, columns, groups))))


def in_group_order(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with a group column, sorted by it: itself if it is so already.

    Two sorted batches that were joined are no longer sorted, so what joins batches must call this."""
    groups = _groups(batch)
    if np.all(groups[:-1] <= groups[1:]):
        return batch
    return batch.take(pa.array(np.argsort(groups, kind="stable")))


def rows_of_groups(batch: pa.RecordBatch, first_group: int, stop_group: int) -> pa.RecordBatch:
    """The rows of groups [first_group, stop_group) of a sorted batch, without the group column; nothing is copied."""
    return drop_groups(slice_of_groups(batch, first_group, stop_group))


def slice_of_groups(batch: pa.RecordBatch, first_group: int, stop_group: int) -> pa.RecordBatch:
    """The rows of groups [first_group, stop_group) of a sorted batch, with the group column."""
    groups = _groups(batch)
    start, stop = (
        len(groups) if group >= MAX_GROUPS else int(np.searchsorted(groups, np.uint16(group)))
        for group in (first_group, stop_group)
    )
    return batch.slice(start, max(stop - start, 0))


def drop_groups(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with a group column, without it."""
    _groups(batch)
    return batch.remove_column(batch.num_columns - 1)


def grouped_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of what `sort_by_group` returns."""
    return schema.append(GROUP_FIELD)


def is_grouped(schema: pa.Schema) -> bool:
    """Whether rows of this schema were split by key."""
    return bool(schema.names) and schema.field(len(schema) - 1).equals(GROUP_FIELD)


def _groups(batch: pa.RecordBatch) -> NDArray[np.uint16]:
    if not is_grouped(batch.schema):
        raise ValueError(f"the last column is not {GROUP_COLUMN}: the batch was not split by key")
    groups: NDArray[np.uint16] = batch.column(batch.num_columns - 1).to_numpy()
    return groups


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    index = batch.schema.get_field_index(name)
    if index < 0:
        known = ", ".join(batch.schema.names)
        raise PenstockError("UNKNOWN_KEY", f'There is no column "{name}" to split by.', f"The columns are: {known}.")
    return batch.column(index)


def _hash(array: pa.Array, name: str) -> Hashes:
    """A number for each value. It need not be well mixed, and is the same for all types that can hold the value."""
    kind = array.type
    if pa.types.is_null(kind):
        return np.full(len(array), _NULL, np.uint64)
    if pa.types.is_dictionary(kind):
        return _hash_of_dictionary(array, name)
    hashes = _hash_of_values(array, name)
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _hash_of_dictionary(array: pa.DictionaryArray, name: str) -> Hashes:
    return _taken(_hash(array.dictionary, name), array.indices)


def _hash_of_values(array: pa.Array, name: str) -> Hashes:
    """As `_hash`, with anything where the array has a null; a new array, which the caller may change."""
    kind = array.type
    if _is_text(kind):
        return _hash_of_text(array)
    if pa.types.is_decimal(kind):
        return _hash_of_decimals(array)
    if pa.types.is_unsigned_integer(kind):
        return _numbers(array, pa.uint64())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return _numbers(array, pa.int64())
    if pa.types.is_date(kind):
        return _numbers(array.cast(pa.date32()).view(pa.int32()), pa.int64())
    if pa.types.is_timestamp(kind):
        return _hash_of_timestamps(array)
    raise PenstockError(
        "BAD_KEY",
        f'Rows cannot be split by "{name}", which is of type {kind}.',
        "Use whole numbers, booleans, strings, binary, dates, timestamps or decimals as keys.",
    )


def _is_text(kind: pa.DataType) -> bool:
    checks = (
        *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary),
    )
    return any(check(kind) for check in checks)


def _numbers(array: pa.Array, kind: pa.DataType) -> Hashes:
    numbers = array.cast(kind).fill_null(0).to_numpy().view(np.uint64)
    return np.array(numbers, dtype=np.uint64)


def _hash_of_text(array: pa.Array) -> Hashes:
    # Python sees each distinct value once. CRC-32 is fixed by a standard, and its weakness does not matter: two keys
    # with the same number only share a group.
    encoded = array.dictionary_encode()
    values = encoded.dictionary.cast(pa.large_binary()).to_numpy(zero_copy_only=False)
    distinct = np.fromiter(map(zlib.crc32, values), np.uint64, len(values))
    return _taken(distinct, encoded.indices)


def _taken(distinct: Hashes, indices: pa.Array) -> Hashes:
    # One more value, null, stands at the end for the rows that have no index.
    positions: NDArray[np.int64] = indices.cast(pa.int64()).fill_null(len(distinct)).to_numpy()
    return np.append(distinct, _NULL)[positions]


def _hash_of_timestamps(array: pa.Array) -> Hashes:
    # Seconds and nanoseconds apart: a common unit for all would overflow, and the same time in another unit must agree.
    per_second = _PER_SECOND[array.type.unit]
    times: NDArray[np.int64] = array.view(pa.int64()).fill_null(0).to_numpy()
    seconds, rest = np.divmod(times, per_second)
    nanoseconds = rest * (_PER_SECOND["ns"] // per_second)
    return _mix(seconds.view(np.uint64)) + nanoseconds.view(np.uint64)


def _hash_of_decimals(array: pa.Array) -> Hashes:
    # The unscaled numbers, in 64-bit words. The scale is not part of the hash: it is the same for a whole column.
    small = array.type.precision <= 38
    words = 2 if small else 4
    wide = array.cast((pa.decimal128 if small else pa.decimal256)(38 if small else 76, array.type.scale))
    numbers = np.frombuffer(wide.buffers()[1], np.uint64).reshape(-1, words)[wide.offset : wide.offset + len(wide)]
    hashes: Hashes = np.zeros(len(wide), np.uint64)
    for word in range(words):
        hashes = _mix(hashes * _ORDER + numbers[:, word])
    return hashes


def _mix(numbers: Hashes) -> Hashes:
    """The finaliser of splitmix64: every bit of the input changes half of the bits of the output. Changes its input."""
    numbers ^= numbers >> np.uint64(30)
    numbers *= np.uint64(0xBF58476D1CE4E5B9)
    numbers ^= numbers >> np.uint64(27)
    numbers *= np.uint64(0x94D049BB133111EB)
    numbers ^= numbers >> np.uint64(31)
    return numbers
