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
#: The locks that this process holds.
_HELD: list[int] = []


def use(folder: Path) -> None:
    """Make the folder if it is missing, and keep it from being deleted until this process ends. Processes that are
    forked from this one do not count."""
    while True:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # it was deleted just now
            handle = _opened(folder)
            fcntl.flock(handle, fcntl.LOCK_SH)
            if _is_there(handle, folder):
                _HELD.append(handle)
                return
            os.close(handle)  # the folder was deleted while this process waited for the lock


def leave() -> None:
    """Use no folder any more. In a process that was forked, this changes nothing for the one that it comes from."""
    while _HELD:
        os.close(_HELD.pop())


def deleted(folder: Path) -> bool:
    """Delete the folder unless somebody uses it; whether it is gone."""
    try:
        handle = _opened(folder)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_there(handle, folder):
            return False
        for child in folder.iterdir():
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child, ignore_errors=True)
            elif child.name != USERS:
                child.unlink(missing_ok=True)
        # The lock goes last: who comes from now on makes a new one, and then the folder is not empty and stays.
        (folder / USERS).unlink()
        folder.rmdir()
    except OSError:  # somebody uses it, or has just written to it
        return False
    finally:
        os.close(handle)
    return True


def _opened(folder: Path) -> int:
    return os.open(folder / USERS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_there(handle: int, folder: Path) -> bool:
    """Whether this is still the lock that others find."""
    try:
        return os.path.samestat(os.fstat(handle), (folder / USERS).stat())
    except FileNotFoundError:
        return False


os.register_at_fork(after_in_child=leave)
