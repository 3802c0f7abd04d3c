"""Whose a state folder is, and where an owner's things are in locations that others use too."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.channels.catalog import Catalog
from penstock.engine.state import ownership
from penstock.engine.state.folder import StateFolder
from penstock.engine.state.ownership import (
    CLAIM,
    OWNER,
    Owner,
    check_copy,
    check_owner,
    claim,
    owner_of,
    recorded_owner,
)
from penstock.errors import PenstockError


class Folder:
    """A state folder with the catalog in it, as a topology opens both."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened: list[Catalog] = []

    def catalog(self, topology: str) -> Catalog:
        self.opened.append(Catalog.open(f"sqlite:///{self.path}/catalog.sqlite", topology))
        return self.opened[-1]

    def check(self, topology: str) -> tuple[Catalog, Owner]:
        catalog = self.catalog(topology)
        owner, _ = owner_of(catalog, topology)
        check_owner(self.path, catalog, owner, in_folder=True)
        return catalog, owner


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(tmp_path)
    yield folder
    for catalog in folder.opened:
        catalog.close()


def refused(folder: Folder, topology: str) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        folder.check(topology)
    assert caught.value.name == "STATE_DOES_NOT_FIT"
    return caught.value


def test_a_folder_is_its_owners_from_the_first_start_on(folder: Folder) -> None:
    catalog, owner = folder.check("words")
    assert recorded_owner(folder.path) is None, "a check writes nothing"
    assert catalog.get_meta("identity") is None
    claim(folder.path, catalog, owner, [])
    assert folder.check("words")[1] == owner == recorded_owner(folder.path)
    assert '"words"' in refused(folder, "numbers").message
    assert folder.catalog("numbers").get_meta("identity") is None
    assert (folder.path / OWNER).stat().st_mode & 0o077 == 0


def test_a_folder_of_an_older_penstock_is_known_by_its_catalog(folder: Folder) -> None:
    folder.catalog("words").set_meta("shape", "{}")
    assert '"words"' in refused(folder, "numbers").message
    catalog, owner = folder.check("words")
    claim(folder.path, catalog, owner, [])
    assert folder.check("words")[1] == owner


def test_a_folder_whose_catalog_is_another_is_refused(folder: Folder) -> None:
    claim(folder.path, *folder.check("words"), [])
    folder.opened.pop().close()
    (folder.path / "catalog.sqlite").unlink()
    assert "do not belong together" in refused(folder, "words").message


def test_a_location_that_is_shared_has_a_folder_for_every_owner() -> None:
    owner = Owner("words", "0a0b0c0d")
    assert owner.within("/data") == owner.within("/data/") == "/data/words-0a0b0c0d"
    assert owner.within("s3://bucket/x?region=eu") == "s3://bucket/x/words-0a0b0c0d?region=eu"
    assert owner.within("/odd?name") == "/odd?name/words-0a0b0c0d"
    assert Owner("words", "1a0b0c0d").within("/data") != owner.within("/data") != Owner("a", "0a0b0c0d").within("/data")


class Kept:
    """A state folder whose topology keeps its segments elsewhere, and how a start treats it."""

    def __init__(self, folder: Folder, path: Path, place: str) -> None:
        self.catalog, self.owner = folder.check("words")
        self.path = path
        self.place = place
        path.mkdir(exist_ok=True)

    def start(self, path: Path | None = None, *more: str) -> None:
        outside = [self.place, *more]
        check_copy(path or self.path, outside)
        claim(path or self.path, self.catalog, self.owner, outside)

    def refused(self, path: Path) -> PenstockError:
        with pytest.raises(PenstockError) as caught:
            self.start(path)
        assert caught.value.name == "STATE_DOES_NOT_FIT"
        return caught.value


@pytest.fixture
def kept(folder: Folder, tmp_path: Path) -> Kept:
    return Kept(folder, tmp_path / "original", str(tmp_path / "data" / "words-0a0b0c0d"))


def test_a_copy_beside_the_original_shares_no_place_with_it(kept: Kept, tmp_path: Path) -> None:
    original, copy = kept.path, tmp_path / "copy"
    kept.start()
    kept.start()
    shutil.copytree(original, copy)
    check_copy(copy, [])  # it has everything in it
    assert str(original) in kept.refused(copy).message
    shutil.rmtree(original)
    kept.start(copy)  # it was moved


def test_a_folder_is_no_copy_of_itself_by_another_path(kept: Kept, tmp_path: Path) -> None:
    kept.start()
    (tmp_path / "link").symlink_to(kept.path)
    kept.start(tmp_path / "link")
    kept.start()


def test_a_backup_where_the_folder_was_before_it_moved_is_refused(kept: Kept, tmp_path: Path) -> None:
    kept.start()
    shutil.copytree(kept.path, tmp_path / "backup")
    moved = kept.path.rename(tmp_path / "moved")
    kept.start(moved)
    shutil.copytree(tmp_path / "backup", kept.path)
    error = kept.refused(kept.path)
    assert str(moved) in error.message
    assert str(Path(kept.place) / CLAIM) in error.hint
    kept.start(moved)
    # What the hint says if nothing else uses the place any more.
    (Path(kept.place) / CLAIM).unlink()
    kept.start(kept.path)
    kept.refused(moved)


def test_a_copy_on_another_machine_is_refused_once_the_other_has_started(kept: Kept, tmp_path: Path) -> None:
    """There it has the same path: nothing in the folder tells the two apart."""
    kept.start()
    shutil.copytree(kept.path, tmp_path / "there")
    kept.start()
    here = kept.path.rename(tmp_path / "here")
    (tmp_path / "there").rename(kept.path)
    kept.refused(kept.path)
    shutil.rmtree(kept.path)
    here.rename(kept.path)
    kept.start()


def test_a_crash_while_a_folder_is_claimed_leaves_it_usable(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.start()
    other = str(tmp_path / "checkpoints" / "words-0a0b0c0d")
    true_write, left = ownership._write_claim, [0]

    def write(place: str, *words: str) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        true_write(place, *words)

    monkeypatch.setattr(ownership, "_write_claim", write)
    for places_before_the_crash in (0, 1, 0, 1):
        left[0] = places_before_the_crash
        with pytest.raises(KeyboardInterrupt):
            kept.start(None, other)
    monkeypatch.undo()
    kept.start(None, other)


def test_a_place_that_was_not_used_for_some_time_is_still_the_owners(kept: Kept, tmp_path: Path) -> None:
    kept.start()
    first, kept.place = kept.place, str(tmp_path / "elsewhere" / "words-0a0b0c0d")
    kept.start()
    kept.start()
    kept.place = first
    kept.start()


def test_a_claim_that_is_not_to_be_had_is_none(kept: Kept) -> None:
    kept.start()
    (Path(kept.place) / CLAIM).write_text("")  # cut off
    kept.start()
    assert Path(kept.place).stat().st_mode & 0o077 == 0
    kept.place = "s3a://only-spark/knows/words-0a0b0c0d"
    kept.start()


def test_what_a_temporary_state_has_elsewhere_goes_with_it(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    held = StateFolder.hold(None)
    catalog, owner = folder.check("words")
    mine, other = Path(owner.within(str(tmp_path / "data"))), tmp_path / "data" / "words-ffffffff"
    for place in (mine, other):
        (place / "numbers.out").mkdir(parents=True)
    claim(held.path, catalog, owner, [str(mine), owner.within(str(tmp_path / "other"))])
    shutil.rmtree(tmp_path / "other")
    held.release()
    assert not mine.exists()
    assert not held.path.exists()
    assert other.exists(), "that is another's"
