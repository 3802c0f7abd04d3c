"""Keyed operators that read the rows of their tasks themselves: no Exchange, the same results, order kept."""

from __future__ import annotations

import dataclasses
import inspect
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from conftest import TEST_SETTINGS
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from written_rows import WAIT

from penstock import Topology, sinks, sources
from penstock.engine.query.splitting import Splitting, chosen
from penstock.engine.spark.host import SparkHost
from penstock.engine.spark.internals import SparkInternals
from penstock.engine.spark.stream_plans import explained
from penstock.engine.topology import SparkTopology

ROWS = 12_000
WITHOUT = dataclasses.replace(TEST_SETTINGS, shuffle="none", batch_rows=ROWS // 4)
COUNTED = "key string, count long"


def in_order(folder: Path) -> list[dict[str, Any]]:
    """Rows in the order in which they were published: batch and partition are in a file's name."""
    return [row for path in sorted(folder.glob("*.parquet")) for row in ds.dataset(path).to_table().to_pylist()]


def plan_of(run: SparkTopology, operator: str) -> str:
    """The physical plan of the newest batch, as Spark explains it."""
    query = run.query(operator).query
    assert query is not None
    return str(query._jsq.explainInternal(False))


def id_and_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["id", "key"])


def count(frame: DataFrame) -> DataFrame:
    return frame.groupBy("key").count()


def test_counts_are_right_without_an_exchange(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    topology = Topology("without-shuffle")
    content = sources.events(keys=101, seed=5)
    events = topology.source("events", sources.rate(20_000, content, rows=ROWS), instances=2)
    shaped = topology.map("shaped", id_and_key, inputs=events, schema="id long, key string", instances=2)
    counted = topology.keyed("counted", count, inputs=shaped, key="key", schema=COUNTED, tasks=3, instances=2)
    topology.sink("all", sinks.parquet(tmp_path / "all"), inputs=shaped)
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=counted)
    with running(topology, local_host, settings=WITHOUT) as run:
        assert run.wait(WAIT)
        assert len(run.catalog.manifests("counted")) > 1
        assert "Exchange" not in plan_of(run, "counted")
    rows = in_order(tmp_path / "all")
    assert set(rows[0]) == {"id", "key"}, "hashes are for keyed operators only"
    counts = {row["key"]: row["count"] for row in in_order(tmp_path / "out")}
    assert sum(counts.values()) == ROWS
    assert counts == Counter(row["key"] for row in rows)


def by_both(frame: DataFrame) -> DataFrame:
    return frame.groupBy("key", "id").count()


def by_both_turned(frame: DataFrame) -> DataFrame:
    return frame.groupBy("id", "key").count()


def distinct(frame: DataFrame) -> DataFrame:
    return frame.dropDuplicates(["key"])


def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.alias("a").join(right.alias("b"), F.expr("a.key = b.key AND a.id < b.id")).select("a.key")


def with_state(frame: DataFrame) -> DataFrame:
    return frame.groupBy("key").applyInPandasWithState(lambda *_: iter(()), COUNTED, "x long", "append", "NoTimeout")


def filtered_and_named_anew(frame: DataFrame) -> DataFrame:
    return frame.filter("id > 0").withColumnRenamed("key", "word").groupBy("word").count()


def counts_of_counts(frame: DataFrame) -> DataFrame:
    return frame.groupBy("key").count().groupBy("count").agg(F.max("key").alias("key"))


def by_window(frame: DataFrame) -> DataFrame:
    return frame.withWatermark("at", "1 second").groupBy(F.window("at", "1 second"), "key").count()


def by_another_key(frame: DataFrame) -> DataFrame:
    return frame.groupBy(F.lower("key").alias("key")).count()


@pytest.mark.parametrize(
    ("function", "key", "order"),
    [
        (count, ("key",), ("key",)),
        (by_both, ("key", "id"), ("key", "id")),
        (by_both_turned, ("key", "id"), ("id", "key")),
        (distinct, ("key",), ("key",)),
        (joined, ("key",), ("key",)),
        (with_state, ("key",), ("key",)),
        (filtered_and_named_anew, ("key",), ("key",)),
    ],
)
def test_sparks_planner_says_that_no_shuffle_is_needed(
    local_host: SparkHost, function: Callable, key: tuple[str, ...], order: tuple[str, ...]
) -> None:
    assert planned(local_host, function, key) == Splitting(order)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (by_window, "Spark needs its rows by hashpartitioning(window-T1000ms, key, 3), and its plan forgets at a "),
        (by_another_key, "Spark needs its rows by hashpartitioning("),
    ],
)
def test_where_sparks_plan_needs_the_shuffle_that_is_the_reason(
    local_host: SparkHost, function: Callable, why: str
) -> None:
    split = planned(local_host, function, ("key",))
    assert not split.key
    assert split.why.startswith(why)


def test_a_second_grouping_is_shuffled_and_the_first_is_not(local_host: SparkHost) -> None:
    split = planned(local_host, counts_of_counts, ("key",))
    assert split.key == ("key",)
    assert split.why.startswith("inside it, Spark still shuffles 1 of 2 times (hashpartitioning(count")


def planned(host: SparkHost, function: Callable, key: tuple[str, ...]) -> Splitting:
    spark, schema = host.spark, StructType.fromDDL("id long, key string, at timestamp")
    internals = SparkInternals(spark)

    def plan(order: tuple[str, ...]) -> str:
        session = spark.newSession()
        session.conf.set("spark.sql.shuffle.partitions", "3")
        inputs = len(inspect.signature(function).parameters)
        return explained(function(*[internals.split_of_no_rows(session, schema, order, 3) for _ in range(inputs)]))

    return chosen(key, plan)
