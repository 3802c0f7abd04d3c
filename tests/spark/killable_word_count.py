"""A word count in a process of its own, to be killed: `python killable_word_count.py FOLDER CLUSTER ROWS`.

It says "published" once the first batch has reached the sink, and "finished" at the end.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from penstock import Settings, Topology, sinks, sources
from penstock.cluster.local import LocalCluster
from penstock.cluster.standalone import StandaloneCluster
from penstock.engine.spark.host import SparkHost
from penstock.engine.state.folder import StateFolder
from penstock.engine.topology import SparkTopology

CONTENT = sources.sentences(words=5, vocabulary=300, seed=11)
RATE = 2_000


def split(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([pc.list_flatten(pc.utf8_split_whitespace(batch.column(0)))], names=["word"])


def count(frame):
    return frame.groupBy("word").count()


def main(folder: Path, cluster: str, rows: int) -> None:
    topology = Topology("killable")
    lines = topology.source("lines", sources.rate(RATE, CONTENT, rows=rows), instances=2)
    words = topology.map("split", split, inputs=[lines], schema="word string", instances=2)
    schema = "word string, count long"
    counts = topology.keyed("count", count, inputs=[words], key="word", schema=schema, tasks=4, instances=2)
    # Both: what came out of the stateless operator, row by row, and the counts.
    topology.sink("words", sinks.parquet(folder / "words"), inputs=[words])
    topology.sink("counts", sinks.parquet(folder / "counts"), inputs=[counts])
    shuffle = os.environ.get("PENSTOCK_TEST_SHUFFLE", "exchange")
    settings = Settings(batch_interval=0.3, batch_linger=0.02, retention_seconds=0.3, shuffle=shuffle)
    state = StateFolder.hold(str(folder / "state"))
    provider = (
        LocalCluster(slots=2, cores=1, task_threads=24)
        if cluster == "local"
        else StandaloneCluster(2, 1, 1, 24, folder / f"cluster-{time.time_ns()}")
    )
    with SparkHost("killable", provider, settings, folder / "logs", [str(Path(__file__).parent)]) as host:
        with SparkTopology(topology.definition(), host, state, settings) as run:
            said = False
            while not run.wait(0.1):
                if not said and run.statistics.totals("counts")[0]:
                    said = True
                    print("published", flush=True)
        print("finished", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
