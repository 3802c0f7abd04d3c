"""Folders for their owner only: rows lie in segments, state in checkpoints, and rows that failed are quoted in logs.

Not a umask for the whole process: what sinks write for the user has the modes that the user's own umask gives it.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Of file systems that are not this computer's. Who may read there is said there.
_ELSEWHERE = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*:")


def for_owner_only(location: str) -> None:
    """Make a folder that nobody else can enter, unless it is there: then its owner has said who may."""
    if not _ELSEWHERE.match(location):
        path = unquote(urlsplit(location).path) if location.startswith("file:") else location
        Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)
