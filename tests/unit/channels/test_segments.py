"""Segment files: what is written comes back, by any range of rows, on any file system, and trouble has a name."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from penstock.channels.keys import grouped_schema, rows_of_groups, sort_by_group
from penstock.channels.segments import SegmentStore, batch_of_name, segment_name
from penstock.errors import PenstockError

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def rows(start: int, stop: int) -> pa.RecordBatch:
    numbers = range(start, stop)
    return pa.record_batch([list(numbers), [f"row {n}" for n in numbers]], schema=SCHEMA)


def numbers(batches) -> list[int]:
    return [n for batch in batches for n in batch.column("n").to_pylist()]


@pytest.fixture(params=["path", "uri", "subtree", "mock"])
def store(request, tmp_path: Path) -> SegmentStore:
    local = fs.LocalFileSystem()
    if request.param == "path":
        return SegmentStore(str(tmp_path), max_batch_rows=10)
    if request.param == "uri":
        return SegmentStore(tmp_path.as_uri(), max_batch_rows=10)
    if request.param == "subtree":
        return SegmentStore("logs", filesystem=fs.SubTreeFileSystem(str(tmp_path), local), max_batch_rows=10)
    return SegmentStore("logs", filesystem=fs._MockFileSystem(), max_batch_rows=10)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_rows_come_back(tmp_path: Path, compression: str | None) -> None:
    store = SegmentStore(str(tmp_path), compression)
    written = store.write("words", "a.arrow", [rows(0, 50), rows(50, 53)], SCHEMA)
    assert (written.path, written.rows) == ("words/a.arrow", 53)
    if compression is None:
        assert written.bytes == (tmp_path / written.path).stat().st_size
    assert pa.Table.from_batches(store.read(written.path)).equals(pa.Table.from_batches([rows(0, 53)]))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_compressed_segment_counts_as_it_is_in_memory(tmp_path: Path, compression: str) -> None:
    """Bounds on batches and backlogs are for memory: text that shrinks to a hundredth takes as much once it is read."""
    text = pa.record_batch([list(range(10_000)), ["the same text again"] * 10_000], schema=SCHEMA)
    plain = SegmentStore(str(tmp_path / "plain")).write("words", "a.arrow", [text], SCHEMA)
    small = SegmentStore(str(tmp_path / "small"), compression).write("words", "a.arrow", [text], SCHEMA)
    assert (tmp_path / "small" / small.path).stat().st_size < plain.bytes / 3
    assert small.bytes == pytest.approx(plain.bytes, rel=0.02)


def test_a_few_large_rows_among_small_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is affordable on the average may be too much where the large ones are."""
    monkeypatch.setattr("penstock.channels.segments.MAX_BATCH_BYTES", 100_000)
    monkeypatch.setattr("penstock.channels.segments.LARGEST_BATCH_BYTES", 30_000)
    store = SegmentStore(str(tmp_path))
    texts = ["x"] * 4_000 + ["y" * 10_000] * 8 + ["z"] * 4_000
    table = pa.record_batch([list(range(len(texts))), texts], schema=SCHEMA)
    path = store.write("words", "a.arrow", [table], SCHEMA).path
    read = list(store.read(path))
    assert max(batch.nbytes for batch in read) <= 30_000
    assert len({batch.num_rows for batch in read[:-1]}) == 1
    assert pa.Table.from_batches(read).equals(pa.Table.from_batches([table]))


def test_any_range_of_rows_can_be_read(store: SegmentStore) -> None:
    path = store.write("words", segment_name(0, 0), [rows(0, 7), rows(7, 35)], SCHEMA).path
    for start in range(36):
        for stop in range(start, 36):
            assert numbers(store.read(path, start, stop)) == list(range(start, stop))
    assert numbers(store.read(path, 33)) == [33, 34]


def test_batches_are_merged_and_bounded(store: SegmentStore) -> None:
    tiny = [rows(n, n + 1) for n in range(24)]
    path = store.write("words", segment_name(0, 0), [*tiny, rows(24, 47)], SCHEMA).path
    assert [batch.num_rows for batch in store.read(path)] == [10, 10, 10, 10, 7]


