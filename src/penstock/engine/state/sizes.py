"""How much state each task of a keyed operator would have to load elsewhere, read from its checkpoint.

An executor loads the newest snapshot of a store and the changes since then. Spark's RocksDB store lists a snapshot's
files, with their sizes and the number of keys, in a zip file named after its version; its in-memory store has the
snapshot in one file. So the number of rows is that of the newest snapshot, and is not known before there is one.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterable, Sequence

import pyarrow.fs as pafs

from penstock.logs import LOGGER
from penstock.monitor.sample import StateSize
from penstock.monitor.unknown import plus

_VERSIONED = re.compile(r"(\d+)(?:_[0-9a-fA-F-]+)?\.(zip|snapshot|changelog|delta)$")
_SNAPSHOTS = ("zip", "snapshot")
_CHANGES = ("changelog", "delta")


def state_bytes(checkpoint: str, tasks: int) -> list[int]:
    """For each task, the bytes of all its stores; 0 where nothing has been written yet."""
    return [size.bytes or 0 for size in state_sizes(checkpoint, tasks)]


def state_sizes(checkpoint: str, tasks: int) -> list[StateSize]:
    """For each task, what all its stores hold; nothing where nothing has been written yet."""
    system, root = _opened(checkpoint)
    selector = pafs.FileSelector(f"{root}/state", recursive=True, allow_not_found=True)
    files = [info for info in system.get_file_info(selector) if info.is_file]
    by_store: dict[tuple[int, str], list[pafs.FileInfo]] = {}
    for info in files:
        # state/<operator>/<partition>/[<store>/]<version>.<kind>
        words = info.path[len(f"{root}/state") :].strip("/").split("/")
        if len(words) >= 3 and words[1].isdecimal():
            by_store.setdefault((int(words[1]), "/".join([words[0], *words[2:-1]])), []).append(info)
    sizes = [StateSize(rows=0, bytes=0)] * tasks
    for (task, _), store in by_store.items():
        if task < tasks:
            found = _store_size(system, store)
            sizes[task] = StateSize(plus(sizes[task].rows, found.rows), plus(sizes[task].bytes, found.bytes))
    return sizes


def logged_batches(checkpoint: str) -> tuple[int, int]:
    """The newest batch that Spark has begun, and the newest that it has finished; -1 where there is none. Spark begins
    a repartition like a batch. No JVM is asked: it may be lost."""
    system, root = _opened(checkpoint)

    def last(log: str) -> int:
        files = system.get_file_info(pafs.FileSelector(f"{root}/{log}", allow_not_found=True))
        return max((int(info.base_name) for info in files if info.base_name.isdecimal()), default=-1)

    return last("offsets"), last("commits")


def _opened(checkpoint: str) -> tuple[pafs.FileSystem, str]:
    location = checkpoint.removeprefix("file:") if checkpoint.startswith("file:/") else checkpoint
    if ":" in location.partition("/")[0]:
        system, root = pafs.FileSystem.from_uri(location)
        return system, root
    return pafs.LocalFileSystem(), location


def _store_size(system: pafs.FileSystem, files: Iterable[pafs.FileInfo]) -> StateSize:
    versioned = [
        (int(found[1]), found[2], info) for info in files if (found := _VERSIONED.search(info.base_name)) is not None
    ]
    if not versioned:
        return StateSize(rows=0, bytes=0)  # a folder beside the stores, such as that of RocksDB's own files
    newest = max((version for version, kind, _ in versioned if kind in _SNAPSHOTS), default=-1)
    size: int = sum(info.size for version, kind, info in versioned if kind in _CHANGES and version > newest)
    rows: int | None = None
    for version, kind, info in versioned:
        if version == newest and kind in _SNAPSHOTS:
            listed = _listed(system, info.path) if kind == "zip" else StateSize(bytes=0)
            size, rows = size + info.size + (listed.bytes or 0), listed.rows
    return StateSize(rows, size)


def _listed(system: pafs.FileSystem, path: str) -> StateSize:
    """The keys of a RocksDB snapshot and the files beside its zip that belong to it, by the list inside."""
    try:
        with system.open_input_file(path) as file, zipfile.ZipFile(io.BytesIO(file.read())) as archive:
            text = archive.read("metadata").decode().partition("\n")[2]
            fields = json.loads(text)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        # Spark has replaced the snapshot by a newer one while we looked, or writes it in another way.
        LOGGER.info("the size of the snapshot %s is not known: %s: %s", path, type(error).__name__, error)
        return StateSize()
    files = [*fields.get("sstFiles", ()), *fields.get("logFiles", ())]
    return StateSize(fields.get("numKeys"), sum(int(one.get("sizeBytes", 0)) for one in files))


def cheapest_tasks(
    tasks: Sequence[int], sizes: Sequence[int], count: int, held: frozenset[int] = frozenset()
) -> list[int]:
    """Which `count` of these tasks to move: those that the target holds already (it loads only the changes since), then
    the smallest."""
    return sorted(tasks, key=lambda task: (task not in held, sizes[task], task))[:count]
