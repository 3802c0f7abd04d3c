"""Running topologies are found by their user, and by nobody else; what the dead left is cleared."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from full_disk import no_room

from penstock.api.discovery import Entry, Phase, Running, _is_held, all_running, find, registry_folder, starting
from penstock.errors import PenstockError


def one(topology: str = "word_count", pid: int = 1) -> Running:
    return Running(topology, pid, "http://127.0.0.1:1", "secret", 1000.0, "/state")


def test_it_is_found_while_it_runs() -> None:
    with Entry(one()):
        assert all_running() == [one()]
        assert find() == find("word_count") == find("word_count:1") == one()
    assert all_running() == []


def test_a_second_one_of_the_same_name_in_one_process_leaves_the_first_alone() -> None:
    later = replace(one(), started_at=2000.0)
    with Entry(one()):
        with Entry(later):
            assert all_running() == [one(), later], "whoever takes the first one gets the one that runs"
        assert all_running() == [one()]


def test_nobody_else_can_read_it(registry: Path) -> None:
    registry.mkdir(mode=0o755, parents=True)
    with Entry(one()) as entry:
        assert stat.S_IMODE(entry.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(registry.stat().st_mode) == 0o700


def test_its_token_is_not_in_its_text() -> None:
    assert "secret" not in repr(one())


def test_what_a_killed_process_left_is_deleted(registry: Path) -> None:
    with Entry(one()) as entry:
        kept = entry.path.read_text()
    entry.path.write_text(kept)
    assert all_running() == []
    assert not entry.path.exists()


def test_a_file_that_cannot_be_read_is_passed_over_and_leaves_a_trace(
    registry: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = registry_folder()
    with Entry(one()), Entry(one(pid=2)) as entry:
        broken = entry.path
        broken.write_text("{")
        assert all_running() == [one()]
        assert f"{broken} does not tell of a running topology: JSONDecodeError" in "\n".join(caplog.messages)
        broken.write_text(json.dumps({"unknown": 1}))
        assert all_running() == [one()]
    assert list(folder.iterdir()) == []


def test_none_and_several_are_named_errors() -> None:
    with pytest.raises(PenstockError) as error:
        find()
    assert error.value.name == "NOTHING_RUNS"
    with ExitStack() as running:
        for made in (one(pid=1), one(pid=2), one("page_load", 3)):
            running.enter_context(Entry(made))
        for name in (None, "word_count"):
            with pytest.raises(PenstockError) as error:
                find(name)
            assert error.value.name == "SEVERAL_RUN"
        assert find("word_count:2") == one(pid=2)
        assert find("page_load").pid == 3
        with pytest.raises(PenstockError) as error:
            find("nobody")
        assert error.value.name == "NOTHING_RUNS"
        assert "page_load:3" in str(error.value)


def test_it_is_found_from_the_begin_of_its_start_to_its_very_end() -> None:
    with starting("word_count", own_process=True) as entry:
        [found] = all_running()
        assert (found.phase, found.url, found.pid, found.own_process) == (Phase.STARTING, "", os.getpid(), True)
        entry.opened("http://127.0.0.1:1", "secret", "/state")
        [found] = all_running()
        assert (found.phase, found.url, found.token) == (Phase.RUNNING, "http://127.0.0.1:1", "secret")
        entry.ending("Drained.")
        entry.ending()
        [found] = all_running()
        assert (found.phase, found.url, found.token, found.how) == (Phase.ENDING, "", "", "Drained.")
    assert all_running() == []


def test_who_has_an_older_file_open_does_not_take_it_for_one_of_the_dead() -> None:
    """Between opening a file and looking at its lock the topology may have written a new one under the same name."""
    with starting("word_count") as entry, entry.path.open() as older:
        entry.opened("http://127.0.0.1:1", "secret", "/state")
        assert _is_held(older.fileno())
        assert [one.phase for one in all_running()] == [Phase.RUNNING]


@contextmanager
def no_room_after_the_start() -> Iterator[Entry]:
    """There is none when the entry is left either."""
    with ExitStack() as room, starting("word_count") as entry:
        room.enter_context(no_room())
        yield entry


def test_an_end_that_finds_no_room_on_the_disk_hides_no_error(caplog: pytest.LogCaptureFixture) -> None:
    with no_room_after_the_start() as entry:
        entry.ending("It failed.")
    assert "the end could not be told to other processes: OSError" in "\n".join(caplog.messages)
    assert list(registry_folder().iterdir()) == []


def test_a_full_disk_at_the_start_is_a_named_error() -> None:
    with no_room(), pytest.raises(PenstockError) as error, starting("word_count"):
        pass
    assert error.value.name == "CONTROL_FAILED"
    with starting("word_count") as entry:
        with no_room(), pytest.raises(PenstockError) as error:
            entry.opened("http://127.0.0.1:1", "secret", "/state")
        assert error.value.name == "CONTROL_FAILED"
        assert [one.phase for one in all_running()] == [Phase.STARTING], "the file of before is there, and locked"
    assert list(registry_folder().iterdir()) == []


def test_what_a_killed_process_was_about_to_write_goes() -> None:
    left, fresh = registry_folder() / "words-1-ab.new", registry_folder() / "words-2-ab.new"
    left.write_text("{")
    os.utime(left, (1, 1))
    fresh.write_text("{")
    assert all_running() == []
    assert list(registry_folder().iterdir()) == [fresh]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(registry: Path) -> None:
    registry.mkdir(parents=True)
    os.chown(registry, 12345, 12345)
    with pytest.raises(PenstockError) as error:
        registry_folder()
    assert error.value.name == "CONTROL_FAILED"
