"""The changes that moved state lately, each with its migrations. It is for people; no decision is made on it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.plans.migration import Migration

#: Changes that stay in memory. The event log has the barriers of all of them.
KEPT = 50


@dataclass(frozen=True)
class Migrated:
    """One change that moved state."""

    #: Given by the log: they grow by one.
    id: int
    #: What was changed, in words, and why.
    change: str
    reason: str
    #: One for every operator whose tasks moved.
    migrations: tuple[Migration, ...]


class MigrationLog:
    """Any thread may call it."""

    def __init__(self, kept: int = KEPT) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._recent: deque[Migrated] = deque(maxlen=kept)

    def enter(self, change: str, reason: str, migrations: Sequence[Migration]) -> None:
        """Keep what a change has moved. A change that moved no state is not entered."""
        if not migrations:
            return
        with self._lock:
            self._last += 1
            self._recent.append(Migrated(self._last, change, reason, tuple(migrations)))

    def since(self, after: int = 0, limit: int = 1000) -> list[Migrated]:
        """The first `limit` changes above an id, of those that are kept."""
        with self._lock:
            return [one for one in self._recent if one.id > after][:limit]
