"""Hashes beside rows: written with them, found again, dropped for everybody else, and done without where missing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.channels import key_hashes
from penstock.channels.key_hashes import hashed_schema, rows_by_task, rows_of_tasks, with_hashes, without_hashes
from penstock.channels.segments import SegmentStore, segment_name

KEYS = [("word",), ("n", "word")]


def rows(words: list[str | None]) -> pa.RecordBatch:
    return pa.record_batch({"word": pa.array(words, pa.string()), "n": pa.array(range(len(words)), pa.int64())})


@given(st.lists(st.one_of(st.none(), st.text(max_size=3))), st.integers(1, 9))
def test_every_row_belongs_to_one_task_and_keeps_its_order(words: list[str | None], tasks: int) -> None:
    plain = rows(words)
    for batch in (plain, with_hashes(plain, KEYS)):
        for key in KEYS:
            parts = [rows_of_tasks(batch, key, tasks, task, task + 1).to_pylist() for task in range(tasks)]
            assert sorted(row["n"] for part in parts for row in part) == list(range(len(words)))
            assert all(part == sorted(part, key=lambda row: row["n"]) for part in parts)
            if key == ("word",):
                kept = [{row["word"] for row in part} for part in parts]
                assert sum(map(len, kept)) == len(set(words)), "a key has one task"


@given(st.lists(st.text(max_size=3)), st.integers(1, 9))
def test_several_tasks_at_once(words: list[str], tasks: int) -> None:
    batch = with_hashes(rows(words), KEYS)
    assert rows_of_tasks(batch, KEYS[0], tasks, 0, tasks).equals(rows(words))


def test_others_see_the_rows_as_they_were_emitted() -> None:
    plain = rows(["a", "b", None])
    hashed = with_hashes(plain, KEYS)
    assert hashed.num_columns == 4
    assert hashed.schema.equals(hashed_schema(plain.schema, KEYS), check_metadata=True)
    assert without_hashes(hashed).equals(plain)
    assert without_hashes(plain) is plain


def test_a_column_of_the_users_with_the_same_name_is_the_users() -> None:
    plain = pa.record_batch({"__hash": pa.array([7, 8], pa.int32())})
    assert without_hashes(plain) is plain
    assert without_hashes(with_hashes(plain, [("__hash",)])).equals(plain)


def test_segments_keep_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = rows([*"abcdefgh"] * 10)
    store = SegmentStore(str(tmp_path))
    hashed = with_hashes(plain, KEYS)
    file = store.write("words", segment_name(0, 0), [hashed], hashed_schema(plain.schema, KEYS))
    expected = rows_of_tasks(plain, KEYS[1], 3, 1, 2)
    monkeypatch.setattr(key_hashes, "hash_of_rows", None)  # they are there, so nobody computes them again
    [read] = store.read(file.path)
    assert rows_of_tasks(read, KEYS[1], 3, 1, 2).equals(expected)
    assert without_hashes(read).equals(plain)


@given(st.lists(st.lists(st.one_of(st.none(), st.text(max_size=3))), min_size=1), st.integers(1, 9), st.booleans())
def test_all_tasks_at_once(parts: list[list[str | None]], tasks: int, hashed: bool) -> None:
    """Some batches have hashes and others do not: the parts are the same."""
    batches = [with_hashes(rows(part), KEYS) if hashed == bool(n % 2) else rows(part) for n, part in enumerate(parts)]
    for key in KEYS:
        for task, found in enumerate(rows_by_task(batches, key, tasks)):
            alone = [rows_of_tasks(batch, key, tasks, task, task + 1).to_pylist() for batch in batches]
            assert found.to_pylist() == [row for part in alone for row in part]
