"""How many bytes of state each task of a keyed operator would have to load elsewhere, read from its checkpoint.

What is loaded is the newest snapshot of a store and the changes since then. Spark's RocksDB store lists a snapshot's
files, with their sizes, in a zip file named after its version; its in-memory store has the snapshot in one file.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterable, Sequence

import pyarrow.fs as pafs

_VERSIONED = re.compile(r"(\d+)(?:_[0-9a-fA-F-]+)?\.(zip|snapshot|changelog|delta)$")
_SNAPSHOTS = ("zip", "snapshot")
_CHANGES = ("changelog", "delta")


def state_bytes(checkpoint: str, tasks: int) -> list[int]:
    """For each task, the bytes of all its stores; 0 where nothing has been written yet."""
    location = checkpoint.removeprefix("file:") if checkpoint.startswith("file:/") else checkpoint
    if ":" in location.partition("/")[0]:
        system, root = pafs.FileSystem.from_uri(location)
    else:
        system, root = pafs.LocalFileSystem(), location
    selector = pafs.FileSelector(f"{root}/state", recursive=True, allow_not_found=True)
    files = [info for info in system.get_file_info(selector) if info.is_file]
    by_store: dict[tuple[int, str], list[pafs.FileInfo]] = {}
    for info in files:
        # state/<operator>/<partition>/[<store>/]<version>.<kind>
        words = info.path[len(f"{root}/state") :].strip("/").split("/")
        if len(words) >= 3 and words[1].isdecimal():
            by_store.setdefault((int(words[1]), "/".join([words[0], *words[2:-1]])), []).append(info)
    sizes = [0] * tasks
    for (task, _), store in by_store.items():
        if task < tasks:
            sizes[task] += _store_bytes(system, store)
    return sizes


def _store_bytes(system: pafs.FileSystem, files: Iterable[pafs.FileInfo]) -> int:
    versioned = [
        (int(found[1]), found[2], info) for info in files if (found := _VERSIONED.search(info.base_name)) is not None
    ]
    newest = max((version for version, kind, _ in versioned if kind in _SNAPSHOTS), default=-1)
    size: int = sum(info.size for version, kind, info in versioned if kind in _CHANGES and version > newest)
    for version, kind, info in versioned:
        if version == newest and kind in _SNAPSHOTS:
            size += info.size + (_listed_bytes(system, info.path) if kind == "zip" else 0)
    return size


def _listed_bytes(system: pafs.FileSystem, path: str) -> int:
    """The files beside a RocksDB snapshot's zip that belong to it, by the list inside."""
    try:
        with system.open_input_file(path) as file, zipfile.ZipFile(io.BytesIO(file.read())) as archive:
            text = archive.read("metadata").decode().partition("\n")[2]
            fields = json.loads(text)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return 0  # it was replaced by a newer one while we looked, or is written in another way: what is known counts
    return sum(int(one.get("sizeBytes", 0)) for one in [*fields.get("sstFiles", ()), *fields.get("logFiles", ())])


def cheapest_tasks(
    tasks: Sequence[int], sizes: Sequence[int], count: int, held: frozenset[int] = frozenset()
) -> list[int]:
    """Which `count` of these tasks to move: those that the target holds already (it loads only the changes since), then
    the smallest."""
    return sorted(tasks, key=lambda task: (task not in held, sizes[task], task))[:count]
