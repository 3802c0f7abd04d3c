"""A word count in a process of its own, to be killed: `python killable_word_count.py FOLDER CLUSTER ROWS`.

It says "published" once the first batch has reached the sink, and "finished" at the end.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from killable import run_to_its_end

from penstock import Settings, Topology, sinks, sources

CONTENT = sources.sentences(words=5, vocabulary=300, seed=11)
RATE = 1_000


def split(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([pc.list_flatten(pc.utf8_split_whitespace(batch.column(0)))], names=["word"])


def count(frame):
    return frame.groupBy("word").count()


def killable(folder: Path, rows: int) -> Topology:
    topology = Topology("killable")
    lines = topology.source("lines", sources.rate(RATE, CONTENT, rows=rows), instances=2)
    words = topology.map("split", split, inputs=[lines], schema="word string", instances=2)
    schema = "word string, count long"
    counts = topology.keyed("count", count, inputs=[words], key="word", schema=schema, tasks=3, instances=2)
    # Both: what came out of the stateless operator, row by row, and the counts.
    topology.sink("words", sinks.parquet(folder / "words"), inputs=[words])
    topology.sink("counts", sinks.parquet(folder / "counts"), inputs=[counts])
    return topology


def main(folder: Path, cluster: str, rows: int) -> None:
    shuffle = os.environ.get("PENSTOCK_TEST_SHUFFLE", "exchange")
    settings = Settings(latency_under_load=0.3, latency_spark=0.02, retention_seconds=0.3, shuffle=shuffle)
    run_to_its_end(killable(folder, rows), "counts", folder, cluster, settings)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
