"""Whose a state folder is, and where its owner's things are in locations that others use too.

An owner is a topology's name and the identity of its catalog. Both are written into the state folder, so that another
topology, or another catalog, is refused there before it touches anything. In a location that the settings name
(`segments`, `checkpoints`), everything of an owner is below one folder that is called after both.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.channels.catalog import Catalog
from penstock.channels.segments import below
from penstock.errors import Location, PenstockError

OWNER = "owner.json"
_IDENTITY = "identity"


@dataclass(frozen=True)
class Owner:
    """A few letters that no other state has are its identity; the same at every start on it."""

    topology: str
    identity: str

    @property
    def folder(self) -> str:
        return f"{self.topology}-{self.identity}"

    def within(self, location: str) -> str:
        """The owner's own folder in a location that it may share with others."""
        return below(location, self.folder)


def owner_of(catalog: Catalog, topology: str) -> tuple[Owner, bool]:
    """The owner that a catalog knows, or a new one, and whether it is new: then nothing of it is recorded yet."""
    identity = catalog.get_meta(_IDENTITY)
    return Owner(topology, identity or secrets.token_hex(4)), identity is None


def check_owner(folder: Path, catalog: Catalog, owner: Owner, in_folder: bool, where: Location | None = None) -> None:
    """Refuse a state folder that is not the owner's. `in_folder`: its catalog is the one in the folder, which an older
    Penstock did not write down an owner for."""
    found = recorded_owner(folder)
    if found is None:
        others = catalog.topologies() - {owner.topology} if in_folder else set()
        if not others or catalog.get_meta(_IDENTITY) or catalog.load().last_batches:
            return
        found = Owner(", ".join(sorted(others)), "")
    if found.topology != owner.topology:
        raise PenstockError(
            "STATE_DOES_NOT_FIT",
            f'the state folder {folder} is that of the topology "{found.topology}", not of "{owner.topology}".',
            "Give this topology a folder of its own with --state, or its old name if it was renamed.",
            where,
        )
    if found.identity != owner.identity:
        raise PenstockError(
            "STATE_DOES_NOT_FIT",
            f'the state folder {folder} and the catalog of "{owner.topology}" are not of the same state.',
            "Use the catalog that was used with this folder, or give a new folder with --state.",
            where,
        )


def check_copy(folder: Path, outside: Collection[str], where: Location | None = None) -> None:
    """Refuse a copy of a state folder beside the original if things of both would be in the same place outside."""
    original = Path(_fields(folder).get("folder", folder))
    if outside and original != folder and recorded_owner(original) == recorded_owner(folder):
        raise PenstockError(
            "STATE_DOES_NOT_FIT",
            f"the state folder {folder} is a copy of {original}, and both would keep their things in {min(outside)}.",
            "Use the original, or delete one of the two; a copy that can run by itself needs its own copy of "
            "that place too, and settings that name it.",
            where,
        )


def recorded_owner(folder: Path) -> Owner | None:
    fields = _fields(folder)
    return Owner(fields["topology"], fields["identity"]) if fields else None


def places(folder: Path) -> list[str]:
    """Where the owner of a folder keeps things outside of it."""
    return list(_fields(folder).get("places", ()))


def _fields(folder: Path) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = json.loads((folder / OWNER).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return fields


def claim(folder: Path, catalog: Catalog, owner: Owner, outside: Collection[str]) -> None:
    """Write down whose the folder is, and where else its things are."""
    catalog.set_meta(_IDENTITY, owner.identity)
    written = folder / f"{OWNER}.new"
    handle = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump({**asdict(owner), "folder": str(folder), "places": sorted(outside)}, file)
        file.flush()
        os.fsync(file.fileno())
    written.rename(folder / OWNER)
