"""State folders: held by one process, and temporary ones do not outlive whoever was killed with them."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.engine.state.folder import StateFolder
from penstock.engine.state.ownership import OWNER
from penstock.errors import PenstockError


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def age(folder: Path) -> None:
    long_ago = time.time() - 3600
    os.utime(folder / "lock", (long_ago, long_ago))


def test_a_folder_is_held_by_one(tmp_path: Path) -> None:
    held = StateFolder.hold(str(tmp_path / "state"))
    with pytest.raises(PenstockError) as error:
        StateFolder.hold(str(tmp_path / "state"))
    assert error.value.name == "STATE_IN_USE"
    held.release()
    assert held.path.exists()


def test_a_temporary_one_goes_when_it_is_released(temporary: Path) -> None:
    held = StateFolder.hold(None)
    assert held.path.parent == temporary
    held.release()
    assert not held.path.exists()


def test_what_a_killed_process_left_goes_with_the_next_start(temporary: Path) -> None:
    abandoned, used = StateFolder.hold(None), StateFolder.hold(None)
    abandoned._lock.close()  # as the system does when a process is killed
    young = StateFolder.hold(None)
    young._lock.close()
    age(abandoned.path)
    age(used.path)
    new = StateFolder.hold(None)
    assert not abandoned.path.exists()
    assert used.path.exists(), "somebody holds it"
    assert young.path.exists(), "somebody may be about to hold it"
    used.release()
    new.release()


def left_behind(folder: Path, *places: Path, lock: Path | None = None) -> None:
    """A temporary state that names these places: as a driver that was killed leaves it, or as others forge it."""
    folder.mkdir()
    if lock is None:
        (folder / "lock").touch()
        age(folder)
    else:
        (folder / "lock").symlink_to(lock)
    fields = {"topology": "words", "identity": "0a0b0c0d", "places": [str(place) for place in places]}
    (folder / OWNER).write_text(json.dumps(fields))


def test_a_lock_that_points_elsewhere_has_nothing_deleted(temporary: Path) -> None:
    """Another user can make a folder here, and link to an old file of ours."""
    file, data = temporary / "old-file", temporary / "words-0a0b0c0d"
    file.touch()
    os.utime(file, (0, 0))
    data.mkdir()
    forged = temporary / "penstock-state-forged"
    left_behind(forged, data, lock=file)
    StateFolder.hold(None).release()
    assert data.exists()
    assert forged.exists()


def test_a_folder_of_another_user_is_left_alone(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the lock in it is a file of ours: others can link to it, and can move it."""
    data, other = temporary / "words-0a0b0c0d", temporary / "penstock-state-other"
    data.mkdir()
    left_behind(other, data)
    true_lstat = Path.lstat

    def lstat(path: Path) -> Any:
        found = true_lstat(path)
        return SimpleNamespace(st_mode=found.st_mode, st_uid=found.st_uid + 1) if path == other else found

    monkeypatch.setattr(Path, "lstat", lstat)
    linked = temporary / "penstock-state-linked"
    linked.symlink_to(other)
    StateFolder.hold(None).release()
    assert data.exists()
    assert (other / "lock").exists()


def test_only_places_with_the_name_of_the_owner_go_with_a_state(temporary: Path) -> None:
    mine, foreign = temporary / "data" / "words-0a0b0c0d", temporary / "data" / "letters"
    mine.mkdir(parents=True)
    foreign.mkdir()
    abandoned = temporary / "penstock-state-abandoned"
    left_behind(abandoned, mine, foreign)
    StateFolder.hold(None).release()
    assert not abandoned.exists()
    assert not mine.exists()
    assert foreign.exists()
