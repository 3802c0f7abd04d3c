"""The sweeper: removes the control groups of a lab when its owner has ended, however it ended.

    python -I -S sweeper.py PREFIX FOLDER...

Standard input is the line to the owner. When it closes, the sweeper waits until the guards (../guard.py) have ended the
processes in the groups whose names begin with PREFIX, ends those that nobody else does, and removes the groups.
Standard library only, run by its path.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

POLL_SECONDS = 0.05
#: The guards take three seconds for their grace and some for the rest.
PATIENCE_SECONDS = 30.0
GIVE_UP_SECONDS = 60.0


def main(prefix: str, folders: list[str]) -> int:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the owner says when
    while os.read(0, 1024):
        pass
    began = time.monotonic()
    while left := [group for folder in folders for group in Path(folder).glob(f"{prefix}*") if group.is_dir()]:
        waited = time.monotonic() - began
        if waited > GIVE_UP_SECONDS:
            return 1
        for group in left:
            if waited > PATIENCE_SECONDS:
                _end_members(group)
            with contextlib.suppress(OSError):
                group.rmdir()
        time.sleep(POLL_SECONDS)
    return 0


def _end_members(group: Path) -> None:
    with contextlib.suppress(OSError):
        for process in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(process), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
