"""Where segments come from when they are not read from the store: from the machine that wrote them.

Each machine has one server (segment_server.py), on the same port everywhere. Whoever knows the token may ask it. What
cannot be had there is read from the store, which stays the truth.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

#: What stands before the slash in the name of a slot that is not one of a machine.
_NO_MACHINES = ("", "local", "task")
#: What tells the parent of an executor's Python workers to start a server. Spark hides what is called a token.
VARIABLE = "PENSTOCK_SEGMENTS_TOKEN"


@dataclass(frozen=True)
class Origins:
    """What servers and readers of one run agree on. It travels in Spark's own closure."""

    port: int
    token: str
    #: The most bytes that a machine keeps of what others wrote, or of what it wrote to a store that is far.
    kept_bytes: int

    @staticmethod
    def with_new_token(port: int, kept_bytes: int) -> Origins:
        return Origins(port, secrets.token_hex(32), kept_bytes)

    def __repr__(self) -> str:
        return f"Origins(port {self.port})"  # nobody prints the token

    @property
    def folder(self) -> Path:
        """What a machine keeps. All its executors have the same temporary folder, and so the same one of these."""
        name = hashlib.sha256(self.token.encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"penstock-segments-{name}"

    def as_variable(self) -> dict[str, str]:
        return {VARIABLE: json.dumps([self.port, self.token, self.kept_bytes])}

    @staticmethod
    def of_environment(environment: Mapping[str, str]) -> Origins | None:
        text = environment.get(VARIABLE)
        return Origins(*json.loads(text)) if text else None


def origin_of(slot: str) -> str | None:
    """The machine that wrote what a slot of this name wrote; None where that is no machine: nobody knows where it ran,
    or all slots are in one process."""
    machine = slot.rpartition("/")[0]
    return machine if machine not in _NO_MACHINES else None
