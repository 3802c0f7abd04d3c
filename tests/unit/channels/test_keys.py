"""Splitting by key: the same value has the same group in every type, batch and process."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from penstock.channels.keys import (
    GROUP_COLUMN,
    drop_groups,
    group_of_rows,
    grouped_schema,
    in_group_order,
    rows_of_groups,
    sort_by_group,
)
from penstock.errors import PenstockError

WORDS = ["", "a", "b", None, "ab", "a", "ä", "a" * 300]
NUMBERS = [0, 1, -1, None, 5, 127, -128, 1]
DAYS = [dt.date(1970, 1, 1), dt.date(1969, 12, 31), None, dt.date(2024, 2, 29)]
TIMES = [dt.datetime(1970, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59), None, dt.datetime(2024, 2, 29, 12, 30)]
PRICES = [Decimal("0.00"), Decimal("-1.25"), None, Decimal("999.99")]

SAME = {
    "text": [pa.array(WORDS, kind) for kind in (pa.string(), pa.large_string(), pa.string_view())]
    + [pa.array(WORDS).cast(kind) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())]
    + [
        pa.array(WORDS).dictionary_encode(),
        pa.array(WORDS).dictionary_encode(null_encoding="encode"),
        pa.DictionaryArray.from_arrays(
            pa.array([0, 1, 2, None, 3, 1, 4, 5], pa.uint8()), ["", "a", "b", "ab", "ä", "a" * 300]
        ),
    ],
    "numbers": [pa.array(NUMBERS, kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())]
    + [pa.array(NUMBERS).dictionary_encode()],
    "unsigned": [pa.array([0, 1, None, 200], kind) for kind in (pa.uint8(), pa.uint16(), pa.uint64(), pa.int64())],
    "days": [pa.array(DAYS, kind) for kind in (pa.date32(), pa.date64())],
    "times": [pa.array(TIMES, pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")],
    "prices": [pa.array(PRICES, kind) for kind in (pa.decimal128(5, 2), pa.decimal128(38, 2), pa.decimal256(20, 2))],
}


def groups_of(*columns: pa.Array, groups: int = 1000) -> list[int]:
    batch = pa.record_batch(list(columns), names=[str(n) for n in range(len(columns))])
    return group_of_rows(batch, batch.schema.names, groups).tolist()


@pytest.mark.parametrize("values", SAME.values(), ids=SAME.keys())
def test_a_value_has_the_same_group_in_all_types_that_hold_it(values: list[pa.Array]) -> None:
    expected = groups_of(values[0])
    for array in values[1:]:
        assert groups_of(array) == expected, array.type


ALL = [array for arrays in SAME.values() for array in arrays] + [
    pa.array([True, False, None]),
    pa.array([b"abc", None, b"xyz"], pa.binary(3)),
    pa.array([None, None], pa.null()),
    pa.array([None, None], pa.string()),
    pa.array([Decimal(10) ** 50, None], pa.decimal256(60, 2)),
]


@pytest.mark.parametrize("array", ALL, ids=[f"{n}-{array.type}" for n, array in enumerate(ALL)])
def test_a_row_has_the_same_group_alone_and_among_others(array: pa.Array) -> None:
    together = groups_of(array)
    assert [groups_of(array.slice(n, 1))[0] for n in range(len(array))] == together
    assert groups_of(array.slice(1)) == together[1:]
    assert groups_of(array.slice(0, 0)) == []


def test_the_groups_never_change() -> None:
    """The state of a task stays where these numbers sent its keys: another hash would lose it."""
    assert groups_of(pa.array(WORDS), groups=64) == [0, 23, 51, 47, 24, 23, 23, 38]
    assert groups_of(pa.array(NUMBERS), groups=64) == [0, 37, 59, 47, 28, 37, 29, 37]
    assert groups_of(pa.array(["a", None]), pa.array([1, 2]), groups=64) == [32, 43]
    assert groups_of(SAME["times"][0], groups=64) == [0, 36, 47, 59]
    assert groups_of(SAME["prices"][0], groups=64) == [0, 10, 47, 12]


def test_null_is_a_key_of_its_own_beside_zero_and_empty() -> None:
    assert len(set(groups_of(pa.array([None, 0]), groups=60_000))) == 2
    assert len(set(groups_of(pa.array([None, ""]), groups=60_000))) == 2
    assert groups_of(pa.array([None], pa.string())) == groups_of(pa.array([None], pa.int8()))


def test_columns_are_not_interchangeable() -> None:
    a, b = pa.array(range(1000)), pa.array(range(1, 1001))
    assert groups_of(a, b) != groups_of(b, a)


@pytest.mark.parametrize("column", [pa.array(range(100_000)), pa.array([f"user-{n}" for n in range(100_000)])])
def test_keys_are_spread_evenly(column: pa.Array) -> None:
    counts = np.bincount(groups_of(column, groups=16), minlength=16)
    assert counts.min() > 0.95 * counts.mean()
    assert counts.max() < 1.05 * counts.mean()


def test_sorted_batches_are_cut_by_group() -> None:
    batch = pa.record_batch({"k": [n % 7 for n in range(50)], "n": list(range(50))})
    split = sort_by_group(batch, ["k"], 5)
    assert split.schema.equals(grouped_schema(batch.schema))
    assert split.column(GROUP_COLUMN).to_pylist() == sorted(group_of_rows(batch, ["k"], 5))
    parts = [rows_of_groups(split, group, group + 1) for group in range(5)]
    assert sum(part.num_rows for part in parts) == 50
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([drop_groups(split)]))
    assert rows_of_groups(split, 0, 5).equals(drop_groups(split))
    assert rows_of_groups(split, 5, 1 << 16).num_rows == 0
    assert rows_of_groups(split, 3, 2).num_rows == 0
    for part in parts:
        keys = part.column("k").to_pylist()
        for key in set(keys):
            rows = [n for k, n in zip(keys, part.column("n").to_pylist(), strict=True) if k == key]
            assert rows == sorted(rows)


def test_cutting_copies_nothing() -> None:
    split = sort_by_group(pa.record_batch({"k": list(range(10_000))}), ["k"], 8)
    before = pa.total_allocated_bytes()
    part = rows_of_groups(split, 2, 5)
    assert pa.total_allocated_bytes() == before
    assert part.num_rows > 0


def test_a_batch_in_order_is_left_as_it_is() -> None:
    split = sort_by_group(pa.record_batch({"k": [3, 1, 2]}), ["k"], 2)
    assert in_group_order(split) is split


def test_one_group_and_the_most_groups() -> None:
    assert groups_of(pa.array([1, 2, 3]), groups=1) == [0, 0, 0]
    assert max(groups_of(pa.array(range(10_000)), groups=1 << 16)) > 65_000


@pytest.mark.parametrize("array", [pa.array([1.5]), pa.array([[1]]), pa.array([{"a": 1}])], ids=lambda a: str(a.type))
def test_a_type_without_groups_has_a_named_error(array: pa.Array) -> None:
    with pytest.raises(PenstockError) as caught:
        groups_of(array)
    assert caught.value.name == "BAD_KEY"


def test_an_unknown_column_has_a_named_error() -> None:
    with pytest.raises(PenstockError) as caught:
        group_of_rows(pa.record_batch({"a": [1]}), ["b"], 2)
    assert caught.value.name == "UNKNOWN_KEY"


def test_mistakes_of_the_caller() -> None:
    batch = pa.record_batch({"a": [1]})
    for groups in (0, (1 << 16) + 1):
        with pytest.raises(ValueError, match="groups"):
            group_of_rows(batch, ["a"], groups)
    with pytest.raises(ValueError, match="key column"):
        group_of_rows(batch, [], 2)
    with pytest.raises(ValueError, match="not split by key"):
        rows_of_groups(batch, 0, 1)
