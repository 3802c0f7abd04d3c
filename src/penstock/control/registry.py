"""Which topologies this user runs, and how to reach them: a folder that nobody else can read, a file for each.

A running topology holds a lock on its file. A file without a lock is left from one that was killed, and is deleted by
whoever notices.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.errors import PenstockError

#: For tests, and for users whose home is shared between computers.
FOLDER_VARIABLE = "PENSTOCK_RUNNING"


@dataclass(frozen=True)
class Running:
    """A running topology. The token is a secret: whoever has it can steer."""

    topology: str
    pid: int
    url: str
    token: str
    started_at: float
    state: str

    @property
    def label(self) -> str:
        """What tells it from another of the same name."""
        return f"{self.topology}:{self.pid}"

    def __repr__(self) -> str:
        return f"Running({self.label} at {self.url})"


def registry_folder() -> Path:
    """Made if it is missing; refused if it is somebody else's or open to others."""
    given = os.environ.get(FOLDER_VARIABLE)
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    folder = Path(given) if given else state / "penstock" / "running"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if found.st_uid != os.getuid():
            raise OSError("it belongs to another user")
        if found.st_mode & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise PenstockError(
            "CONTROL_FAILED",
            f"{folder}, where running topologies are listed, cannot be used: {error}.",
            f"Name another folder in {FOLDER_VARIABLE}, or run with --set control=off.",
        ) from None
    return folder


@contextmanager
def registered(running: Running) -> Iterator[Path]:
    """While it runs, it can be found."""
    path = registry_folder() / f"{running.topology}-{running.pid}.json"
    hidden = path.with_suffix(".new")
    with suppress(FileNotFoundError):
        hidden.unlink()
    descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(asdict(running)))
        file.flush()
        hidden.rename(path)  # it appears whole, and locked
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)


def all_running() -> list[Running]:
    """Those of this user, by name; what is left of the dead is cleared away."""
    found = []
    for path in sorted(registry_folder().glob("*.json")):
        with suppress(OSError, ValueError, TypeError), path.open(encoding="utf-8") as file:
            if _is_held(file.fileno()):
                found.append(Running(**json.load(file)))
            else:
                path.unlink(missing_ok=True)
    return sorted(found, key=lambda one: (one.topology, one.pid))


def find(name: str | None = None) -> Running:
    """The one that runs; of several, the one with this name (or name:pid)."""
    running = all_running()
    chosen = [one for one in running if name in (None, one.topology, one.label)]
    if len(chosen) == 1:
        return chosen[0]
    labels = ", ".join(one.label for one in running)
    if not chosen:
        there = f"These run: {labels}." if running else "Start one with: penstock run FILE"
        what = f'no topology "{name}" of yours runs' if name else "no topology of yours runs"
        raise PenstockError("NOTHING_RUNS", f"{what}.", there)
    raise PenstockError(
        "SEVERAL_RUN",
        f"{len(chosen)} topologies run: {', '.join(one.label for one in chosen)}.",
        "Choose one with --topology NAME, or NAME:PID where names are the same.",
    )


def _is_held(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
