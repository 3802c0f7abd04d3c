"""This topology counts the words of made-up sentences.

    penstock run examples/word_count.py --cluster standalone --machines 2

`split` is an Arrow function: it takes and returns whole batches, and no row becomes a Python object. `count` is a
DataFrame function: Spark keeps the counts, split by word into the four tasks of the operator, and emits the counts that
have changed. The sink only counts these rows; with sinks.console() it would print them.
"""

import pyarrow as pa
import pyarrow.compute as pc

from penstock import Topology, sinks, sources


def split(batch: pa.RecordBatch) -> pa.RecordBatch:
    words = pc.list_flatten(pc.utf8_split_whitespace(pc.utf8_lower(batch.column("sentence"))))
    return pa.record_batch({"word": words.filter(pc.not_equal(words, ""))})


def count(words):
    return words.groupBy("word").count()


topology = Topology("word_count")
sentences = topology.source("spout", sources.rate(2000, sources.sentences(words=10, skew=1.0)))
words = topology.map("split", split, inputs=sentences, schema="word string", instances=2)
counts = topology.keyed(
    "count", count, inputs=words, key="word", schema="word string, count long", tasks=4, instances=2
)
topology.sink("out", sinks.noop(), inputs=counts)
