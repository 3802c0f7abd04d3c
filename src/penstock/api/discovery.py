"""Which topologies this user runs, and how to reach them: a folder that nobody else can read, a file for each.

A topology has its file from the begin of its start until its state is free again, and holds a lock on it. A file
without a lock belonged to a process that was killed; whoever finds it deletes it.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import IO

from penstock.errors import PenstockError
from penstock.logs import LOGGER, traced

#: For tests, and for users whose home is shared between computers.
FOLDER_VARIABLE = "PENSTOCK_RUNNING"
#: To write a file takes milliseconds; one without its final name is left over after so many seconds.
UNFINISHED_SECONDS = 60.0


class Phase(StrEnum):
    #: The topology cannot be steered yet.
    STARTING = "starting"
    RUNNING = "running"
    #: The topology cannot be steered any more, and still holds its state.
    ENDING = "ending"


@dataclass(frozen=True)
class Running:
    """A topology that is starting, running or ending. The token is a secret: whoever has it can steer the topology."""

    topology: str
    pid: int
    #: The address of the control interface; empty while the topology cannot be steered.
    url: str
    token: str
    started_at: float
    #: The state folder; empty until the topology has one.
    state: str
    phase: Phase = Phase.RUNNING
    #: Whether its process does nothing else: then the process ends with the topology, and SIGTERM stops both in order.
    own_process: bool = False
    #: A sentence on how the topology ended; empty before that.
    how: str = ""

    @property
    def label(self) -> str:
        """A name that no other running topology has. Another start of it in its program has it too, for the moment
        until it is refused: a process has only one Spark."""
        return f"{self.topology}:{self.pid}"

    def __repr__(self) -> str:
        return f"Running({self.label} at {self.url})"


def registry_folder() -> Path:
    """The folder with the files. It is made if it is missing, and refused if it belongs to another user."""
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


class Entry:
    """The file of one topology. As a context manager: leaving it deletes the file."""

    def __init__(self, running: Running) -> None:
        self.running = running
        #: A program that starts the topology again while it runs is refused, and must not take this file for its own.
        self.path = registry_folder() / f"{running.topology}-{running.pid}-{secrets.token_hex(4)}.json"
        #: All files that this entry wrote stay locked to its end. A process that has opened an older one must not take
        #: it for the file of a killed topology, and delete the newer file of the same name.
        self._files: list[IO[str]] = []

    def opened(self, url: str, token: str, state: str) -> Running:
        """Tell others that the topology can be steered from now on."""
        self._tell(replace(self.running, url=url, token=token, state=state, phase=Phase.RUNNING))
        return self.running

    def ending(self, how: str = "") -> None:
        """Tell others that the topology cannot be steered any more, and how it ended. An earlier text stays if `how` is
        empty. A full disk keeps nothing from ending, and hides no error that is the cause of the end."""
        how = how or self.running.how
        with traced("the end could not be told to other processes", OSError):
            self._write(replace(self.running, url="", token="", phase=Phase.ENDING, how=how))

    def _tell(self, running: Running) -> None:
        try:
            self._write(running)
        except OSError as error:
            raise PenstockError(
                "CONTROL_FAILED",
                f"{self.path}, by which other processes find the topology, cannot be written: {error}.",
                f"Make room on its disk, name another folder in {FOLDER_VARIABLE}, or run with --set control=off.",
            ) from None

    def _write(self, running: Running) -> None:
        hidden = self.path.with_suffix(".new")
        hidden.unlink(missing_ok=True)
        file = os.fdopen(os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps(asdict(running)))
            file.flush()
            hidden.rename(self.path)  # it appears whole, and locked
        except BaseException:
            with suppress(OSError):  # what a full disk did not take, the close tries once more
                file.close()
            hidden.unlink(missing_ok=True)
            raise
        self._files.append(file)
        self.running = running

    def __enter__(self) -> Entry:
        self._tell(self.running)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.path.unlink(missing_ok=True)
        for file in self._files:
            file.close()


@contextmanager
def starting(topology: str, own_process: bool = False) -> Iterator[Entry]:
    """Other processes find the topology, as one that is being started, until the block is left."""
    with Entry(Running(topology, os.getpid(), "", "", time.time(), "", Phase.STARTING, own_process)) as entry:
        yield entry


def all_running() -> list[Running]:
    """The running topologies of this user, by name; of the same label, the oldest comes first. Files that killed
    processes left are deleted."""
    found = []
    _delete_unfinished()
    for path in sorted(registry_folder().glob("*.json")):
        unreadable = traced(f"{path} does not tell of a running topology", OSError, ValueError, TypeError)
        # A topology that ends at this moment takes its file with it.
        with unreadable, suppress(FileNotFoundError), path.open(encoding="utf-8") as file:
            if _is_held(file.fileno()):
                fields = json.load(file)
                found.append(Running(**fields | {"phase": Phase(fields.get("phase", Phase.RUNNING))}))
            else:
                path.unlink(missing_ok=True)
    return sorted(found, key=lambda one: (one.topology, one.pid, one.started_at))


def _delete_unfinished() -> None:
    """Delete what processes were about to write when they were killed."""
    for path in registry_folder().glob("*.new"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - UNFINISHED_SECONDS:
                path.unlink()


def find(name: str | None = None) -> Running:
    """The running topology with this name (or name:pid). Without a name: the only one that runs."""
    running = all_running()
    chosen = [one for one in running if name in (None, one.topology, one.label)]
    if len(chosen) == 1:
        return chosen[0]
    labels = ", ".join(one.label for one in running)
    if not chosen:
        there = f"These run: {labels}." if running else "Start one with: penstock run FILE"
        what = f'no topology "{name}" of yours runs' if name is not None else "no topology of yours runs"
        raise PenstockError("NOTHING_RUNS", f"{what}.", there)
    raise PenstockError(
        "SEVERAL_RUN",
        f"{len(chosen)} topologies run: {', '.join(one.label for one in chosen)}.",
        "Choose one with --topology NAME, or NAME:PID where names are the same.",
    )


def _is_held(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks: whoever asks finds out whether somebody answers
        LOGGER.warning("it is not known whether a running topology holds its file", exc_info=True)
        return True
    return False
