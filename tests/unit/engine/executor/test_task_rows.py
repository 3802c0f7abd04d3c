"""A worker splits a small batch for all tasks at once; whatever it keeps, a task gets its rows and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.channels.key_hashes import hashed_schema, with_hashes
from penstock.channels.segments import SegmentStore, segment_name
from penstock.engine.executor import task_rows
from penstock.engine.executor.readers import ChannelReader
from penstock.engine.message.shares import Descriptor, Piece, Spread

TASKS, KEY = 4, ("word",)
STRICT = pa.schema([pa.field("word", pa.string(), nullable=False), ("n", pa.int64())])
LOOSE = pa.schema([("word", pa.string()), ("n", pa.int64())])


class CountingStore(SegmentStore):
    """Counts how often a segment is opened."""

    opened = 0

    def read(self, path: str, start: int = 0, stop: int | None = None) -> Iterator[pa.RecordBatch]:
        self.opened += 1
        return super().read(path, start, stop)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_rows, "_kept", {})


@pytest.fixture
def store(tmp_path: Path) -> CountingStore:
    return CountingStore(str(tmp_path))


def written(store: SegmentStore, channel: str, numbers: range, schema: pa.Schema = LOOSE, hashed: bool = True) -> str:
    batch = pa.record_batch([[f"w{n % 7}" for n in numbers], list(numbers)], schema=schema)
    if hashed:
        batch, schema = with_hashes(batch, [KEY]), hashed_schema(schema, [KEY])
    return store.write(channel, segment_name(numbers.start, 0), [batch], schema).path


def rows(store: SegmentStore, paths: list[str], task: int) -> list[int]:
    pieces = tuple(Piece(path, 1, 9, Spread.BY_TASK, 1.0, 2.0, "a/0", task, task + 1) for path in paths)
    reader = ChannelReader(store, LOOSE, KEY, TASKS)
    return [n for batch in reader.rows(Descriptor("a/0", 1, pieces, None)) for n in batch.column("n").to_pylist()]


def expected(paths: int) -> list[int]:
    return [n for first in range(0, 10 * paths, 10) for n in range(first + 1, first + 9)]


@pytest.mark.parametrize("most", [task_rows.MOST_ROWS, 3], ids=["at once", "piece by piece"])
@pytest.mark.parametrize("most_bytes", [task_rows.MOST_BYTES, 3], ids=["small", "large"])
def test_the_tasks_share_all_rows(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch, most: int, most_bytes: int
) -> None:
    """Segments with hashes and without, of two inputs that differ in what may be null."""
    monkeypatch.setattr(task_rows, "MOST_ROWS", most)
    monkeypatch.setattr(task_rows, "MOST_BYTES", most_bytes)
    paths = [
        written(store, "a.out", range(0, 10)),
        written(store, "a.out", range(10, 20), hashed=False),
        written(store, "b.out", range(20, 30), STRICT),
    ]
    found = [rows(store, paths, task) for task in range(TASKS)]
    assert all(of_task == sorted(of_task) for of_task in found)
    assert sorted(n for of_task in found for n in of_task) == expected(3)


def test_a_worker_opens_segments_once_a_batch(store: CountingStore) -> None:
    paths = [written(store, "a.out", range(n, n + 10)) for n in (0, 10)]
    for task in (2, 0, 3, 2):
        rows(store, paths, task)
    assert store.opened == 2
    rows(store, paths[:1], 0)
    assert store.opened == 3, "another batch of the same input"
    rows(store, paths, 1)
    assert store.opened == 5, "only the newest batch of an input is kept"


def test_little_is_kept(store: CountingStore) -> None:
    paths = [written(store, f"{n}.out", range(10)) for n in range(task_rows.MOST_INPUTS + 2)]
    for path in paths:
        rows(store, [path], 0)
    assert len(task_rows._kept) == task_rows.MOST_INPUTS
    before = store.opened
    rows(store, paths[-1:], 1)
    assert store.opened == before, "the newest are kept"
