"""Whose a control group is: its name says which process made it, so that leftovers are told from what is in use.

A process is named by its number, the moment of its start (numbers are used again) and the namespace in which the number
counts: a process of another container is never taken for one that is gone.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

PREFIX = "penstock-lab"
_NAME = re.compile(rf"{PREFIX}-(\d+)-(\d+)-(\d+)-\w+")


@dataclass(frozen=True)
class Owner:
    """A process that has a lab."""

    namespace: int
    process: int
    started: int

    @staticmethod
    def this_process() -> Owner:
        process = os.getpid()
        started = _start_of(process)
        if started is None:
            raise OSError("/proc cannot be read")
        return Owner(_pid_namespace(), process, started)

    def name(self, what: str) -> str:
        """The name of something that it makes."""
        return f"{self.prefix}{what}"

    @property
    def prefix(self) -> str:
        return f"{PREFIX}-{self.namespace}-{self.process}-{self.started}-"

    @property
    def is_gone(self) -> bool:
        """Whether it surely runs no more. Of a process in another namespace nobody here can say that."""
        return self.namespace == _pid_namespace() and _start_of(self.process) != self.started


def owner_of(name: str) -> Owner | None:
    """Who made something of this name; None if no lab did."""
    found = _NAME.fullmatch(name)
    return Owner(int(found[1]), int(found[2]), int(found[3])) if found else None


def _pid_namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _start_of(process: int) -> int | None:
    """When a process was started, in ticks since this computer was; None if there is none."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError):
        return None
