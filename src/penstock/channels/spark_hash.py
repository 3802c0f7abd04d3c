"""Spark's own hash of a key, computed over Arrow columns: Murmur3 with 32 bits and the seed 42, as `hash` in Spark SQL.

Spark's state store keeps a key in the partition pmod(hash(key), tasks), and Spark's shuffle sends its rows there. Rows
whose hash is known before Spark sees them need no shuffle. So this must agree with Spark bit by bit, for every type
that it says it can hash: a test compares the two. A type that it cannot hash is not an error here, since Spark's
shuffle can still split the rows.

The hash of several columns is a chain: the hash of one column is the seed of the next. Null leaves the seed as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

SEED = 42
#: Below so many values, a loop over Python's own numbers is faster than one over arrays.
FEW = 16
#: Spark keeps decimals of up to so many digits as a long, and hashes them as one.
LONG_DIGITS = 18

Words = NDArray[np.uint32]

_WORDS = ("is_boolean", "is_int8", "is_int16", "is_int32", "is_date32", "is_float32")
_LONGS = ("is_int64", "is_float64")
_BYTES = ("is_string", "is_large_string", "is_binary", "is_large_binary")
_C1, _C2, _M, _N = np.uint32(0xCC9E2D51), np.uint32(0x1B873593), np.uint32(5), np.uint32(0xE6546B64)
_F1, _F2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_ALL = 0xFFFFFFFF


def can_hash(kind: pa.DataType) -> bool:
    """Whether keys of this type can be hashed as Spark does it."""
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "us")  # the only unit that Spark has
    return pa.types.is_decimal128(kind) or any(getattr(pa.types, one)(kind) for one in (*_WORDS, *_LONGS, *_BYTES))


def hash_of_rows(batch: pa.RecordBatch, columns: Sequence[str]) -> NDArray[np.int32]:
    """Spark's hash of these columns, in this order, of each row."""
    hashes: Words = np.full(batch.num_rows, SEED, np.uint32)
    for index, name in enumerate(columns):
        column = batch.column(name)
        hashed = _hash_of_few(column) if index == 0 and _is_bytes(column.type) else _hash(column, hashes)
        if column.null_count:
            hashes = np.where(column.is_valid().to_numpy(zero_copy_only=False), hashed, hashes)
        else:
            hashes = hashed
    return hashes.view(np.int32)


def task_of_hashes(hashes: NDArray[np.int32], tasks: int) -> NDArray[np.int32]:
    """The task, 0 to tasks - 1, that Spark keeps the key of each hash in: pmod(hash, tasks)."""
    if tasks & (tasks - 1) == 0:
        return hashes & np.int32(tasks - 1)  # the same, and faster: the sign is in the bits that are cut off
    return hashes % np.int32(tasks)  # NumPy's remainder has the sign of the divisor, as pmod has


def _hash_of_few(column: pa.Array) -> Words:
    """The hash of texts that all have the same seed. Keys come again and again, so each is hashed once."""
    encoded = column.dictionary_encode()
    distinct = _hash(encoded.dictionary, np.full(len(encoded.dictionary), SEED, np.uint32))
    taken: Words = np.append(distinct, np.uint32(SEED))[encoded.indices.fill_null(len(distinct)).to_numpy()]
    return taken


def _hash(column: pa.Array, seeds: Words) -> Words:
    """The hash of every value, with anything where the column has a null."""
    kind = column.type
    if _is_bytes(kind):
        return _hash_of_bytes(*_texts(column), seeds)
    if pa.types.is_decimal128(kind):
        numbers = _halves(column)
        if kind.precision <= LONG_DIGITS:
            return _hash_of_longs(numbers[:, 0], seeds)
        return _hash_of_bytes(*_texts(_as_big_integers(numbers)), seeds)
    if any(getattr(pa.types, one)(kind) for one in _WORDS):
        return _finish(_step(seeds.copy(), _mixed(_words(column))), 4)
    return _hash_of_longs(_longs(column), seeds)


def _words(column: pa.Array) -> Words:
    kind = column.type
    if pa.types.is_float32(kind):
        numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
        return _normal(numbers).view(np.uint32)
    if pa.types.is_date32(kind):
        column = column.view(pa.int32())
    return np.array(column.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)).view(np.uint32)


def _longs(column: pa.Array) -> NDArray[np.uint64]:
    if pa.types.is_float64(column.type):
        return _normal(column.fill_null(0).to_numpy(zero_copy_only=False)).view(np.uint64)
    numbers: NDArray[np.int64] = column.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(numbers).view(np.uint64)


