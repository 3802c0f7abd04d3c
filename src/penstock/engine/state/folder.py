"""The folder with a topology's state: catalog, segments, checkpoints. One process at a time can hold it."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from penstock.channels.segments import open_filesystem
from penstock.clock import wall_time
from penstock.engine.state.ownership import places, recorded_owner
from penstock.errors import PenstockError
from penstock.logs import LogFile, delete_folder, traced

_PREFIX = "penstock-state-"
#: A temporary folder without a lock that is younger than this may be about to be locked.
_ABANDONED_SECONDS = 60.0


@dataclass
class StateFolder:
    """A folder that this process holds until it releases it; a temporary folder is deleted then."""

    path: Path
    temporary: bool
    _lock: IO[str]
    _log: LogFile | None = field(default=None, repr=False)

    @staticmethod
    def hold(path: str | None) -> StateFolder:
        if path is None:
            _clear_abandoned()
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX)) if path is None else Path(path).absolute()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Nobody else may open the lock: whoever can open it can also hold it.
            lock = os.fdopen(
                os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "a+", encoding="utf-8"
            )
        except OSError as error:
            raise PenstockError(
                "STATE_IN_USE",
                f"the state folder {folder} cannot be used: {error}.",
                "Give another folder with --state.",
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            lock.close()
            raise PenstockError(
                "STATE_IN_USE",
                f"process {holder} runs a topology on the state folder {folder}.",
                "Stop that process first, or give another folder with --state.",
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        held = StateFolder(folder, path is None, lock)
        held._log = LogFile(Path(held.sub("logs")))
        return held

    def release(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
        if self.temporary:
            _delete(self.path)
        self._lock.close()

    def sub(self, name: str) -> str:
        """The path of a folder in the state folder; it is made if it is missing."""
        folder = self.path / name
        folder.mkdir(mode=0o700, exist_ok=True)
        return str(folder)


def _clear_abandoned() -> None:
    """Delete the temporary state of drivers that were killed: nobody can go on from it.

    Others can make folders of such names here too, with links to files of ours in them and with places of ours written
    down. So the folder itself must be ours, and its lock no link."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        looking = traced(f"whether {folder} was left by a driver that was killed is not known", OSError)
        # One that is locked is in use, and one that is gone was deleted by another driver that looks as we do.
        with looking, suppress(BlockingIOError, FileNotFoundError):
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                continue
            with os.fdopen(os.open(folder / "lock", os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8") as lock:
                held = os.fstat(lock.fileno())
                if held.st_uid == os.getuid() and held.st_mtime < wall_time() - _ABANDONED_SECONDS:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _delete(folder)


def _delete(folder: Path) -> None:
    """Delete a state folder, and what its owner keeps elsewhere: nobody can go on from that either."""
    owner, elsewhere = None, []
    with traced(f"what {folder} keeps elsewhere is not known", OSError, ValueError, KeyError):
        owner, elsewhere = recorded_owner(folder), places(folder)
    for place in elsewhere:
        with traced(f"{place} could not be deleted", OSError, PenstockError):
            filesystem, root = open_filesystem(place)
            # A place that is not called after the owner is not the owner's alone, whatever is written down.
            if owner is not None and root.rpartition("/")[2] == owner.folder:
                filesystem.delete_dir(root)
    delete_folder(folder)
