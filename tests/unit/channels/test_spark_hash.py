"""What can be hashed, and values that Spark has given. tests/spark/test_hash_comparison.py compares every type."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.channels.spark_hash import can_hash, hash_of_rows, task_of_hashes


@pytest.mark.parametrize(
    ("array", "hashed"),
    [
        (pa.array([1], pa.int32()), -559580957),
        (pa.array([1], pa.int64()), -1712319331),
        (pa.array(["Spark"]), 228093765),
        (pa.array([""]), 142593372),
        (pa.array([None], pa.string()), 42),
        (pa.array([True]), -559580957),
    ],
)
def test_values_that_spark_has_given(array: pa.Array, hashed: int) -> None:
    assert hash_of_rows(pa.record_batch({"key": array}), ["key"]).tolist() == [hashed]


@pytest.mark.parametrize(
    "kind",
    [pa.timestamp("ms", "UTC"), pa.timestamp("ns"), pa.uint32(), pa.time64("us"), pa.list_(pa.int32()), pa.date64()],
)
def test_types_that_cannot_be_hashed_say_so(kind: pa.DataType) -> None:
    assert not can_hash(kind)


@given(st.lists(st.one_of(st.none(), st.text(max_size=70))), st.integers(0, 5))
def test_a_text_has_one_hash_however_it_is_stored(texts: list[str | None], skipped: int) -> None:
    """As text or bytes, wide or narrow, alone or beside others, as the first key or behind one that says nothing."""
    column = pa.array(texts, pa.string())
    batch = pa.record_batch(
        {
            "text": column,
            "large": column.cast(pa.large_string()),
            "bytes": column.cast(pa.binary()),
            "nothing": pa.nulls(len(texts), pa.int32()),
        }
    )
    alone = [int(hash_of_rows(batch.slice(row, 1), ["text"])[0]) for row in range(len(texts))]
    assert hash_of_rows(batch, ["text"]).tolist() == alone
    assert hash_of_rows(batch, ["large"]).tolist() == alone
    assert hash_of_rows(batch, ["bytes"]).tolist() == alone
    assert hash_of_rows(batch, ["nothing", "text"]).tolist() == alone
    assert hash_of_rows(batch.slice(skipped), ["text"]).tolist() == alone[skipped:]


def test_a_long_text_among_short_ones() -> None:
    """The few long ones are hashed by another loop than the many short ones."""
    texts = ["x" * 10_001, *map(str, range(100))]
    together = hash_of_rows(pa.record_batch({"key": texts}), ["key"])
    assert together[0] == hash_of_rows(pa.record_batch({"key": texts[:1]}), ["key"])[0]
    assert together[1:].tolist() == hash_of_rows(pa.record_batch({"key": texts[1:]}), ["key"]).tolist()


@given(st.lists(st.integers(-(1 << 31), (1 << 31) - 1)), st.integers(1, 1000))
def test_a_task_is_the_remainder_that_is_not_negative(hashes: list[int], tasks: int) -> None:
    assert task_of_hashes(np.array(hashes, np.int32), tasks).tolist() == [one % tasks for one in hashes]
