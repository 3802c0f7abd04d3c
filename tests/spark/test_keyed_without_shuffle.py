"""Keyed operators that read the rows of their tasks themselves: no Exchange, the same results, order kept."""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
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
WITHOUT = dataclasses.replace(TEST_SETTINGS, shuffle="none", rows_at_once=ROWS // 4)
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


def seen_in_order(key: tuple[str], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """The ids of a key that one call of the function got, in the order in which it got them."""
    yield pd.DataFrame({"key": [key[0]], "ids": [[one for frame in frames for one in frame["id"]]]})


def remember(frame: DataFrame) -> DataFrame:
    schema = "key string, ids array<long>"
    return frame.groupBy("key").applyInPandasWithState(seen_in_order, schema, "x long", "append", "NoTimeout")


def test_the_rows_of_a_key_come_in_their_order_also_within_a_batch(
    local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    """Through several instances of everything, which Spark's shuffle would mix."""
    topology = Topology("keyed-order-within")
    content = sources.events(keys=7, seed=2)
    events = topology.source("events", sources.rate(8_000, content, rows=ROWS), instances=2)
    shaped = topology.map("shaped", id_and_key, inputs=events, schema="id long, key string", instances=3)
    schema = "key string, ids array<long>"
    seen = topology.keyed(
        "seen", remember, inputs=shaped, key="key", schema=schema, tasks=2, instances=2, output_mode="append"
    )
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=seen)
    with running(topology, local_host, settings=WITHOUT) as run:
        assert run.wait(WAIT)
        assert len(run.catalog.manifests("seen")) > 1
    ids: dict[str, list[int]] = {}
    for row in in_order(tmp_path / "out"):
        ids.setdefault(row["key"], []).extend(row["ids"])
    assert sum(map(len, ids.values())) == ROWS
    assert all(of_key == sorted(of_key) for of_key in ids.values())


def sum_of_both(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.alias("a").join(right.alias("b"), F.expr("a.key = b.key AND a.id = b.id")).select("a.key", "a.id")


def as_it_is(frame: DataFrame) -> DataFrame:
    return frame.select("id", "key")


def test_a_join_behind_a_source_and_a_dataframe_function(
    local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    """What comes out of Spark SQL is hashed as well, and so is what comes straight from a source. One side of the join
    gets a batch without rows at times."""
    topology = Topology("without-shuffle-join")
    rows = 1_000
    left = topology.source("left", sources.rate(4_000, sources.events(keys=5, seed=5), rows=rows))
    right = topology.source("right", sources.rate(1_000, sources.events(keys=5, seed=5), rows=rows))
    plain = topology.map_dataframe("plain", as_it_is, inputs=right, schema="id long, key string", instances=2)
    joined = topology.keyed(
        "joined",
        sum_of_both,
        inputs=[left, plain],
        key=["key", "id"],
        schema="key string, id long",
        tasks=2,
        output_mode="append",
    )
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=joined)
    with running(topology, local_host, settings=dataclasses.replace(WITHOUT, rows_at_once=500)) as run:
        assert run.shuffles == {"joined": ""}
        assert run.wait(WAIT)
    assert sorted(row["id"] for row in in_order(tmp_path / "out")) == list(range(rows))


def test_old_segments_are_read_on_whatever_the_setting_and_the_number_of_tasks(
    local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    """Rows that wait without hashes are read by task; rows that wait with hashes are read by another number of tasks,
    and then through the shuffle again."""
    topology, total = Topology("carried"), 15_000
    content = sources.events(keys=101, seed=5)
    events = topology.source("events", sources.rate(3_000, content, rows=total))
    shaped = topology.map("shaped", id_and_key, inputs=events, schema="id long, key string")
    counted = topology.keyed("counted", count, inputs=shaped, key="key", schema=COUNTED, tasks=3)
    topology.sink("all", sinks.parquet(tmp_path / "all"), inputs=shaped)
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=counted)
    # Few rows a batch, so that rows wait in front of the operator when it is stopped.
    slow = dataclasses.replace(WITHOUT, rows_at_once=200)

    def some_wait(run: SparkTopology) -> None:
        deadline = time.monotonic() + WAIT
        while run.statistics.batches("counted") < 2 or run.backlog("counted") < 500:
            assert time.monotonic() < deadline
            assert not run.wait(0.05)

    with running(topology, local_host, state="kept", settings=dataclasses.replace(slow, shuffle="exchange")) as run:
        some_wait(run)
        assert run.shuffles == {"counted": "the setting shuffle is exchange"}
        run.stop(drain=False)
    with running(topology, local_host, state="kept", settings=slow) as run:
        some_wait(run)
        assert "Exchange" not in plan_of(run, "counted")
        run.changes.repartition("counted", 4)
        some_wait(run)
        run.stop(drain=False)
    through_the_shuffle = dataclasses.replace(WITHOUT, shuffle="exchange")
    with running(topology, local_host, state="kept", settings=through_the_shuffle) as run:
        assert run.snapshot().definition == run.definition, "policies see the tasks that there are, not those declared"
        assert run.shuffles == {"counted": "the setting shuffle is exchange"}
        assert run.wait(2 * WAIT)
    rows = in_order(tmp_path / "all")
    counts = {row["key"]: row["count"] for row in in_order(tmp_path / "out")}
    assert sum(counts.values()) == total
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
