"""What each workload reads, by row number: for the files of the throughput, and for rows as they are due."""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa

from penstock import sources
from penstock.sources.content import Content

BOARDS = "board string, item string, points long"
BOARD_NAMES = pa.array([f"board-{one}" for one in range(1_000)])
ITEM_NAMES = pa.array([f"item-{one}" for one in range(100_000)])


def boards(first: int, count: int) -> pa.RecordBatch:
    """Every row number has a row of its own, whoever asks: drawn by multiplying, not by a generator's state."""
    mixed = np.arange(first, first + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return pa.record_batch(
        {
            "board": BOARD_NAMES.take(pa.array(mixed % np.uint64(1_000))),
            "item": ITEM_NAMES.take(pa.array((mixed >> np.uint64(10)) % np.uint64(100_000))),
            "points": pa.array((mixed >> np.uint64(24)).astype(np.int64)),
        }
    )


@functools.cache
def content_of(workload: str) -> Content:
    if workload in ("chain", "word-count", "sentences"):
        return sources.sentences(words=10, vocabulary=10_000, seed=1)
    return sources.generated(boards, BOARDS) if workload == "top-n" else sources.numbers()
