"""What `make soak` runs: every kind of stream at a steady rate, with a number of keys that never grows."""

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock import Topology, sinks, sources

RATE = 2_000
KEYS = 500


def refuse_some(batch: pa.RecordBatch) -> pa.RecordBatch:
    wrong = [row for row in batch.column("id").to_pylist() if row % 1_009 == 7]
    if wrong:
        raise ValueError(f"row {wrong[0]} is refused")
    return batch.select(["id", "key"])


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def count(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").count()


topology = Topology("soak")
events = topology.source("events", sources.rate(RATE, sources.events(keys=KEYS, seed=4)), instances=2)
good = topology.map(
    "refuse", refuse_some, inputs=[events], schema="id long, key string", instances=2, on_error="dead_letter"
)
by_key = topology.map("order", same, inputs=[good.by_key("key")], schema="id long, key string", instances=2, tasks=8)
counts = topology.keyed("count", count, inputs=[good], key="key", schema="key string, count long", tasks=4, instances=2)
topology.sink("rows", sinks.noop(), inputs=[by_key])
topology.sink("counts", sinks.noop(), inputs=[counts])
topology.sink("letters", sinks.noop(), inputs=[good.dead_letter])
