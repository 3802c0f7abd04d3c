"""Aggregates that are declared: what is combined in Arrow, and what a wrong one is called."""

from __future__ import annotations

import pickle
import random
from collections import defaultdict

import pyarrow as pa
import pytest

from penstock import Topology, aggregates, sinks, sources
from penstock.aggregates import Combine
from penstock.errors import PenstockError
from penstock.topology.definition import Keyed, Map

ROWS = pa.schema([("key", pa.string()), ("other", pa.int64()), ("small", pa.int8()), ("value", pa.float64())])
ALL = {
    "rows": aggregates.count(),
    "total": aggregates.sum("value"),
    "small_total": aggregates.sum("small"),
    "least": aggregates.min("value"),
    "last_name": aggregates.max("key"),
    "average": aggregates.mean("value"),
}


def drawn(count: int) -> pa.RecordBatch:
    draw = random.Random(3)
    return pa.record_batch(
        [
            [draw.choice(["a", "b", None]) for _ in range(count)],
            [draw.randrange(3) for _ in range(count)],
            [draw.choice([127, 100, None]) for _ in range(count)],
            [draw.choice([1.5, -2.0, None]) for _ in range(count)],
        ],
        schema=ROWS,
    )


def by_hand(batch: pa.RecordBatch, keys: tuple[str, ...]) -> dict[tuple, dict]:
    groups = defaultdict(list)
    for row in batch.to_pylist():
        groups[tuple(row[key] for key in keys)].append(row)

    def known(rows: list[dict], column: str) -> list:
        return [row[column] for row in rows if row[column] is not None]

    return {
        key: {
            "rows": len(rows),
            "total": sum(known(rows, "value")) if known(rows, "value") else None,
            "small_total": sum(known(rows, "small")) if known(rows, "small") else None,
            "least": min(known(rows, "value"), default=None),
            "last_name": max(known(rows, "key"), default=None),
            "average_sum": sum(known(rows, "value")) if known(rows, "value") else None,
            "average_count": len(known(rows, "value")),
        }
        for key, rows in groups.items()
    }


@pytest.mark.parametrize("keys", [("key",), ("key", "other")])
@pytest.mark.parametrize("count", [0, 1, 500])
def test_rows_are_combined_by_key(keys, count) -> None:
    batch = drawn(count)
    combine = pickle.loads(pickle.dumps(Combine(keys, ALL, ROWS)))
    found = combine(batch)
    assert found.schema == combine.schema
    rows = {tuple(row.pop(key) for key in keys): row for row in found.to_pylist()}
    assert len(rows) == found.num_rows, "every key once"
    assert rows == by_hand(batch, keys)


@pytest.mark.parametrize("keys", [("key",), ("key", "other")])
def test_parts_are_folded_into_what_the_whole_would_be(keys) -> None:
    batch = drawn(700)
    combine = Combine(keys, ALL, ROWS)
    parts = pa.concat_tables([combine(batch.slice(first, 150)) for first in range(0, 700, 150)])
    [joined] = parts.combine_chunks().to_batches()
    found, whole = combine.fold(joined), combine(batch)
    assert found.schema == whole.schema
    assert sorted(found.to_pylist(), key=str) == sorted(whole.to_pylist(), key=str)


def test_a_key_may_be_called_what_arrow_calls_a_result() -> None:
    schema = pa.schema([("value_sum", pa.string()), ("value", pa.int64())])
    batch = pa.record_batch([["x", "x", "y"], [1, 2, 3]], schema=schema)
    found = Combine(("value_sum",), {"total": aggregates.sum("value")}, schema)(batch)
    assert sorted(found.to_pylist(), key=str) == [{"value_sum": "x", "total": 3}, {"value_sum": "y", "total": 3}]


def test_the_mean_of_large_whole_numbers_is_rounded() -> None:
    schema = pa.schema([("key", pa.string()), ("at", pa.int64())])
    nanoseconds = 1_794_813_306_752_085_701  # more digits than a double has
    batch = pa.record_batch([["x", "x"], [nanoseconds, nanoseconds]], schema=schema)
    [row] = Combine(("key",), {"middle": aggregates.mean("at")}, schema)(batch).to_pylist()
    assert row["middle_sum"] / row["middle_count"] == pytest.approx(nanoseconds)


def declared(made: Topology, wanted, key="key", inputs="rows") -> None:
    made.source("rows", sources.rate(1, sources.events(keys=3)), instances=3)
    made.sink("out", sinks.noop(), inputs=made.aggregate("sums", wanted, inputs=inputs, key=key, tasks=4, instances=2))


def test_it_is_a_map_that_combines_and_a_keyed_operator_that_merges() -> None:
    made = Topology("t")
    declared(made, {"rows": aggregates.count(), "mean": aggregates.mean("value")})
    definition = made.definition()
    combine, merge = definition.operator("sums-combine"), definition.operator("sums")
    assert isinstance(combine, Map)
    assert (combine.gathers, combine.instances) == (True, 3)
    assert combine.outputs["out"].names == ["key", "rows", "mean_sum", "mean_count"]
    assert isinstance(merge, Keyed)
    assert (merge.tasks, merge.instances) == (4, 2)
    assert merge.outputs["out"].names == ["key", "rows", "mean"]
    assert merge.where.file == __file__


@pytest.mark.parametrize(
    ("wanted", "more", "says"),
    [
        ({}, {}, "has no aggregates"),
        ({"n": aggregates.sum("nothing")}, {}, 'sum(nothing): there is no column "nothing"'),
        ({"n": aggregates.mean("key")}, {}, "mean(key)"),
        ({"n": "count"}, {}, '"n" is a str'),
        ({"key": aggregates.count()}, {}, "two columns called key"),
        (
            {"n": aggregates.count(), "m": aggregates.mean("value"), "m_sum": aggregates.count()},
            {},
            "two columns called m_sum",
        ),
        ({"n": aggregates.count()}, {"key": "nothing"}, 'has the key "nothing"'),
    ],
)
def test_mistakes(wanted, more, says) -> None:
    with pytest.raises(PenstockError) as caught:
        declared(Topology("t"), wanted, **more)
    assert caught.value.name == "BAD_AGGREGATE"
    assert says in caught.value.message
    assert caught.value.where.file == __file__


def test_what_it_reads_is_declared_before_it() -> None:
    with pytest.raises(PenstockError) as caught:
        declared(Topology("t"), {"n": aggregates.count()}, inputs="later")
    assert caught.value.name == "NO_INPUT"
