"""What the tests of catalogs put in, and how long they wait."""

from __future__ import annotations

from penstock.channels.database import Retries
from penstock.channels.records import NewSegment

QUICK = Retries(times=3, first_pause=0.01)


def new(path: str, rows: int = 10, channel: str = "lines", size: int = 100) -> NewSegment:
    return NewSegment(channel, path, rows, size, "local/0", 1.25, 2.5)