def _normal(numbers: NDArray[np.floating]) -> NDArray[np.floating]:
    """Numbers that compare equal in Spark with equal bits: one zero, and one value that is no number."""
    normal = numbers + numbers.dtype.type(0)  # -0.0 + 0.0 is 0.0
    normal[np.isnan(normal)] = np.nan
    return normal


def _halves(column: pa.Array) -> NDArray[np.uint64]:
    """The unscaled numbers of decimals, each as its lower and its upper 64 bits."""
    wide = pa.decimal128(38, column.type.scale)
    column = column.cast(wide)
    numbers = np.frombuffer(column.buffers()[1], np.uint64).reshape(-1, 2)
    return numbers[column.offset : column.offset + len(column)]


def _as_big_integers(numbers: NDArray[np.uint64]) -> pa.Array:
    """Numbers of 128 bits as Java's BigInteger writes them: the fewest bytes that hold the sign too, highest first."""
    found = []
    for low, high in numbers.tolist():
        value = (high << 64 | low) - (1 << 128 if high >> 63 else 0)
        bits = (value if value >= 0 else ~value).bit_length()
        found.append(value.to_bytes(bits // 8 + 1, "big", signed=True))
    return pa.array(found, pa.large_binary())


def _hash_of_longs(numbers: NDArray[np.uint64], seeds: Words) -> Words:
    low, high = numbers.astype(np.uint32), (numbers >> np.uint64(32)).astype(np.uint32)
    return _finish(_step(_step(seeds.copy(), _mixed(low)), _mixed(high)), 8)


# Texts


def _is_bytes(kind: pa.DataType) -> bool:
    return any(getattr(pa.types, one)(kind) for one in _BYTES)


def _texts(column: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """The bytes of all values, where each begins, and how many it has."""
    large = column.cast(pa.large_binary())
    _, offsets, data = large.buffers()
    bounds = np.frombuffer(offsets, np.int64)[large.offset : large.offset + len(large) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return content, bounds[:-1], np.diff(bounds)


def _hash_of_bytes(
    content: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], seeds: Words
) -> Words:
    """Four bytes a step, the last one to three bytes one by one. The values are worked on side by side, the longest
    first, so those that have another step are always the first ones."""
    order = np.argsort(-lengths, kind="stable")
    starts, sizes, hashes = starts[order], lengths[order], seeds[order]
    words, rising = sizes // 4, np.sort(sizes // 4)
    if len(content) >= 4:
        # A word begins at any byte, so neighbouring elements of this view overlap.
        view: Words = np.ndarray((len(content) - 3,), np.dtype("<u4"), content, strides=(1,))
        step, busy = 0, len(rising) - int(np.searchsorted(rising, 0, "right"))
        while busy >= FEW:
            hashes[:busy] = _step(hashes[:busy], _mixed(view[starts[:busy] + 4 * step]))
            step += 1
            busy = len(rising) - int(np.searchsorted(rising, step, "right"))
        for row in range(busy):
            first = int(starts[row]) + 4 * step
            rest = _mixed(view[first : first + 4 * (int(words[row]) - step) : 4].copy())
            hashes[row] = _steps(int(hashes[row]), rest.tolist())
    for index in range(3):
        [rows] = np.nonzero(sizes % 4 > index)
        if len(rows):
            # Spark takes such a byte for a number with a sign.
            tail = content[starts[rows] + 4 * words[rows] + index].view(np.int8).astype(np.int32).view(np.uint32)
            hashes[rows] = _step(hashes[rows], _mixed(tail))
    found: Words = np.empty_like(hashes)
    found[order] = _finish(hashes, sizes.astype(np.uint32))
    return found


def _steps(hashed: int, mixed: Sequence[int]) -> int:
    """What `_step` does with each of these words, one after the other."""
    for word in mixed:
        hashed ^= word
        hashed = (hashed << 13 | hashed >> 19) & _ALL
        hashed = (hashed * 5 + 0xE6546B64) & _ALL
    return hashed


# Murmur3's three steps. The names are those of Spark's Murmur3_x86_32: mixK1, mixH1 and fmix.


def _mixed(words: Words) -> Words:
    words = words * _C1
    words = words << np.uint32(15) | words >> np.uint32(17)
    return words * _C2


def _step(hashes: Words, mixed: Words) -> Words:
    hashes = hashes ^ mixed
    hashes = hashes << np.uint32(13) | hashes >> np.uint32(19)
    return hashes * _M + _N


def _finish(hashes: Words, lengths: Words | int) -> Words:
    hashes = hashes ^ (np.uint32(lengths) if isinstance(lengths, int) else lengths)
    hashes ^= hashes >> np.uint32(16)
    hashes *= _F1
    hashes ^= hashes >> np.uint32(13)
    hashes *= _F2
    hashes ^= hashes >> np.uint32(16)
    return hashes
