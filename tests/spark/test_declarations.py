"""What a declaration promises, on real Spark: what it accepts is right, and what it cannot do it refuses beforehand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from written_rows import WAIT, rows_of

from penstock import Topology, sinks, sources
from penstock.engine.host import SparkHost

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
