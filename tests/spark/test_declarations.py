"""What a declaration promises, on real Spark: what it accepts is right, and what it cannot do it refuses beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from written_rows import WAIT, rows_of

from penstock import PenstockError, Topology, sinks, sources
from penstock.engine.spark.host import SparkHost

TOTALS = "start timestamp, key string, total long"


# Results of a keyed operator that another one takes further


def closed_windows(frame: DataFrame) -> DataFrame:
    windows = frame.withWatermark("at", "1 second").groupBy(F.window("at", "10 seconds"), "key")
    return windows.agg(F.sum("value").alias("total")).select(F.col("window.start").alias("start"), "key", "total")


def averages(frame: DataFrame) -> DataFrame:
    return frame.groupBy("key").agg(F.avg("total").alias("mean"), F.count("*").alias("windows"))


def test_an_average_over_results_that_are_given_once(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    """The way out that UPDATES_AS_ROWS names: each window counts once, however many batches its rows came in."""
    topology = Topology("average-of-totals")
    content = sources.events(keys=3, seed=11, spacing=0.01)
    events = topology.source("events", sources.rate(6_000, content, rows=12_000))
    totals = topology.keyed(
        "totals", closed_windows, inputs=events, key="key", schema=TOTALS, tasks=2, output_mode="append"
    )
    schema = "key string, mean double, windows long"
    average = topology.keyed("average", averages, inputs=totals, key="key", schema=schema, tasks=2)
    topology.sink("windows", sinks.parquet(tmp_path / "windows"), inputs=totals)
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=average)
    with running(topology, local_host) as run:
        assert run.wait(WAIT)
        assert run.statistics.totals("average")[0] > 0
    by_key: dict[str, dict[object, int]] = {}
    for row in rows_of(tmp_path / "windows"):
        totals_of_key = by_key.setdefault(row["key"], {})
        assert row["start"] not in totals_of_key, "a window is given once"
        totals_of_key[row["start"]] = row["total"]
    last: dict[str, dict] = {}
    for row in rows_of(tmp_path / "out"):
        if row["windows"] > last.get(row["key"], {"windows": 0})["windows"]:
            last[row["key"]] = row
    assert {key: (row["windows"], row["mean"]) for key, row in last.items()} == {
        key: (len(of_key), sum(of_key.values()) / len(of_key)) for key, of_key in by_key.items()
    }
    assert len(by_key) == 3
    assert all(len(of_key) > 2 for of_key in by_key.values())


# Inputs that differ only in whether a value may be null

STRICT = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("tags", pa.list_(pa.field("item", pa.string(), nullable=False)), nullable=False),
    ]
)
LOOSE = "id long, tags array<string>"


def without_nulls(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch([range(first, first + count), [["a"]] * count], schema=STRICT)


def with_nulls(first: int, count: int) -> pa.RecordBatch:
    """Every third id, and one of two tags, is null."""
    ids = [None if number % 3 == 0 else 1_000_000 + number for number in range(first, first + count)]
    types = [pa.int64(), pa.list_(pa.string())]
    columns = [pa.array(ids, types[0]), pa.array([["b", None]] * count, types[1])]
    return pa.record_batch(columns, names=["id", "tags"])


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def tags(frame: DataFrame) -> DataFrame:
    return frame.select(F.explode("tags").alias("tag")).groupBy("tag").count()


def test_inputs_that_differ_in_nullability_only(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    rows = 3_000
    topology = Topology("nullability")
    # All rows at once, so that a batch has some of both.
    strict = topology.source("strict", sources.rate(1_000_000, sources.generated(without_nulls, STRICT), rows=rows))
    loose = topology.source("loose", sources.rate(1_000_000, sources.generated(with_nulls, LOOSE), rows=rows))
    inputs = [strict, loose]
    mapped = topology.map("mapped", same, inputs=inputs, schema=LOOSE, instances=2)
    split = topology.map("split", same, inputs=[one.by_key("id") for one in inputs], schema=LOOSE)
    counted = topology.keyed("counted", tags, inputs=inputs, key="id", schema="tag string, count long", tasks=2)
    topology.sink("counts", sinks.parquet(tmp_path / "counts"), inputs=counted)
    for name, of in (("mapped", mapped), ("split", split), ("plain", inputs)):
        topology.sink(f"{name}_out", sinks.parquet(tmp_path / name), inputs=of)
    with running(topology, local_host) as run:
        assert run.wait(WAIT)
    wanted = sorted([*range(rows), *(1_000_000 + number if number % 3 else -1 for number in range(rows))])
    for name in ("mapped", "split", "plain"):
        got = rows_of(tmp_path / name)
        assert sorted(-1 if row["id"] is None else row["id"] for row in got) == wanted
        assert {tuple(row["tags"]) for row in got} == {("a",), ("b", None)}
    highest: dict[str | None, int] = {}
    for row in rows_of(tmp_path / "counts"):
        highest[row["tag"]] = max(highest.get(row["tag"], 0), row["count"])
    assert highest == {"a": rows, "b": rows, None: rows}


# What a function may not do on a stream is refused before anything is touched

EVENTS = "id long, key string, value long, at timestamp"
SAME = sources.events(keys=3)


def refused(host: SparkHost, running: Callable, tmp_path: Path, topology: Topology) -> PenstockError:
    with pytest.raises(PenstockError) as caught, running(topology, host, "state"):
        pass
    assert not (tmp_path / "state" / "catalog.sqlite").exists(), "it was refused only after something was touched"
    error = caught.value
    assert error.where is not None
    assert error.where.file == __file__
    assert '"x"' in error.message
    assert "Traceback" not in str(error)
    assert "~" not in str(error), "Spark's plan is of no use to a user"
    return error


def counted(frame: DataFrame) -> DataFrame:
    return frame.groupBy("key").count()


def first_of_each(frame: DataFrame) -> DataFrame:
    return frame.dropDuplicates(["key"]).select("key", "value")


def first_within_watermark(frame: DataFrame) -> DataFrame:
    return frame.withWatermark("at", "1 minute").dropDuplicatesWithinWatermark(["key"]).select("key", "value")


def first_five(frame: DataFrame) -> DataFrame:
    return frame.select("key", "value").limit(5)


def some(frame: DataFrame) -> DataFrame:
    """A table."""
    return frame.sparkSession.range(3).select(F.col("id").cast("string").alias("key"), F.col("id").alias("value"))


def unknown_ones(frame: DataFrame) -> DataFrame:
    return frame.select("key", "value").subtract(some(frame))


def state_of_its_own(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    yield from ()


def with_state(frame: DataFrame) -> DataFrame:
    rows = frame.groupBy("key")
    return rows.applyInPandasWithState(state_of_its_own, "key string, value long", "x long", "append", "NoTimeout")


class Processor(StatefulProcessor):
    def init(self, handle: Any) -> None: ...

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        yield from ()

    def close(self) -> None: ...


def transformed(frame: DataFrame) -> DataFrame:
    return frame.groupBy("key").transformWithStateInPandas(Processor(), "key string, value long", "Append", "None")


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (counted, "aggregates"),
        (first_of_each, "drops duplicates"),
        (first_within_watermark, "drops duplicates"),
        (first_five, "limits"),
        (unknown_ones, "takes away"),
        (with_state, "state of its own"),
        (transformed, "state of its own"),
    ],
)
def test_state_outside_a_keyed_operator(
    local_host: SparkHost, running: Callable, tmp_path: Path, function: Callable, says: str
) -> None:
    topology = Topology("stateful-map")
    events = topology.source("events", sources.rate(100, SAME, rows=10))
    column = "count" if function is counted else "value"
    mapped = topology.map_dataframe("x", function, inputs=events, schema=f"key string, {column} long")
    topology.sink("out", sinks.noop(), inputs=mapped)
    error = refused(local_host, running, tmp_path, topology)
    assert error.name == "STATE_OUTSIDE_KEYED"
    assert says in error.message
    assert 'topology.keyed("x"' in error.hint


def all_but_some(frame: DataFrame) -> DataFrame:
    return frame.select("key", "value").exceptAll(some(frame))


@pytest.mark.parametrize("kind", ["keyed", "map_dataframe"])
def test_what_spark_would_take_away_again_with_every_batch(
    local_host: SparkHost, running: Callable, tmp_path: Path, kind: str
) -> None:
    topology = Topology("all-but-some")
    events = topology.source("events", sources.rate(100, SAME, rows=10))
    key = {"key": "key"} if kind == "keyed" else {}
    rest = getattr(topology, kind)("x", all_but_some, inputs=events, schema="key string, value long", **key)
    topology.sink("out", sinks.noop(), inputs=rest)
    error = refused(local_host, running, tmp_path, topology)
    assert error.name == "NOT_ON_A_STREAM"
    assert "exceptAll" in error.message


def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.select("id", "key").join(right.select("id", "value"), "id")


def test_a_join_of_streams_outside_a_keyed_operator(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    topology = Topology("joining-map")
    inputs = [topology.source(name, sources.rate(100, SAME, rows=10)) for name in ("left", "right")]
    mapped = topology.map_dataframe("x", joined, inputs=inputs, schema="id long, key string, value long")
    topology.sink("out", sinks.noop(), inputs=mapped)
    error = refused(local_host, running, tmp_path, topology)
    assert error.name == "STATE_OUTSIDE_KEYED"
    assert "joins" in error.message


def with_names(frame: DataFrame) -> DataFrame:
    """Aggregates and joins, but what it aggregates has an end."""
    names = frame.sparkSession.range(1_000).select(F.col("id"), (F.col("id") % 7).cast("string").alias("name"))
    return frame.select("id").join(names.groupBy("id").agg(F.first("name").alias("name")), "id")


def test_a_table_beside_the_stream_is_no_state(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    topology = Topology("enriching-map")
    events = topology.source("events", sources.rate(10_000, SAME, rows=500))
    named = topology.map_dataframe("x", with_names, inputs=events, schema="id long, name string")
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=named)
    with running(topology, local_host) as run:
        assert run.wait(WAIT)
    assert sorted((row["id"], row["name"]) for row in rows_of(tmp_path / "out")) == [
        (n, str(n % 7)) for n in range(500)
    ]


def numbered(frame: DataFrame) -> DataFrame:
    newest = Window.partitionBy("key").orderBy(F.desc("at"))
    return frame.select("key", F.row_number().over(newest).cast("long").alias("count"))


def sorted_counts(frame: DataFrame) -> DataFrame:
    return frame.groupBy("key").count().orderBy(F.desc("count"))


def sorted_rows(frame: DataFrame) -> DataFrame:
    return frame.select("key", F.col("value").alias("count")).orderBy("count")


def looked_at(frame: DataFrame) -> DataFrame:
    return frame.select("key", F.lit(frame.count()).alias("count"))


def unique(frame: DataFrame) -> DataFrame:
    return frame.select("key", F.col("value").alias("count")).distinct()


OWN_STATE = "applyInPandasWithState"


@pytest.mark.parametrize(
    ("function", "mode", "name", "says", "way_out"),
    [
        (counted, "append", "BAD_OUTPUT_MODE", ["watermark"], ['output_mode="update"', "withWatermark"]),
        (numbered, "update", "NOT_ON_A_STREAM", ["row_number"], ["max_by", OWN_STATE]),
        (numbered, "complete", "NOT_ON_A_STREAM", ["row_number"], ["max_by", OWN_STATE]),
        (sorted_rows, "update", "NOT_ON_A_STREAM", ["sorts"], ["max_by", OWN_STATE]),
        (sorted_counts, "update", "BAD_OUTPUT_MODE", ["sorts"], ['output_mode="complete"', "max_by", OWN_STATE]),
        (unique, "complete", "BAD_OUTPUT_MODE", ['output_mode="complete"'], ['output_mode="append"']),
        (looked_at, "update", "BAD_FUNCTION", ["collect", "count"], ["before any row"]),
    ],
)
def test_what_spark_cannot_do_on_a_stream(
    local_host: SparkHost,
    running: Callable,
    tmp_path: Path,
    function: Callable,
    mode: str,
    name: str,
    says: list[str],
    way_out: list[str],
) -> None:
    topology = Topology("not-on-a-stream")
    events = topology.source("events", sources.rate(100, SAME, rows=10))
    schema = "key string, count long"
    kept = topology.keyed("x", function, inputs=events, key="key", schema=schema, output_mode=mode)
    topology.sink("out", sinks.noop(), inputs=kept)
    error = refused(local_host, running, tmp_path, topology)
    assert error.name == name
    for words in says:
        assert words in error.message
    for words in way_out:
        assert words in error.hint


def left_outer(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.select("id", "key").join(right.select("id", "value"), "id", "left")


def left_outer_in_time(left: DataFrame, right: DataFrame) -> DataFrame:
    orders = left.withWatermark("at", "1 minute").select("id", "key", "at")
    paid = right.withWatermark("at", "1 minute").select(F.col("id").alias("paid"), "value", F.col("at").alias("then"))
    both = orders.join(paid, F.expr("id = paid and then between at and at + interval 1 minute"), "left")
    return both.select("id", "key", "value")


@pytest.mark.parametrize(
    ("function", "mode", "name"),
    [
        (left_outer, "update", "BAD_OUTPUT_MODE"),
        (left_outer_in_time, "update", "BAD_OUTPUT_MODE"),
        (left_outer, "append", "NOT_ON_A_STREAM"),
    ],
)
def test_an_outer_join_of_two_streams(
    local_host: SparkHost, running: Callable, tmp_path: Path, function: Callable, mode: str, name: str
) -> None:
    topology = Topology("outer-join")
    inputs = [topology.source(name, sources.rate(100, SAME, rows=10)) for name in ("left", "right")]
    schema = "id long, key string, value long"
    both = topology.keyed("x", function, inputs=inputs, key="id", schema=schema, output_mode=mode)
    topology.sink("out", sinks.noop(), inputs=both)
    error = refused(local_host, running, tmp_path, topology)
    assert error.name == name
    assert "outer join" in error.message
    assert "watermark" in error.hint
    assert ('output_mode="append"' in error.hint) == (mode == "update")
