"""Keyed operators that read the rows of their tasks themselves: no Exchange, the same results, order kept."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from conftest import TEST_SETTINGS
from pyspark.sql import DataFrame
from written_rows import WAIT

from penstock import Topology, sinks, sources
from penstock.engine.spark.host import SparkHost
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
