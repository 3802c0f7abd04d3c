"""What a machine keeps of others' segments has a bound, and is fetched once."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from penstock.channels.kept_pieces import ROOM_PARTS, KeptPieces, make_room
from penstock.channels.origins import Origins, origin_of


def test_what_is_kept_is_not_fetched_again(tmp_path):
    kept = KeptPieces(tmp_path / "kept", 1000)
    asked = []

    def fetch(came) -> bytes:
        asked.append(1)
        return b"rows"

    assert [kept.get("a", fetch).to_pybytes() for _ in range(3)] == [b"rows"] * 3
    assert asked == [1]


def test_what_cannot_be_fetched_is_not_kept(tmp_path):
    kept = KeptPieces(tmp_path, 1000)
    assert kept.get("a", lambda came: None) is None
    found = kept.get("a", lambda came: b"rows")
    assert found is not None


def test_what_a_killed_worker_was_writing_counts_and_goes(tmp_path):
    (tmp_path / "0123.new").write_bytes(b"x" * 600)
    os.utime(tmp_path / "0123.new", (1, 1))
    (tmp_path / "late.piece").write_bytes(b"x" * 600)
    make_room(tmp_path, 1000)
    assert [file.name for file in tmp_path.iterdir()] == ["late.piece"]


def test_what_finds_no_room_leaves_nothing(tmp_path, monkeypatch):
    def full(self: Path, content: bytes) -> int:
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="space"):
        KeptPieces(tmp_path, 1000).get("a", lambda came: b"rows")
    assert [file.suffix for file in tmp_path.iterdir()] == [".lock"]


def test_who_waits_is_told_whether_something_comes_to_who_fetches(tmp_path):
    kept, fetching, told = KeptPieces(tmp_path, 1000), threading.Event(), threading.Event()
    heard = []

    def slow(came) -> bytes:
        fetching.set()
        while not told.wait(0.01):
            came()
        return b"rows"

    def waits(came: bool) -> None:
        heard.append(came)
        if came:
            told.set()

    first = threading.Thread(target=kept.get, args=("a", slow))
    first.start()
    assert fetching.wait(10)
    found = kept.get("a", lambda came: b"other rows", waits)
    first.join()
    assert found.to_pybytes() == b"rows"
    assert True in heard


def test_who_waits_may_stop_waiting(tmp_path):
    kept, fetching, over = KeptPieces(tmp_path, 1000), threading.Event(), threading.Event()

    def stuck(came) -> None:
        fetching.set()
        over.wait(30)

    def waits(came: bool) -> None:
        assert not came
        raise TimeoutError

    first = threading.Thread(target=kept.get, args=("a", stuck))
    first.start()
    assert fetching.wait(10)
    with pytest.raises(TimeoutError):
        kept.get("a", lambda came: b"rows", waits)
    over.set()
    first.join()


def test_the_oldest_go_first(tmp_path):
    kept = KeptPieces(tmp_path, 250)
    for number in range(4):
        kept.get(str(number), lambda came: bytes(100))
        for file in tmp_path.glob("*.piece"):
            status = file.stat()
            os.utime(file, (status.st_atime, status.st_mtime - 10))
    assert len(list(tmp_path.glob("*.piece"))) == 2
    asked = []
    kept.get("3", lambda came: asked.append(1) or b"")
    assert asked == [], "the newest is still there"


def test_room_is_made_in_folders_below(tmp_path):
    for channel in ("a", "b"):
        (tmp_path / channel).mkdir()
        (tmp_path / channel / "one.arrow").write_bytes(bytes(100))
    os.utime(tmp_path / "a" / "one.arrow", (1, 1))
    make_room(tmp_path, 150)
    assert [file.parent.name for file in tmp_path.rglob("*.arrow")] == ["b"]


def test_pieces_of_others_and_own_segments_have_one_bound(tmp_path):
    for name, age in (("a.piece", 3), ("b.arrow", 2), ("c.piece", 1), ("d.arrow", 0)):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    (tmp_path / "server.lock").write_bytes(bytes(100))
    make_room(tmp_path, 250)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["c.piece", "d.arrow", "server.lock"]


def test_nobody_prints_the_token():
    origins = Origins.with_new_token(7, 8)
    assert origins.token not in repr(origins)
    assert Origins.of_environment(origins.as_variable()) == origins
    assert Origins.of_environment({}) is None


def test_a_slot_says_which_machine_wrote():
    assert origin_of("10.77.0.2/1") == "10.77.0.2"
    assert [origin_of(slot) for slot in ("local/0", "task/3", "driver")] == [None] * 3


def test_the_bound_holds_for_small_pieces_whoever_keeps_them(tmp_path):
    """Every piece is kept by an object of its own, and a small one alone is no reason to look at all files."""
    for number in range(200):
        KeptPieces(tmp_path, 100_000).get(str(number), lambda came: b"x" * 5_000)
    kept = sum(file.stat().st_size for file in tmp_path.glob("*.piece"))
    assert 50_000 <= kept <= 100_000 * (1 + 1 / ROOM_PARTS) + 5_000
