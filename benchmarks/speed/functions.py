"""The functions that all engines run. Only pyarrow is needed: each engine has an environment of its own."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ArrowFunction = Callable[[pa.RecordBatch], pa.RecordBatch]
#: Rows that a reader of files hands to the functions at once, where the engine leaves that to the user.
BATCH_ROWS = 50_000
#: Seconds at a rate that do not count, and that do.
SETTLE, MEASURE = 15.0, 20.0
#: Sines that an operator takes of a row where it is to have work.
WORK_PASSES = 3
#: Latencies that stand for those of a batch's rows.
POINTS = 8


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


def fused(functions: Sequence[ArrowFunction]) -> ArrowFunction:
    """All of them by hand in one."""

    def all_of_them(batch: pa.RecordBatch) -> pa.RecordBatch:
        for function in functions:
            batch = function(batch)
        return batch

    return all_of_them


class Step:
    """One of the operators in a row: a little arithmetic on a column."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        value = pc.add(pc.multiply(batch.column(1), 1.0001), float(self.number))
        return pa.record_batch([batch.column(0), value], names=["id", "value"])


class Work:
    """More of it: some 60 ns a row, so that what an engine adds for an operator is seen beside what it does."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        value = batch.column(1)
        for _ in range(WORK_PASSES):
            value = pc.sin(value)
        return pa.record_batch([batch.column(0), value], names=["id", "value"])


def steps(count: int) -> list[ArrowFunction]:
    return [Step(number) for number in range(count)]


def quantiles(parts: list[tuple[float, float, int]]) -> dict[str, float]:
    """p50 and p99 of rows that came in batches, each (shortest latency, longest, rows) and spread evenly in between."""
    points = sorted(
        (low + (high - low) * (index + 0.5) / POINTS, rows / POINTS)
        for low, high, rows in parts
        for index in range(POINTS)
    )
    total = sum(rows for _, rows in points)
    found = {}
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        passed = itertools.accumulate(rows for _, rows in points)
        found[name] = next(value for (value, _), so_far in zip(points, passed, strict=True) if so_far >= share * total)
    return found


def files_of(folder: str) -> list[str]:
    return sorted(str(file) for file in Path(folder).glob("*.parquet"))


def batches_of(file: str) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = pq.read_table(file).to_batches(max_chunksize=BATCH_ROWS)
    return batches
