"""How streams reach the instances of an operator: by key, broadcast, several in, several out, and as DataFrames."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import NoRoom
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from written_rows import WAIT, column_of, rows_of

from penstock import Topology, sinks, sources
from penstock.cluster.model import Placement
from penstock.engine.spark.host import SparkHost
from penstock.workloads import service_time

NUMBERS = "id long, value double"
WHO = "id long, key string, batch long, partition long, thread long"


def who_has_it(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Each row with the micro-batch, the bundle and the thread that got it."""
    values = (0, 0, 0)
    if (context := TaskContext.get()) is not None:  # there is none when the validation calls it, without rows
        time.sleep(0.02)  # so that no instance is done, and its thread free for another, before the others begin
        # Bundles that stand see many batches in one task, and are not told which.
        number = int(context.getLocalProperty("streaming.sql.batchId") or time.time_ns())
        values = (number, context.partitionId(), threading.get_ident())
    columns = [pa.array([value] * batch.num_rows, pa.int64()) for value in values]
    return pa.record_batch(
        [batch.column("id"), batch.column("key"), *columns], names=["id", "key", "batch", "partition", "thread"]
    )


@pytest.mark.parametrize("stand", [True, False])
def test_by_key_gives_all_rows_of_a_key_to_one_instance(
    stand: bool, local_host: SparkHost, running: Callable, no_room: NoRoom, tmp_path: Path
) -> None:
    content, rows = sources.events(keys=23, seed=5), 6_000
    topology = Topology("by-key")
    events = topology.source("events", sources.rate(3_000, content, rows=rows), instances=2)
    seen = topology.map("who", who_has_it, inputs=[events.by_key("key")], schema=WHO, instances=6, tasks=12)
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=[seen])
    with nullcontext() if stand else no_room(), running(topology, local_host) as run:
        assert run.wait(WAIT)
        assert set(run.placement.of("who").values()) == {3}, "three instances on each of the two slots"
    got = rows_of(tmp_path / "out")
    batch = content.rows(0, rows)
    wanted = sorted(zip(batch.column("id").to_pylist(), batch.column("key").to_pylist(), strict=True))
    assert sorted((row["id"], row["key"]) for row in got) == wanted
    threads_of_key: dict[tuple, set] = defaultdict(set)
    bundles_of_key: dict[str, set[int]] = defaultdict(set)
    threads_of_bundle: dict[tuple, set[int]] = defaultdict(set)
    for row in got:
        threads_of_key[row["batch"], row["key"]].add((row["partition"], row["thread"]))
        bundles_of_key[row["key"]].add(row["partition"])
        threads_of_bundle[row["batch"], row["partition"]].add(row["thread"])
    assert len({row["batch"] for row in got}) > 1
    assert all(len(threads) == 1 for threads in threads_of_key.values())
    # A key stays with its bundle from batch to batch, and both bundles and all their threads have keys.
    assert all(len(bundles) == 1 for bundles in bundles_of_key.values())
    assert set().union(*bundles_of_key.values()) == {0, 1}
    assert stand or max(map(len, threads_of_bundle.values())) == 3
    assert len({row["thread"] for row in got}) >= 3


def test_broadcast_gives_every_row_to_every_instance(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    rows, instances = 700, 5
    topology = Topology("broadcast")
    numbers = topology.source("numbers", sources.rate(2_000, sources.numbers(), rows=rows))
    same = topology.map("same", service_time(0), inputs=[numbers.broadcast()], schema=NUMBERS, instances=instances)
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=[same])
    with running(topology, local_host) as run:
        assert run.wait(WAIT)
        # The rows are counted once where they come in: that is what waits in front of the operator.
        assert run.statistics.totals("same") == (rows, rows * instances)
    assert Counter(column_of(tmp_path / "out", "id")) == dict.fromkeys(range(rows), instances)


def test_shuffled_and_broadcast_inputs_of_one_operator(
    local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    topology = Topology("both")
    facts = topology.source("facts", sources.rate(2_000, sources.numbers(), rows=600))
    few = topology.source("few", sources.rate(100, sources.generated(from_million, NUMBERS), rows=10))
    same = topology.map("same", service_time(0), inputs=[facts, few.broadcast()], schema=NUMBERS, instances=4)
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=[same])
    with running(topology, local_host) as run:
        assert run.wait(WAIT)
    once = dict.fromkeys(range(600), 1)
    assert Counter(column_of(tmp_path / "out", "id")) == once | dict.fromkeys(range(1_000_000, 1_000_010), 4)


