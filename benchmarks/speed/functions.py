"""The functions that all engines run. Only pyarrow is needed: each engine has an environment of its own."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ArrowFunction = Callable[[pa.RecordBatch], pa.RecordBatch]
#: Rows that a reader of files hands to the functions at once, where the engine leaves that to the user.
BATCH_ROWS = 50_000


def lower(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([pc.utf8_lower(batch.column(0))], names=["sentence"])


def split(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([pc.list_flatten(pc.utf8_split_whitespace(batch.column(0)))], names=["word"])


def long_words(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.greater(pc.utf8_length(batch.column(0)), 3))


def describe(batch: pa.RecordBatch) -> pa.RecordBatch:
    words = batch.column(0)
    sums = pa.array([zlib.crc32(word.encode()) for word in words.to_pylist()], pa.int64())
    return pa.record_batch([words, pc.utf8_length(words).cast(pa.int32()), sums], names=["word", "length", "crc"])


CHAIN: tuple[ArrowFunction, ...] = (lower, split, long_words, describe)


def fused(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The four by hand in one."""
    for function in CHAIN:
        batch = function(batch)
    return batch


class Step:
    """One of the operators in a row: a little arithmetic on a column."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        value = pc.add(pc.multiply(batch.column(1), 1.0001), float(self.number))
        return pa.record_batch([batch.column(0), value], names=["id", "value"])


def steps(count: int) -> list[ArrowFunction]:
    return [Step(number) for number in range(count)]


def files_of(folder: str) -> list[str]:
    return sorted(str(file) for file in Path(folder).glob("*.parquet"))


def batches_of(file: str) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = pq.read_table(file).to_batches(max_chunksize=BATCH_ROWS)
    return batches
