"""Pieces of segments that a machine keeps because several of its bundles read them: each comes over the link once.

They are files in a folder that all executors of the machine share, and there is a bound on their bytes: the oldest go
first. To lose one is to fetch it again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from penstock.channels.mounts import is_local

#: Who waits for a piece looks again after a tenth of the time that it has waited, but after so many seconds at least,
#: and at most.
LEAST_STEP, MOST_STEP = 0.001, 0.05
#: What the names of files end with that have one bound together: pieces of others' segments, copies of segments that
#: the machine wrote itself, and what a killed worker was about to write.
BOUNDED = (".piece", ".arrow", ".new")
#: A file that is being written gets its name within so many seconds, or its worker is gone.
BEING_WRITTEN, WRITING_SECONDS = ".new", 120.0
#: A process makes room after so much of the bound that it has written: to look at all files takes milliseconds.
ROOM_PARTS = 16
#: By folder: the bytes that this process has written since it last made room.
_WRITTEN: Counter[Path] = Counter()


@dataclass(frozen=True)
class KeptPieces:
    folder: Path
    most_bytes: int

    def get(
        self,
        name: str,
        fetch: Callable[[Callable[[], None]], bytes | None],
        waits: Callable[[bool], None] = lambda came: None,
    ) -> pa.Buffer | None:
        """What is kept under this name, or else what `fetch` brings; None if it brings nothing. `fetch` calls what it
        is handed whenever something has come.

        Who asks for the same meanwhile waits, and `waits` is called again and again. It is told whether something has
        come to who fetches since the last time. It may raise an exception to end the waiting: who fetches may be
        stuck."""
        file = self.folder / f"{hashlib.sha256(name.encode()).hexdigest()}.piece"
        if (found := _found(file)) is not None:
            return found
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _opened(file.with_suffix(".lock")) as lock:
            began, seen = time.monotonic(), os.fstat(lock).st_mtime_ns
            while not _locked(lock):
                time.sleep(min(max((time.monotonic() - began) / 10, LEAST_STEP), MOST_STEP))
                if (found := _found(file)) is not None:
                    return found
                # Who fetches sets the time of the file that it has locked. Others may have deleted its name by now.
                before, seen = seen, os.fstat(lock).st_mtime_ns
                waits(seen != before)
            if (found := _found(file)) is not None:
                return found
            content = fetch(lambda: os.utime(lock))
            if content is None:
                return None
            written = file.with_name(f"{uuid4().hex}.new")
            try:
                written.write_bytes(content)
                written.replace(file)
            except BaseException:
                written.unlink(missing_ok=True)  # on a full disk each attempt would leave one
                raise
        _WRITTEN[self.folder] += len(content)
        if _WRITTEN[self.folder] >= self.most_bytes / ROOM_PARTS:
            _WRITTEN[self.folder] = 0
            make_room(self.folder, self.most_bytes)
        return pa.py_buffer(content)


def make_room(folder: Path, most_bytes: int) -> None:
    """Delete the oldest pieces and segments below a folder until the others have no more bytes than these. Whoever
    reads a file that goes has it mapped, or has a copy, and may go on."""
    files = list(_bounded(str(folder)))
    total = sum(size for _, size, _ in files)
    for _, size, file in sorted(files):
        if total <= most_bytes:
            return
        for one in (Path(file), Path(file).with_suffix(".lock")):
            with suppress(OSError):
                one.unlink()
        total -= size


def _bounded(folder: str) -> Iterator[tuple[float, int, str]]:
    """Time, size and path of the files that have the bound, by the quickest way: there may be ten thousand."""
    with suppress(OSError), os.scandir(folder) as entries:  # another process makes room, or deletes the folder
        for entry in entries:
            if entry.name.endswith(BOUNDED):
                with suppress(OSError):
                    status = entry.stat()
                    if entry.name.endswith(BEING_WRITTEN) and status.st_mtime > time.time() - WRITING_SECONDS:
                        continue
                    yield status.st_mtime, status.st_size, entry.path
            elif entry.is_dir(follow_symlinks=False):
                yield from _bounded(entry.path)


def _found(file: Path) -> pa.Buffer | None:
    """Mapped only on a disk of this computer: on a network, another computer may make room in the same folder."""
    try:
        if not is_local(str(file.parent)):
            return pa.py_buffer(file.read_bytes())
        with pa.memory_map(str(file)) as content:
            return content.read_buffer()
    except (OSError, pa.ArrowException):
        return None


@contextmanager
def _opened(lock: Path) -> Iterator[int]:
    handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield handle
    finally:
        os.close(handle)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
