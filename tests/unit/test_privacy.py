"""Folders that are made for a run are for its owner only, whatever the umask says."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.engine.state.folder import StateFolder
from penstock.privacy import for_owner_only


@pytest.fixture(autouse=True)
def open_to_all() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_a_folder_that_is_made(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "a b" / "segments"
    written = str(folder) if form == "{}" else str(folder).replace(" ", "%20")
    for_owner_only(form.format(written))
    assert mode(folder) == 0o700


def test_a_folder_that_is_there_is_as_its_owner_made_it(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o770)
    for_owner_only(str(tmp_path / "shared"))
    assert mode(tmp_path / "shared") == 0o770


def test_other_file_systems_are_left_to_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for_owner_only("hdfs://host:9000/segments")
    for_owner_only("s3://bucket/segments")
    assert list(tmp_path.iterdir()) == []


def test_a_state_folder_and_all_that_is_made_in_it(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o755)
    for name in ("new", "there"):
        held = StateFolder.hold(str(tmp_path / name))
        held.sub("logs")
        assert mode(held.path) == (0o700 if name == "new" else 0o755)
        assert mode(held.path / "logs") == 0o700
        assert mode(held.path / "lock") == 0o600, "whoever can open it can keep others from running"
        held.release()
