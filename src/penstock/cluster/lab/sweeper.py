"""The sweeper: removes the control groups of a lab when its owner has ended, however it ended.

    python -I -S sweeper.py PREFIX FOLDER...

Standard input is the line to the owner. When it closes, the sweeper waits until the guards (../guard.py) have ended the
processes in the groups whose names begin with PREFIX, ends those that nobody else does, and removes the groups. Then it
switches off what labs have switched on there. Standard library only, run by its path.

In version 2 of control groups, a group can have limits only if the group above it has the controllers switched on. That
one is not a lab's. So a lab that switches some on makes a group whose name says which: a mark. When the last group of
all labs there is gone, the controllers are switched off, and the marks removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

POLL_SECONDS = 0.05
#: The guards take three seconds for their grace and some for the rest.
PATIENCE_SECONDS = 30.0
GIVE_UP_SECONDS = 60.0
#: How the names of all groups of labs begin, and what stands behind the owner in the name of a mark.
LABS = "penstock-lab-"
MARK = "on_"
#: How long a lab waits for another one that makes a group just now.
LOCK_SECONDS = 5.0
#: By controller: files that set something for a group, and the first word of each as long as nobody has set it.
UNSET = {
    "cpu": {"cpu.max": "max", "cpu.weight": "100"},
    "memory": {"memory.max": "max", "memory.high": "max", "memory.low": "0", "memory.min": "0"},
}


def main(prefix: str, folders: list[str]) -> int:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the owner says when
    while os.read(0, 1024):
        pass
    began = time.monotonic()
    while left := [group for folder in folders for group in _groups(Path(folder), prefix) if not is_mark(group.name)]:
        waited = time.monotonic() - began
        if waited > GIVE_UP_SECONDS:
            return 1
        for group in left:
            if waited > PATIENCE_SECONDS:
                _end_members(group)
            with contextlib.suppress(OSError):
                group.rmdir()
        time.sleep(POLL_SECONDS)
    for folder in folders:
        switched_off(Path(folder))
    return 0


def is_mark(name: str) -> bool:
    return name.startswith(LABS) and name.rpartition("-")[2].startswith(MARK)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other labs from making groups in this one, and from switching controllers on or off. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)
        yield
    finally:
        os.close(handle)


def switched_off(folder: Path) -> bool:
    """Switch off the controllers that labs have switched on in this group, unless a lab has groups there; whether no
    mark is left. A controller that somebody else has come to use stays on, and is no longer ours."""
    try:
        with locked(folder):
            groups = _groups(folder, LABS)
            marks = [group for group in groups if is_mark(group.name)]
            if len(marks) < len(groups):
                return not marks
            for mark in marks:
                for controller in mark.name.rpartition("-")[2].removeprefix(MARK).split("_"):
                    if not _is_used(folder, controller):
                        with contextlib.suppress(OSError):  # a group below has it switched on as well
                            (folder / "cgroup.subtree_control").write_text(f"-{controller}")
                mark.rmdir()
    except OSError:
        return False
    return True


def _is_used(folder: Path, controller: str) -> bool:
    """Whether somebody has set something by this controller for a group in this one."""
    for name, unset in UNSET.get(controller, {}).items():
        for file in folder.glob(f"*/{name}"):
            with contextlib.suppress(OSError):
                if file.read_text().split()[:1] != [unset]:
                    return True
    return False


def _groups(folder: Path, prefix: str) -> list[Path]:
    return [group for group in folder.glob(f"{prefix}*") if group.is_dir()]


def _end_members(group: Path) -> None:
    with contextlib.suppress(OSError):
        for process in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(process), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
