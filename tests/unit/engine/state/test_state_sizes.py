"""What a task's state weighs, read from a checkpoint laid out as Spark does it (the real thing: test_live_changes)."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from penstock.engine.state.sizes import cheapest_tasks, logged_batches, state_bytes, state_sizes


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def snapshot(path: Path, *sizes: int) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    files = [{"localFileName": f"{i}.sst", "dfsSstFileName": f"{i}-u.sst", "sizeBytes": s} for i, s in enumerate(sizes)]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": files, "logFiles": [], "numKeys": 12}))
    return path.stat().st_size


def test_the_newest_snapshot_and_the_changes_since(tmp_path: Path) -> None:
    store = tmp_path / "state" / "0" / "0"
    snapshot(store / "3.zip", 1_000_000)
    newest = snapshot(store / "7.zip", 500, 20)
    write(store / "7.changelog", 9)
    write(store / "8.changelog", 30)
    write(store / "9.changelog", 4)
    write(store / "SSTs" / "0-u.sst", 500)
    assert state_bytes(str(tmp_path), 2) == [520 + newest + 34, 0]
    assert state_bytes(f"file:{tmp_path}", 1) == [520 + newest + 34]


def test_rows_are_those_of_the_newest_snapshot_and_unknown_without_one(tmp_path: Path) -> None:
    snapshot(tmp_path / "state" / "0" / "0" / "3.zip", 10)
    write(tmp_path / "state" / "0" / "1" / "1.changelog", 10)
    write(tmp_path / "state" / "0" / "2" / "_metadata" / "schema", 10)
    assert [size.rows for size in state_sizes(str(tmp_path), 4)] == [12, None, 0, 0]


def test_all_stores_and_operators_of_a_task_count(tmp_path: Path) -> None:
    write(tmp_path / "state" / "0" / "1" / "left-keyToNumValues" / "2.delta", 5)
    write(tmp_path / "state" / "0" / "1" / "right-keyToNumValues" / "2.snapshot", 7)
    write(tmp_path / "state" / "1" / "1" / "1.delta", 11)
    assert state_bytes(str(tmp_path), 2) == [0, 23]


def test_a_snapshot_that_cannot_be_read_counts_for_what_is_known(tmp_path: Path) -> None:
    write(tmp_path / "state" / "0" / "0" / "4.zip", 13)
    assert state_bytes(str(tmp_path), 1) == [13]


def test_no_state_yet(tmp_path: Path) -> None:
    assert state_bytes(str(tmp_path / "nowhere"), 3) == [0, 0, 0]


def test_what_the_target_has_goes_first_then_the_smallest() -> None:
    assert cheapest_tasks([0, 1, 2, 3], [50, 10, 40, 90], 2) == [1, 2]
    assert cheapest_tasks([0, 1, 2, 3], [50, 10, 40, 90], 2, held=frozenset({3})) == [3, 1]


def test_a_batch_without_an_end_is_seen(tmp_path: Path) -> None:
    assert logged_batches(str(tmp_path)) == (-1, -1)
    for log, batches in (("offsets", (0, 1, 10)), ("commits", (0, 1))):
        (tmp_path / log).mkdir()
        for batch in batches:
            (tmp_path / log / str(batch)).touch()
    (tmp_path / "commits" / ".10.crc").touch()
    assert logged_batches(str(tmp_path)) == (10, 1)
    (tmp_path / "commits" / "10").touch()
    assert logged_batches(str(tmp_path)) == (10, 10)
