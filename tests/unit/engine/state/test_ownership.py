"""Whose a state folder is, and where an owner's things are in locations that others use too."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.channels.catalog import Catalog
from penstock.engine.state.folder import StateFolder
from penstock.engine.state.ownership import OWNER, Owner, check_copy, check_owner, claim, owner_of, recorded_owner
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
    assert "not of the same state" in refused(folder, "words").message


def test_a_location_that_is_shared_has_a_folder_for_every_owner() -> None:
    owner = Owner("words", "0a0b0c0d")
    assert owner.within("/data") == owner.within("/data/") == "/data/words-0a0b0c0d"
    assert owner.within("s3://bucket/x?region=eu") == "s3://bucket/x/words-0a0b0c0d?region=eu"
    assert owner.within("/odd?name") == "/odd?name/words-0a0b0c0d"
    assert Owner("words", "1a0b0c0d").within("/data") != owner.within("/data") != Owner("a", "0a0b0c0d").within("/data")


def test_a_copy_beside_the_original_shares_no_place_with_it(folder: Folder, tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    claim(original, *folder.check("words"), ["/data/words-0a0b0c0d"])
    check_copy(original, ["/data/words-0a0b0c0d"])
    shutil.copytree(original, copy)
    check_copy(copy, [])  # it has everything in it
    with pytest.raises(PenstockError) as caught:
        check_copy(copy, ["/data/words-0a0b0c0d"])
    assert caught.value.name == "STATE_DOES_NOT_FIT"
    assert str(original) in caught.value.message
    shutil.rmtree(original)
    check_copy(copy, ["/data/words-0a0b0c0d"])  # it was moved


def test_what_a_temporary_state_has_elsewhere_goes_with_it(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    held = StateFolder.hold(None)
    catalog, owner = folder.check("words")
    mine, other = Path(owner.within(str(tmp_path / "data"))), tmp_path / "data" / "words-ffffffff"
    for place in (mine, other):
        (place / "numbers.out").mkdir(parents=True)
    claim(held.path, catalog, owner, [str(mine), str(tmp_path / "nowhere")])
    held.release()
    assert not mine.exists()
    assert not held.path.exists()
    assert other.exists(), "that is another's"