def from_million(first: int, count: int) -> pa.RecordBatch:
    ids = pa.array(range(1_000_000 + first, 1_000_000 + first + count), pa.int64())
    return pa.record_batch([ids, pc.cast(ids, pa.float64())], names=["id", "value"])


def odd_and_even(batch: pa.RecordBatch) -> dict[str, pa.RecordBatch]:
    odd = pc.equal(pc.bit_wise_and(batch.column("id"), 1), 1)
    texts = batch.filter(odd).column("id").cast(pa.string())
    return {"even": batch.filter(pc.invert(odd)), "odd": pa.record_batch([texts], names=["text"])}


def test_several_outputs_of_an_arrow_function(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    topology = Topology("outputs")
    numbers = topology.source("numbers", sources.rate(5_000, sources.numbers(), rows=1_001))
    outputs = {"even": NUMBERS, "odd": "text string"}
    both = topology.map("both", odd_and_even, inputs=[numbers], outputs=outputs, instances=2)
    for name in outputs:
        topology.sink(f"to_{name}", sinks.parquet(tmp_path / name), inputs=[both[name]])
    with running(topology, local_host) as run:
        assert run.wait(WAIT)
        assert run.statistics.totals("both") == (1_001, 1_001)
        assert run.statistics.totals("to_odd") == (500, 0)
    assert column_of(tmp_path / "even", "id") == list(range(0, 1_001, 2))
    assert column_of(tmp_path / "odd", "text") == sorted(map(str, range(1, 1_001, 2)))


def test_two_readers_of_one_output_get_all_of_it(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    topology = Topology("readers")
    numbers = topology.source("numbers", sources.rate(5_000, sources.numbers(), rows=800))
    slow = topology.map("slow", service_time(0.0005), inputs=[numbers], schema=NUMBERS)
    topology.sink("left", sinks.parquet(tmp_path / "left"), inputs=[slow])
    topology.sink("right", sinks.parquet(tmp_path / "right"), inputs=[numbers])
    with running(topology, local_host) as run:
        assert run.wait(WAIT)
    assert column_of(tmp_path / "left", "id") == column_of(tmp_path / "right", "id") == list(range(800))


def test_interleaved_inputs(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    topology = Topology("interleaved")
    low = topology.source("low", sources.rate(3_000, sources.numbers(), rows=900))
    high = topology.source("high", sources.rate(1_000, sources.generated(from_million, NUMBERS), rows=300))
    same = topology.map("same", service_time(0), inputs=[low, high], schema=NUMBERS, instances=3)
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=[same, high])
    with running(topology, local_host) as run:
        assert run.wait(WAIT)
        assert run.statistics.totals("same") == (1_200, 1_200)
    high_ids = range(1_000_000, 1_000_300)
    assert column_of(tmp_path / "out", "id") == sorted([*range(900), *high_ids, *high_ids])


def tripled(frame: DataFrame) -> DataFrame:
    return frame.where("id % 3 = 0").select((F.col("id") * 3).alias("triple"), F.col("id").cast("string").alias("text"))


def test_a_dataframe_function(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    topology = Topology("dataframe")
    numbers = topology.source("numbers", sources.rate(3_000, sources.numbers(), rows=1_000), instances=2)
    triples = topology.map_dataframe(
        "triples", tripled, inputs=[numbers], schema="triple long, text string", instances=2
    )
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=[triples])
    with running(topology, local_host) as run:
        assert run.wait(WAIT)
        assert run.statistics.totals("triples") == (1_000, 334)
    got = sorted((row["triple"], row["text"]) for row in rows_of(tmp_path / "out"))
    assert got == [(n * 3, str(n)) for n in range(0, 1_000, 3)]


def by_size(frame: DataFrame) -> DataFrame:
    name = F.when(F.col("id") < 300, "small").when(F.col("id") < 1_000, "medium").otherwise("large")
    return frame.withColumn("output", name)


def test_several_outputs_of_a_dataframe_function(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    topology = Topology("dataframe-outputs")
    numbers = topology.source("numbers", sources.rate(3_000, sources.numbers(seed=4), rows=1_500))
    names = ("small", "medium", "large")
    sizes = topology.map_dataframe("sizes", by_size, inputs=[numbers], outputs=dict.fromkeys(names, NUMBERS))
    for name in names:
        topology.sink(f"to_{name}", sinks.parquet(tmp_path / name), inputs=[sizes[name]])
    with running(topology, local_host) as run:
        assert run.wait(WAIT)
    ranges = {"small": range(300), "medium": range(300, 1_000), "large": range(1_000, 1_500)}
    values = sources.numbers(seed=4).rows(0, 1_500).column("value").to_pylist()
    for name in names:
        got = sorted((row["id"], row["value"]) for row in rows_of(tmp_path / name))
        assert got == [(n, values[n]) for n in ranges[name]]


def right_then_left(left: DataFrame, right: DataFrame) -> DataFrame:
    """Spark asks for the inputs in the order in which the plan has them, which is not that of the arguments."""
    now = F.current_timestamp().alias("batch")  # the same for all rows of a micro-batch
    sides = [frame.select("id", F.lit(side).alias("side"), now) for side, frame in (("right", right), ("left", left))]
    return sides[0].union(sides[1])


def test_a_function_of_two_dataframes(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    topology = Topology("two-dataframes")
    left = topology.source("left", sources.rate(1_000_000, sources.numbers(), rows=4_000))
    right = topology.source("right", sources.rate(1_000_000, sources.numbers(), rows=3_000))
    schema = "id long, side string, batch timestamp"
    both = topology.map_dataframe("both", right_then_left, inputs=[left, right], schema=schema)
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=[both])
    with running(topology, local_host) as run:
        assert run.wait(WAIT)
        assert run.statistics.totals("both") == (7_000, 7_000)
    got = rows_of(tmp_path / "out")
    wanted = [("left", n) for n in range(4_000)] + [("right", n) for n in range(3_000)]
    assert sorted((row["side"], row["id"]) for row in got) == wanted
    # The inputs share a batch: none waits until the other has nothing more.
    sides: dict[object, set[str]] = defaultdict(set)
    for row in got:
        sides[row["batch"]].add(row["side"])
    assert {"left", "right"} in sides.values()


def halves_together(frame: DataFrame) -> DataFrame:
    odd = frame.where("id % 2 = 1").select((-F.col("id")).alias("id"), "value")
    return frame.where("id % 2 = 0").union(odd)


def test_a_dataframe_that_is_used_twice(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    topology = Topology("used-twice")
    numbers = topology.source("numbers", sources.rate(3_000, sources.numbers(), rows=500))
    halves = topology.map_dataframe("halves", halves_together, inputs=[numbers], schema=NUMBERS)
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=[halves])
    with running(topology, local_host) as run:
        assert run.wait(WAIT)
    assert column_of(tmp_path / "out", "id") == sorted(n if n % 2 == 0 else -n for n in range(500))


def test_instances_are_threads_that_wait_at_the_same_time(local_host: SparkHost, running: Callable) -> None:
    rows = 1_200
    topology = Topology("threads")
    numbers = topology.source("numbers", sources.rate(1_000_000, sources.numbers(), rows=rows))
    for name, instances in (("one", 1), ("eight", 8)):
        waited = topology.map(name, service_time(0.001), inputs=[numbers], schema=NUMBERS, instances=instances)
        topology.sink(f"{name}_out", sinks.noop(), inputs=[waited])
    slot = local_host.cluster.slots[0]
    definition = topology.definition()
    placement = Placement({operator.name: {slot: operator.instances} for operator in definition.operators})
    with running(definition, local_host, placement=placement) as run:
        assert run.wait(WAIT)
        seconds = {}
        for name in ("one", "eight"):
            bundles = [
                bundle
                for batch in run.catalog.manifests(name)
                for bundle in json.loads(batch.manifest)["bundles"]
                if bundle["operator"] == name  # and not the sink's, which runs as one with it
            ]
            assert sum(bundle["rows_in"] for bundle in bundles) == rows
            assert {bundle["instances"] for bundle in bundles} == {1 if name == "one" else 8}
            seconds[name] = sum(bundle["busy"] for bundle in bundles) / rows
            # Every instance's own time is counted, however many wait at once.
            assert sum(bundle["busy_total"] for bundle in bundles) >= 0.001 * rows
    assert seconds["one"] / seconds["eight"] > 4
