"""What a topology computes equals what a plain batch job computes over the same input."""

from __future__ import annotations

import dataclasses
import runpy
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock import Topology, sinks, sources
from penstock.engine.spark.host import SparkHost
from penstock.topology.definition import Sink, Source, TopologyDefinition

WAIT = 150
EXAMPLES = Path(__file__).parents[2] / "examples"


def split(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([pc.list_flatten(pc.utf8_split_whitespace(batch.column(0)))], names=["word"])


def count(frame: DataFrame) -> DataFrame:
    return frame.groupBy("word").agg(F.count("*").alias("n"))


def written(folder: Path) -> list[dict]:
    return ds.dataset(folder, format="parquet").to_table().to_pylist() if folder.exists() else []


def batch_input(spark: SparkSession, content: sources.Content, rows: int) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_batches([content.rows(0, rows)]))


def word_count(content: sources.Content, rows: int, folder: Path) -> Topology:
    topology = Topology("word-count")
    lines = topology.source("lines", sources.rate(20_000, content, rows=rows), instances=2)
    words = topology.map("split", split, inputs=[lines], schema="word string", instances=2)
    counts = topology.keyed(
        "count", count, inputs=[words], key="word", schema="word string, n long", tasks=3, instances=2
    )
    topology.sink("out", sinks.parquet(folder), inputs=[counts])
    return topology


def check_word_count(host: SparkHost, running: Callable, folder: Path) -> None:
    content, rows = sources.sentences(vocabulary=200, seed=7), 10_000
    with running(word_count(content, rows, folder), host) as run:
        assert run.wait(WAIT)
        assert run.statistics.totals("split") == (rows, rows * 10)
    got: dict[str, int] = {}
    for row in written(folder):
        got[row["word"]] = max(got.get(row["word"], 0), row["n"])
    words = batch_input(host.spark, content, rows).select(F.explode(F.split("sentence", " ")).alias("word"))
    assert got == {row.word: row.n for row in count(words).collect()}
    assert sum(got.values()) == rows * 10


def test_word_count_on_local(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    check_word_count(local_host, running, tmp_path / "out")


def test_word_count_on_standalone(standalone_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    check_word_count(standalone_host, running, tmp_path / "out")


def per_window(frame: DataFrame) -> DataFrame:
    windows = frame.withWatermark("at", "30 seconds").groupBy(F.window("at", "10 seconds"), "key")
    return windows.agg(F.sum("value").alias("total")).select(F.col("window.start").alias("start"), "key", "total")


def test_a_windowed_aggregation_with_late_rows(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    # Late, but by less than the watermark allows: every row counts, as in the batch job.
    content, rows = sources.events(keys=5, seed=3, spacing=0.01, late=0.2, late_by=20.0), 12_000
    at = content.rows(0, rows).column("at").cast(pa.int64()).to_numpy()
    assert (at[1:] < at[:-1]).any(), "the input must have late rows"
    topology = Topology("windows")
    events = topology.source("events", sources.rate(10_000, content, rows=rows))
    schema = "start timestamp, key string, total long"
    totals = topology.keyed("totals", per_window, inputs=[events], key="key", schema=schema, tasks=2)
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=[totals])
    with running(topology, local_host) as run:
        assert run.wait(WAIT)
    got: dict[tuple, int] = {}
    for path in sorted((tmp_path / "out").glob("*.parquet")):  # in the order of the batches: the last word counts
        for row in ds.dataset(path).to_table().to_pylist():
            got[row["start"].timestamp(), row["key"]] = row["total"]
    frame = batch_input(local_host.spark, content, rows)
    wanted = {(row.start.timestamp(), row.key): row.total for row in per_window(frame).collect()}
    assert got == wanted
    assert len(wanted) > 50


def join(orders: DataFrame, payments: DataFrame) -> DataFrame:
    paid = payments.select("id", F.col("value").alias("paid"))
    return orders.select("id", F.col("value").alias("ordered")).join(paid, "id")


def half(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.equal(pc.bit_wise_and(batch.column("id"), 1), 0))


def test_a_join_of_two_streams(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    orders, payments, rows = sources.numbers(seed=1), sources.numbers(seed=2), 4_000
    topology = Topology("join")
    left = topology.source("orders", sources.rate(4_000, orders, rows=rows))
    right = topology.source("payments", sources.rate(3_000, payments, rows=rows))
    even = topology.map("even", half, inputs=[right], schema="id long, value double")
    schema = "id long, ordered double, paid double"
    joined = topology.keyed("join", join, inputs=[left, even], key="id", schema=schema, tasks=2, output_mode="append")
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=[joined])
    with running(topology, local_host) as run:
        assert run.wait(WAIT)
    got = sorted((row["id"], row["ordered"], row["paid"]) for row in written(tmp_path / "out"))
    spark = local_host.spark
    evens = batch_input(spark, payments, rows).where("id % 2 = 0")
    wanted = sorted(tuple(row) for row in join(batch_input(spark, orders, rows), evens).collect())
    assert got == wanted
    assert len(got) == rows // 2


def finite(definition: TopologyDefinition, rows: int, sink: sinks.ParquetSink) -> TopologyDefinition:
    """An example with an end, and a sink that can be read."""
    operators = []
    for operator in definition.operators:
        if isinstance(operator, Source):
            operators.append(dataclasses.replace(operator, spec=dataclasses.replace(operator.spec, rows=rows)))
        elif isinstance(operator, Sink):
            operators.append(dataclasses.replace(operator, spec=sink))
        else:
            operators.append(operator)
    return dataclasses.replace(definition, operators=tuple(operators))


def test_top_n_as_the_example_has_it(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    module = runpy.run_path(str(EXAMPLES / "top_n.py"), run_name="__main__")  # pickled by value, like the user's file
    rows = 4_000
    definition = finite(module["topology"].definition(), rows, sinks.parquet(tmp_path / "out"))
    with running(definition, local_host) as run:
        assert run.wait(WAIT)
    [source] = definition.sources
    scores = pa.Table.from_batches([module["score"](source.spec.content.rows(0, rows))])
    totals = scores.group_by("item").aggregate([("points", "sum")]).to_pylist()
    best = sorted((-row["points_sum"], row["item"]) for row in totals)[: module["BEST"]]
    last = max((tmp_path / "out").glob("*.parquet"))  # its name starts with the batch
    board = sorted(ds.dataset(last).to_table().to_pylist(), key=lambda row: row["place"])
    assert [(row["item"], row["total"]) for row in board] == [(item, -points) for points, item in best]
