"""A topology that reads Kafka in a process of its own, to be killed: `killable_kafka.py FOLDER SERVERS CLUSTER ROWS`.

It says "published" once the first batch has reached the sink, and "finished" when every message is there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from killable import run_to_its_end

from penstock import Settings, Topology, sinks, sources

SECONDS_A_ROW = 1e-4


def unchanged(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def unhurried(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Takes its time, so that whoever kills it finds it in the middle."""
    time.sleep(batch.num_rows * SECONDS_A_ROW)
    return batch


def with_users(batch: pa.RecordBatch) -> pa.RecordBatch:
    numbers = batch.column(0).to_pylist()
    users = [f"user {n % 7}" for n in numbers]
    columns = [pa.array(users, pa.string()), batch.column(0), pa.array(["here"] * len(numbers), pa.string())]
    return pa.record_batch(columns, names=["user", "n", "origin"])


def reading(
    servers: str,
    folder: Path,
    instances: int = 2,
    chained: bool = True,
    function: Callable[[pa.RecordBatch], pa.RecordBatch] = unchanged,
) -> Topology:
    topology = Topology("kafka")
    spec = sources.kafka(servers, "numbers", value="text", metadata=["partition", "offset"], follow=False)
    numbers = topology.source("numbers", spec, instances=instances, chained=chained)
    schema = "value string, partition int, offset long"
    same = topology.map("same", function, inputs=[numbers], schema=schema, instances=instances)
    topology.sink("out", sinks.parquet(folder / "out"), inputs=[same], instances=instances)
    return topology


def main(folder: Path, servers: str, cluster: str, batch_rows: int) -> None:
    settings = Settings(latency_under_load=0.3, latency_spark=0.02, retention_seconds=0.3, rows_at_once=batch_rows)
    # Apart: so that rows also lie in a channel when the driver dies.
    topology = reading(servers, folder, chained=False, function=unhurried)
    run_to_its_end(topology, "out", folder, cluster, settings)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
