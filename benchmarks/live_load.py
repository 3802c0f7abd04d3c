"""The load of the live benchmark, the same for Penstock and for plain Structured Streaming.

Row n first fills the state: rows 0 .. keys - 1 have a key each. All later rows have one of these keys, at random. The
key and the text of a row follow from its number, so that every count can be computed afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.sources.counter import Draws, below, draws, places

TASKS = 8
#: Spark's names of machines' resources: one slot a machine, on which this many Spark tasks run side by side.
MACHINES, SLOTS, CORES, TASK_THREADS, MEMORY_MB = 2, 1, 1, 24, 1024
#: Characters of a row's text. They are random, so that compression does not make the state smaller than it looks.
TEXT = 240
#: Bytes that a key takes in the state: the text, the key, the count and what Spark's rows and RocksDB add. An estimate:
#: the bytes that were found are in the results.
STATE_ROW_BYTES = 290
_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)


@dataclass(frozen=True)
class Load:
    """What flows, and how long it is watched: seconds of calm before each action, and seconds after it."""

    rate: int
    state_mb: float
    before: float
    after: float
    #: Seconds until the code is compiled and the batches are alike.
    warm_up: float
    #: Of the keyed operator; and characters of a row's text, in eights: with more of them, fewer keys fill the state.
    tasks: int = TASKS
    text: int = TEXT
    #: Seconds over which the first rows, which fill the state, are due.
    filling: float = 5.0

    @property
    def keys(self) -> int:
        return int(self.state_mb * 1e6 * self.tasks / (self.text + STATE_ROW_BYTES - TEXT))

    @property
    def more_tasks(self) -> int:
        """What a repartition cuts the state into."""
        return 2 * self.tasks

    @property
    def cut(self) -> str:
        """How Penstock's repartition is called in the tables."""
        return f"repartition {self.tasks} to {self.more_tasks}"

    @property
    def plain_cut(self) -> str:
        return f"stop, {self.cut}, start"


def row_numbers(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(np.arange(first, first + count, dtype=np.int64))], names=["id"])


def keys_of(ids: Draws, keys: int) -> Draws:
    return np.where(ids < keys, ids, below(draws(7, 0, ids), keys))


def expected_counts(rows: int, keys: int) -> Any:
    """How often each key is in the first so many rows."""
    return np.bincount(keys_of(places(0, rows), keys).astype(np.int64), minlength=keys)


@dataclass(frozen=True)
class Shape:
    """The map: gives a row its key and its text. An Arrow function for both engines."""

    keys: int
    text: int = TEXT

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        ids = batch.column(0).to_numpy(zero_copy_only=False).astype(np.uint64)
        words = self.text // 8
        at = (ids[:, None] * np.uint64(words) + np.arange(words, dtype=np.uint64)).ravel()
        letters = _LETTERS[draws(3, 0, at).view(np.uint8) & 63]
        offsets = np.arange(len(ids) + 1, dtype=np.int32) * np.int32(self.text)
        texts = pa.StringArray.from_buffers(len(ids), pa.py_buffer(offsets), pa.py_buffer(letters))
        return pa.record_batch([pa.array(keys_of(ids, self.keys).astype(np.int64)), texts], names=["key", "text"])

    def each(self, batches: Any) -> Any:
        return map(self, batches)


def count(frame: Any) -> Any:
    """The keyed operator: a count and the largest text of each key, which is what makes its state large."""
    from pyspark.sql import functions as F

    found = frame.groupBy("key").agg(F.count("*").alias("count"), F.max("text").alias("largest"))
    return found.select("key", "count", F.length("largest").alias("size"))


def check_counts(counts: pa.Table, rows: int, keys: int) -> None:
    """Raise unless the last count of every key is what it must be after so many rows: nothing lost, nothing doubled."""
    last = counts.group_by("key").aggregate([("count", "max")])
    found = np.zeros(keys, np.int64)
    found[last["key"].to_numpy()] = last["count_max"].to_numpy()
    wrong = int((found != expected_counts(rows, keys)).sum())
    total = pc.sum(last["count_max"]).as_py()
    if wrong or total != rows:
        raise RuntimeError(f"{rows} rows were emitted and {total} are counted; {wrong} keys are wrong")
