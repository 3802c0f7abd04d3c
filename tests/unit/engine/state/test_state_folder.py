"""State folders: held by one process, and temporary ones do not outlive whoever was killed with them."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from penstock.engine.state.folder import StateFolder
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