def test_wide_rows_make_smaller_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.channels.segments.MAX_BATCH_BYTES", 8_000)
    store = SegmentStore(str(tmp_path))
    schema = pa.schema([("blob", pa.binary())])
    wide = pa.record_batch([[b"x" * 1_000] * 10], schema=schema)
    path = store.write("blobs", segment_name(0, 0), [wide], schema).path
    assert [batch.num_rows for batch in store.read(path)] == [7, 3]


def test_metadata_of_the_schema_is_kept_and_ours_is_not_seen(store: SegmentStore) -> None:
    described = SCHEMA.with_metadata({"unit": "words"})
    batch = rows(0, 3).replace_schema_metadata({"unit": "words"})
    path = store.write("words", "a.arrow", [batch], described).path
    assert next(store.read(path)).schema.equals(described, check_metadata=True)
    plain = store.write("words", "b.arrow", [rows(0, 3)], SCHEMA).path
    assert next(store.read(plain)).schema.metadata is None


def test_dictionaries_of_several_batches_are_unified(store: SegmentStore) -> None:
    schema = pa.schema([("word", pa.dictionary(pa.int32(), pa.string()))])
    batches = [
        pa.record_batch([pa.array(words).dictionary_encode()], schema=schema)
        for words in (["a", "b"] * 4, ["c", "a"] * 4, ["d"])
    ]
    path = store.write("words", "a.arrow", batches, schema).path
    words = [word for batch in store.read(path) for word in batch.column("word").to_pylist()]
    assert words == ["a", "b"] * 4 + ["c", "a"] * 4 + ["d"]


def test_batches_that_are_split_by_key_stay_sorted_when_merged(store: SegmentStore) -> None:
    split = [sort_by_group(rows(start, start + 5), ["n"], 4) for start in range(0, 30, 5)]
    path = store.write("words", "a.arrow", split, grouped_schema(SCHEMA)).path
    by_group = [numbers(rows_of_groups(batch, group, group + 1) for batch in store.read(path)) for group in range(4)]
    assert sorted(n for some in by_group for n in some) == list(range(30))
    assert all(some == sorted(some) for some in by_group)


def test_local_reads_copy_nothing(tmp_path: Path) -> None:
    store = SegmentStore(str(tmp_path))
    path = store.write("words", "a.arrow", [rows(0, 20_000)], SCHEMA).path
    before = pa.total_allocated_bytes()
    batches = list(store.read(path, 100, 19_000))
    assert pa.total_allocated_bytes() == before
    store.delete([path])
    assert numbers(batches) == list(range(100, 19_000))


def test_delete_and_list(store: SegmentStore) -> None:
    assert store.list("words") == []
    paths = sorted(store.write("words", segment_name(0, n), [rows(0, 1)], SCHEMA).path for n in range(3))
    store.write("other", "a.arrow", [rows(0, 1)], SCHEMA)
    assert store.list("words") == paths
    store.delete([paths[0], "words/never-there.arrow", paths[0]])
    assert store.list("words") == paths[1:]


def test_a_folder_that_went_away_is_made_again(store: SegmentStore) -> None:
    store.write("words", "a.arrow", [rows(0, 1)], SCHEMA)
    filesystem, root = store._filesystem()
    filesystem.delete_dir(f"{root}/words")
    assert store.write("words", "b.arrow", [rows(0, 1)], SCHEMA).rows == 1


def test_nothing_to_write_is_a_mistake_and_leaves_no_file(store: SegmentStore) -> None:
    with pytest.raises(ValueError, match="at least one row"):
        store.write("words", "a.arrow", [rows(0, 0)], SCHEMA)
    assert store.list("words") == []


def assert_unreadable(store: SegmentStore, path: str, start: int = 0, stop: int | None = None) -> None:
    with pytest.raises(PenstockError) as caught:
        list(store.read(path, start, stop))
    assert caught.value.name == "SEGMENT_UNREADABLE"
    assert path in str(caught.value)


