"""One micro-batch that does next to nothing, Penstock's and plain Structured Streaming's, alternating in a session."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock import Settings, Topology, sinks, sources
from penstock.cluster.local import LocalCluster
from penstock.engine.spark.host import SparkHost
from penstock.engine.state.folder import StateFolder
from penstock.engine.topology import SparkTopology

ROWS_A_BATCH = 10
PARTS = ("latestOffset", "getOffset", "getBatch", "queryPlanning", "walCommit", "addBatch", "commitOffsets")


def identity(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def measure_batches(rounds: int, batches: int) -> dict[str, list[dict[str, float]]]:
    """One batch after the other without a pause, for both, and nothing else at work meanwhile."""
    settings = Settings(batch_rows=ROWS_A_BATCH, chaining="off")
    state = StateFolder.hold(None)
    found: dict[str, list[dict[str, float]]] = {"plain": [], "penstock": []}
    try:
        provider, here = LocalCluster(slots=1, cores=1, task_threads=24), str(Path(__file__).parent)
        with SparkHost("bench", provider, settings, state.path / "logs", [here]) as host:
            for index in range(rounds + 1):
                plain = trickle_plain(host.spark, state.path / f"plain-{index}", batches)
                penstock = trickle_penstock(host, settings, str(state.path / f"penstock-{index}"), batches)
                if index:  # the first round warms up
                    found["plain"].append(plain)
                    found["penstock"].append(penstock)
    finally:
        state.release()
    return found


def trickle_plain(spark: Any, folder: Path, batches: int) -> dict[str, float]:
    """Plain Structured Streaming's own micro-batch: one small file to the no-op sink."""
    data = folder / "in"
    data.mkdir(parents=True)
    for index in range(batches):
        pq.write_table(pa.table({"id": list(range(ROWS_A_BATCH))}), data / f"{index:04d}.parquet")
    frame = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(data))
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.start()
    while sum(one.numInputRows > 0 for one in query.recentProgress) < batches:
        time.sleep(0.1)
    durations = [dict(one.durationMs) for one in query.recentProgress if one.numInputRows > 0][3:]
    query.stop()
    return cost(durations)


def trickle_penstock(host: SparkHost, settings: Settings, state: str, batches: int) -> dict[str, float]:
    """The operator alone: the source has filled its channel before, the sink reads afterwards."""
    topology = Topology("trickle")
    rows = topology.source("rows", sources.rate(1_000_000, sources.numbers(), rows=batches * ROWS_A_BATCH))
    same = topology.map("same", identity, inputs=[rows], schema="id long, value double")
    topology.sink("out", sinks.noop(), inputs=[same])
    held = StateFolder.hold(state)
    try:
        run = SparkTopology(topology.definition(), host, held, settings)
        try:
            run.start(held={"same", "out"})
            until(lambda: run.query("rows").drained, run)
            query = run.query("same")
            run.gates.release("same")
            until(lambda: query.drained, run)
            assert query.query is not None
            durations = [dict(one.durationMs) for one in query.query.recentProgress if one.numInputRows > 0][3:]
        finally:
            run.stop(drain=False)
        return cost(durations)
    finally:
        held.release()


def until(condition: Callable[[], bool], run: SparkTopology) -> None:
    while not condition():
        run.check()
        time.sleep(0.1)


def cost(durations: list[dict[str, int]]) -> dict[str, float]:
    """Medians in ms."""
    medians = {part: statistics.median(one.get(part, 0) for one in durations) for part in PARTS}
    return medians | {"total": statistics.median(one["triggerExecution"] for one in durations)}
