"""The log of decision records: what was decided, what was expected of it, and what it turned out to be.

It is for people; no decision is made on it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

#: Decisions that stay in memory where there is no store, and the most that may wait to be written.
KEPT = 1000
#: Decisions that stay in memory where a store has the older ones.
KEPT_BESIDE_STORE = 20


@dataclass(frozen=True)
class KeptDecision:
    """One decision as it is kept. The record must be plain enough for JSON."""

    #: Wall time of the decision.
    time: float
    #: What it turned out to be, in a word; see `autoscaler/records.py`.
    verdict: str
    record: Mapping[str, Any] = field(default_factory=dict)
    #: Given by the log: they grow by one.
    id: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "record", MappingProxyType(dict(self.record)))

    def as_json(self) -> dict[str, Any]:
        return {**self.record, "id": self.id, "time": self.time, "verdict": self.verdict}


class DecisionStore(Protocol):
    def last_decision(self) -> int: ...
    def write_decisions(self, decisions: Sequence[KeptDecision]) -> None: ...
    def decisions(self, after: int = 0, limit: int = 1000) -> list[KeptDecision]: ...


class DecisionLog:
    """Any thread may call it. Entering never waits for the store; `flush` writes, which a thread in the background
    does."""

    def __init__(self, store: DecisionStore | None = None, kept: int | None = None) -> None:
        self._store = store
        self._kept = kept or (KEPT if store is None else KEPT_BESIDE_STORE)
        #: The id of the newest decision.
        self.last = store.last_decision() if store is not None else 0
        self._lock = threading.Lock()
        self._recent: OrderedDict[int, KeptDecision] = OrderedDict()
        self._unwritten: OrderedDict[int, KeptDecision] = OrderedDict()

    def enter(self, decision: KeptDecision) -> KeptDecision:
        """Keep a decision: a new one gets the next id, and one that has an id takes the place of the one before."""
        with self._lock:
            if not decision.id:
                self.last += 1
                decision = KeptDecision(decision.time, decision.verdict, decision.record, self.last)
            _keep(self._recent, decision, self._kept)
            if self._store is not None:
                _keep(self._unwritten, decision, KEPT)
        return decision

    def since(self, after: int = 0, limit: int = 1000) -> list[KeptDecision]:
        """The first `limit` decisions above an id: from memory, or from the store where they are too old for that. What
        is not written yet is in memory, however old it is, and is newer than what the store has."""
        with self._lock:
            kept = {**self._recent, **self._unwritten}
            missing = self.last - after
        recent = {number: one for number, one in kept.items() if number > after}
        stored: list[KeptDecision] = []
        # A verdict that came late is in memory, beside decisions that are much newer.
        if self._store is not None and len(recent) < missing:
            stored = self._store.decisions(after, limit)
        found = {one.id: one for one in stored} | recent
        return [found[number] for number in sorted(found)][:limit]

    def flush(self) -> int:
        """Write what is not written, and say how much that was. What the store refuses waits for the next time."""
        if self._store is None:
            return 0
        with self._lock:
            waiting = list(self._unwritten.values())
        if not waiting:
            return 0
        self._store.write_decisions(waiting)
        with self._lock:
            for one in waiting:
                if self._unwritten.get(one.id) is one:
                    del self._unwritten[one.id]
        return len(waiting)


def _keep(kept: OrderedDict[int, KeptDecision], decision: KeptDecision, most: int) -> None:
    kept[decision.id] = decision
    while len(kept) > most:
        kept.popitem(last=False)
