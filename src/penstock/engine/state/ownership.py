"""Which topology owns a state folder, and where that owner keeps its files in locations that others use too.

An owner is a topology's name and the identity of its catalog. Both are written into the state folder, so that another
topology, or another catalog, is refused there before it touches anything. In a location that the settings name
(`segments`, `checkpoints`), everything of an owner is below one folder that is called after both.

A state folder can be copied, and its copies have the same owner. So every start *claims* the places outside: it writes
a few new letters into the folder, and then into each place. A place whose last claim is not one of the folder's belongs
to a copy now, which has run since the two went apart.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.channels.catalog import Catalog
from penstock.channels.segments import below, open_filesystem, sync
from penstock.errors import Location, PenstockError
from penstock.logs import LOGGER, traced
from penstock.privacy import for_owner_only

OWNER = "owner.json"
#: In a place outside: who was the last to run with it. Spark does not look at names with a dot.
CLAIM = ".penstock-claim.json"
#: How many claims a folder remembers: a place that the settings did not name for some time has an older one.
_CLAIMS = 100
_IDENTITY = "identity"


@dataclass(frozen=True)
class Owner:
    """The owner of a state: a topology and the identity of its catalog, a few letters that no other catalog has and
    that are the same at every start."""

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
            f'the state folder {folder} belongs to the topology "{found.topology}", not to "{owner.topology}".',
            "Give this topology a folder of its own with --state, or its old name if it was renamed.",
            where,
        )
    if found.identity != owner.identity:
        raise PenstockError(
            "STATE_DOES_NOT_FIT",
            f'the state folder {folder} and the catalog of "{owner.topology}" do not belong together.',
            "Use the catalog that was used with this folder, or give a new folder with --state.",
            where,
        )


def check_copy(folder: Path, outside: Collection[str], where: Location | None = None) -> None:
    """Refuse a copy of a state folder if it and the original would keep their files in the same place outside: while
    the original is still there, and also after the other of the two has run with that place."""
    original = Path(_fields(folder).get("folder", folder))
    is_copy = recorded_owner(original) == recorded_owner(folder) and not original.samefile(folder)
    if outside and is_copy:
        raise PenstockError(
            "STATE_DOES_NOT_FIT",
            f"the state folder {folder} is a copy of {original}, and both would keep their files in {min(outside)}.",
            f"Use the original. If you want to use the copy instead, move the original away. {_OWN_PLACE}",
            where,
        )
    for place in outside:
        last = _last_claim(place)
        if last and last["claim"] not in _claims(folder):
            raise PenstockError(
                "STATE_DOES_NOT_FIT",
                f"the state folder {folder} and the files in {place} do not belong together any more: a copy of the "
                f"folder, {last['folder']} on {last['host']}, has run with these files since.",
                f"Use that copy, or restore folder and files of the same moment. If nothing else uses {place} any "
                f"more, delete {below(place, CLAIM)}: rows that only the copy knows of are lost then. {_OWN_PLACE}",
                where,
            )


_OWN_PLACE = (
    "A copy that is to run by itself also needs its own copy of those files, and settings that name their place."
)


def recorded_owner(folder: Path) -> Owner | None:
    """The owner that is written down in a folder; None if none is."""
    fields = _fields(folder)
    return Owner(fields["topology"], fields["identity"]) if fields else None


def places(folder: Path) -> list[str]:
    """The places outside of a folder where its owner keeps files."""
    return list(_fields(folder).get("places", ()))


def _fields(folder: Path) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = json.loads((folder / OWNER).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return fields


def claim(folder: Path, catalog: Catalog, owner: Owner, outside: Collection[str]) -> None:
    """Write down in the folder who owns it and where else the owner keeps files, and then in those places that this
    folder was the last to run. A crash in between leaves a place with an older claim of the same folder, which is as
    good."""
    catalog.set_meta(_IDENTITY, owner.identity)
    new = secrets.token_hex(8)
    claims = [*_claims(folder), new][-_CLAIMS:]
    written = folder / f"{OWNER}.new"
    handle = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        fields = {**asdict(owner), "folder": str(folder), "places": sorted(outside), "claims": claims}
        json.dump(fields, file)
        file.flush()
        os.fsync(file.fileno())
    written.rename(folder / OWNER)
    sync(folder)  # a power cut must not leave a place with a claim that the folder does not know
    for place in sorted(set(outside)):
        _write_claim(place, new, str(folder))


def _claims(folder: Path) -> list[str]:
    """The claims that starts on the folder have made, the newest last."""
    return list(_fields(folder).get("claims", ()))


def _last_claim(place: str) -> dict[str, str]:
    """The last claim in a place; empty if there is none. A place that only Spark can open, and Python cannot, never has
    one."""
    try:
        filesystem, root = open_filesystem(place)
        with filesystem.open_input_stream(f"{root}/{CLAIM}") as file:
            fields = json.loads(file.read())
        return {key: str(fields[key]) for key in ("claim", "folder", "host")}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, PenstockError) as error:
        LOGGER.info("who was the last to run with %s is not known: %s: %s", place, type(error).__name__, error)
        return {}


def _write_claim(place: str, new: str, folder: str) -> None:
    with traced(f"{place} could not be claimed", OSError, PenstockError, level=logging.INFO):
        filesystem, root = open_filesystem(place)
        for_owner_only(place)
        with filesystem.open_output_stream(f"{root}/{CLAIM}") as file:
            file.write(json.dumps({"claim": new, "folder": folder, "host": socket.gethostname()}).encode())
