"""Who uses the folder in which a machine keeps segments of a run, and when it is deleted: when nobody does.

Each parent of Python workers on the machine (engine/executor/worker_daemon.py) holds a lock in the folder as long as it
lives, however it ends. All of them share the lock. Whoever gets it alone may delete the folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path

#: The file in the folder that users lock.
USERS = "users.lock"
#: How often a folder is made again that others delete.
TRIES = 100
#: The locks that this process holds.
_HELD: list[int] = []


def use(folder: Path) -> None:
    """Make the folder if it is missing, and keep it from being deleted until this process ends. Processes that are
    forked from this one do not count."""
    for _ in range(TRIES):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = _opened(folder)
        except (FileNotFoundError, FileExistsError) as problem:  # it was deleted just now, or cannot be made
            gone: OSError = problem
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
            if _is_there(handle, folder):
                _HELD.append(handle)
                return
            gone = FileNotFoundError(f"{folder} was deleted")  # while this process waited for the lock
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
    raise gone


def leave() -> None:
    """Use no folder any more. In a process that was forked, this changes nothing for the one that it comes from."""
    while _HELD:
        os.close(_HELD.pop())


class Users:
    """Those who use the folder, as the one sees them who waits until there are none. The lock stays open meanwhile: if
    somebody who clears old files takes its name away, the users still hold this one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = _opened(folder)
        self._parent = os.getppid()

    def remain(self) -> bool:
        """Whether somebody uses the folder. Where that cannot be asked, it is the process that has started this one."""
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            except OSError:
                return os.getppid() == self._parent
            if _is_there(self._lock, self._folder) or not (self._folder / USERS).exists():
                return False
            # Users who came after its name was taken away have another one.
            try:
                newer = _opened(self._folder)
            except OSError:
                return False
            os.close(self._lock)
            self._lock = newer

    def delete_folder(self) -> None:
        """Once nobody uses it. What cannot be deleted stays: nobody waits for it."""
        _clear(self._folder)
        os.close(self._lock)


def delete_leftovers(folder: Path) -> None:
    """Delete what was written after the folder was deleted, unless somebody uses it again."""
    if not folder.exists():
        return
    with suppress(OSError):
        users = Users(folder)
        if not users.remain():
            users.delete_folder()


def _clear(folder: Path) -> None:
    with suppress(OSError):  # somebody else has deleted it
        for child in folder.iterdir():
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child, ignore_errors=True)
            elif child.name != USERS:
                with suppress(OSError):
                    child.unlink()
    # The lock goes last: who comes from now on makes a new one, and then the folder is not empty and stays.
    with suppress(OSError):
        (folder / USERS).unlink()
    with suppress(OSError):
        folder.rmdir()


def _opened(folder: Path) -> int:
    return os.open(folder / USERS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_there(handle: int, folder: Path) -> bool:
    """Whether this is still the lock that others find."""
    try:
        return os.path.samestat(os.fstat(handle), (folder / USERS).stat())
    except FileNotFoundError:
        return False


os.register_at_fork(after_in_child=leave)
