"""Which order of rows is kept where, exactly as docs/guide.md says it under "Order"."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
from conftest import TEST_SETTINGS
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from written_rows import WAIT

from penstock import Topology, sinks, sources
from penstock.engine.spark.host import SparkHost

ROWS = 12_000
EVENT = "id long, key string"
#: However busy the machine is, and however many rows wait by then.
SEVERAL_BATCHES = dataclasses.replace(TEST_SETTINGS, rows_at_once=ROWS // 4)


def id_and_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["id", "key"])


def in_order(folder: Path) -> list[dict[str, Any]]:
    """Rows in the order in which they were published: batch and partition are in a file's name."""
    return [row for path in sorted(folder.glob("*.parquet")) for row in ds.dataset(path).to_table().to_pylist()]


def by_key(rows: list[dict[str, Any]], column: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        found[row["key"]].append(row[column])
    return found


def test_by_key_maps_get_the_rows_of_a_key_in_their_order(
    local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    """Through several instances of everything on several slots, and through two splits by key."""
    topology = Topology("by-key-order")
    content = sources.events(keys=13, seed=1)
    events = topology.source("events", sources.rate(20_000, content, rows=ROWS), instances=2)
    shaped = topology.map("shaped", id_and_key, inputs=events, schema=EVENT, instances=3)
    once = topology.map("once", id_and_key, inputs=shaped.by_key("key"), schema=EVENT, instances=4)
    twice = topology.map("twice", id_and_key, inputs=once.by_key("key"), schema=EVENT, instances=2, tasks=5)
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=twice, instances=2)
    with running(topology, local_host, settings=SEVERAL_BATCHES) as run:
        assert run.wait(WAIT)
        assert len(run.catalog.manifests("twice")) > 1
    ids = by_key(in_order(tmp_path / "out"), "id")
    assert sum(map(len, ids.values())) == ROWS
    assert all(of_key == sorted(of_key) for of_key in ids.values())


def seen_at_once(key: tuple[str], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """The least and the greatest id of a key that one call of the function got, and in which batch."""
    ids = [one for frame in frames for one in frame["id"]]
    context = TaskContext.get()
    assert context is not None
    batch = int(context.getLocalProperty("streaming.sql.batchId"))
    yield pd.DataFrame({"key": [key[0]], "batch": [batch], "least": [min(ids)], "greatest": [max(ids)]})


def remember(frame: DataFrame) -> DataFrame:
    schema = "key string, batch long, least long, greatest long"
    return frame.groupBy("key").applyInPandasWithState(seen_at_once, schema, "x long", "append", "NoTimeout")


def test_a_keyed_operator_gets_what_was_emitted_before_in_the_same_batch_or_an_earlier_one(
    local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    """All that is promised today: no row of a key is handled in an earlier batch than a row that was emitted before
    it. Within a batch the rows of several bundles come through Spark's shuffle, in any order."""
    topology = Topology("keyed-order")
    content = sources.events(keys=7, seed=2)
    events = topology.source("events", sources.rate(8_000, content, rows=ROWS), instances=2)
    shaped = topology.map("shaped", id_and_key, inputs=events, schema=EVENT, instances=3)
    schema = "key string, batch long, least long, greatest long"
    seen = topology.keyed(
        "seen", remember, inputs=shaped, key="key", schema=schema, tasks=2, instances=2, output_mode="append"
    )
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=seen)
    with running(topology, local_host, settings=SEVERAL_BATCHES) as run:
        assert run.wait(WAIT)
    of_key: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for row in in_order(tmp_path / "out"):
        of_key[row["key"]].append((row["batch"], row["least"], row["greatest"]))
    assert len(of_key) == 7
    for calls in of_key.values():
        assert len(calls) > 1, "several batches must have had rows of each key"
        batches = [batch for batch, _, _ in calls]
        assert batches == sorted(set(batches)), "one call a key and batch, and their results in the order of batches"
        assert all(before[2] < after[1] for before, after in pairwise(calls))


def counts(frame: DataFrame) -> DataFrame:
    return frame.groupBy("key").agg(F.count("*").alias("count"))


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def test_updates_of_a_key_come_in_their_order(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    """So whoever keeps the last one that came has the newest."""
    topology = Topology("order-of-updates")
    events = topology.source("events", sources.rate(8_000, sources.events(keys=7, seed=3), rows=ROWS), instances=2)
    schema = "key string, count long"
    counted = topology.keyed("counted", counts, inputs=events, key="key", schema=schema, tasks=2, instances=2)
    passed = topology.map("passed", same, inputs=counted.by_key("key"), schema=schema, instances=3)
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=passed, instances=2)
    with running(topology, local_host, settings=SEVERAL_BATCHES) as run:
        assert run.wait(WAIT)
    updates = by_key(in_order(tmp_path / "out"), "count")
    assert len(updates) == 7
    assert all(len(of_key) > 1 and of_key == sorted(set(of_key)) for of_key in updates.values())
    assert sum(of_key[-1] for of_key in updates.values()) == ROWS