def test_a_missing_file_has_a_named_error(store: SegmentStore) -> None:
    assert_unreadable(store, "words/none.arrow")


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_file_has_a_named_error(tmp_path: Path, kept: float) -> None:
    store = SegmentStore(str(tmp_path))
    written = store.write("words", "a.arrow", [rows(0, 1000)], SCHEMA)
    os.truncate(tmp_path / written.path, int(written.bytes * kept))
    assert_unreadable(store, written.path)
    assert_unreadable(
        SegmentStore("", filesystem=fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())), written.path
    )


def test_a_file_of_another_program_has_a_named_error(tmp_path: Path) -> None:
    (tmp_path / "words").mkdir()
    with pa.OSFile(str(tmp_path / "words/a.arrow"), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_batch(rows(0, 3))
    assert_unreadable(SegmentStore(str(tmp_path)), "words/a.arrow")


def test_a_segment_with_fewer_rows_than_expected_has_a_named_error(store: SegmentStore) -> None:
    path = store.write("words", "a.arrow", [rows(0, 25)], SCHEMA).path
    assert_unreadable(store, path, 0, 26)
    assert_unreadable(store, path, 90, 91)


def test_a_file_that_is_only_half_written_is_never_read_as_whole(tmp_path: Path) -> None:
    """A writer that fails in mid-file leaves something that has a name, and no reader takes for a segment."""
    store = SegmentStore(str(tmp_path), max_batch_rows=10)
    wrong = pa.record_batch([pa.array(["x"]), pa.array(["y"])], names=["n", "text"])

    def cut_off(*_: object):
        yield rows(0, 10)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("penstock.channels.segments._coalesced", cut_off)
        store.write("words", segment_name(0, 0), [rows(0, 20)], SCHEMA)
    for path in store.list("words"):
        assert_unreadable(store, path, 0, 20)
    with pytest.raises(pa.ArrowInvalid):
        store.write("words", segment_name(0, 1), [wrong], SCHEMA)


def test_an_unknown_file_system_has_a_named_error() -> None:
    with pytest.raises(PenstockError) as caught:
        SegmentStore("nope://bucket/logs").list("words")
    assert caught.value.name == "BAD_SETTING"


def test_a_relative_root_means_the_same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = SegmentStore("logs")
    path = store.write("words", "a.arrow", [rows(0, 2)], SCHEMA).path
    monkeypatch.chdir("/")
    assert numbers(pickle.loads(pickle.dumps(store)).read(path)) == [0, 1]


def test_another_process_reads_with_a_pickled_store(tmp_path: Path) -> None:
    store = SegmentStore(str(tmp_path), "lz4")
    path = store.write("words", "a.arrow", [rows(0, 9)], SCHEMA).path
    code = "import pickle, sys; print(sum(it.num_rows for it in pickle.load(sys.stdin.buffer).read(sys.argv[1])))"
    done = subprocess.run(
        [sys.executable, "-c", code, path], input=pickle.dumps(store), capture_output=True, check=True
    )
    assert done.stdout.strip() == b"9"
    assert len(pickle.dumps(store)) < 500


def test_sync_writes_the_same(tmp_path: Path) -> None:
    store = SegmentStore(str(tmp_path), sync=True)
    assert numbers(store.read(store.write("words", "a.arrow", [rows(0, 4)], SCHEMA).path)) == [0, 1, 2, 3]


def test_names_are_unique_and_tell_the_batch() -> None:
    names = {segment_name(12, 3) for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith("0000000012-00003-") for name in names)
    assert {batch_of_name(f"words/{name}") for name in names} == {12}
    assert batch_of_name("words/README.md") is None


def test_a_segment_that_could_not_be_written_leaves_no_part_of_itself(
    store: SegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk every attempt would take what room there is, and its number is swept only when it is published."""

    def full(*_: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("penstock.channels.segments._coalesced", full)
    batch = pa.record_batch({"n": [1, 2, 3]})
    with pytest.raises(OSError, match="No space left"):
        store.write("out", segment_name(1, 0), [batch], batch.schema)
    assert store.list("out") == []
