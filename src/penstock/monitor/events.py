"""Everything that happens to a topology, as events with their reasons; and the log that keeps and tells them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Protocol

from penstock.logs import LOGGER

#: Events that stay in memory where there is no store, and the most that may wait to be written.
KEPT = 10_000
#: Events that stay in memory where a store has the older ones: who asks for those asks rarely. One that tells what a
#: change did to the throughput takes 20 KB.
KEPT_BESIDE_STORE = 50


class EventKind(StrEnum):
    """The closed list of what can happen."""

    #: The topology began to run, or ended.
    STARTED = "started"
    STOPPED = "stopped"
    #: Somebody asked for something through the control interface.
    REQUEST = "request"
    #: A strategy wants something changed, or has looked and wants nothing changed.
    DECISION = "decision"
    #: A guard refused what a strategy or somebody wanted.
    VETO = "veto"
    #: Something was changed: instances, tasks, machines.
    ACTION = "action"
    #: Something went wrong, and something that had gone wrong is well again.
    FAULT = "fault"
    RECOVERY = "recovery"
    #: Something to know that is none of these.
    NOTICE = "notice"


@dataclass(frozen=True)
class Event:
    time: float
    kind: EventKind
    #: What it is about: an operator, a machine, a plan; empty for the topology as a whole.
    subject: str
    #: Why, in words.
    reason: str
    #: What brought it about: a strategy's name, a user, the id of another event.
    cause: str = ""
    #: The same in figures. Must be plain enough for JSON.
    fields: Mapping[str, Any] = field(default_factory=dict)
    #: Given by the log: they grow by one.
    id: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", MappingProxyType(dict(self.fields)))

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "time": self.time,
            "kind": str(self.kind),
            "subject": self.subject,
            "cause": self.cause,
            "reason": self.reason,
            "fields": dict(self.fields),
        }


Listener = Callable[[Event], None]


class EventStore(Protocol):
    """Where events outlive the process."""

    def last_event(self) -> int:
        """The highest id there is; 0 without any."""

    def write_events(self, events: Sequence[Event]) -> None:
        """Write them all, or raise; those that are there already stay as they are."""

    def events(self, after: int, limit: int) -> list[Event]:
        """The first `limit` events above an id."""


class EventLog:
    """The last events in memory, and all of them in a store. Any thread may call it.

    `record` never waits for the store and never fails because of it: events wait until somebody calls `flush`, which a
    thread in the background does."""

    def __init__(self, store: EventStore | None = None, kept: int | None = None, waiting: int = KEPT) -> None:
        """`kept` events stay in memory, and `waiting` of them may wait to be written."""
        self._store = store
        #: The id of the newest event.
        self.last = store.last_event() if store is not None else 0
        self._recorded = threading.Condition()
        self._recent: deque[Event] = deque(maxlen=kept or (KEPT if store is None else KEPT_BESIDE_STORE))
        self._unwritten: deque[Event] = deque(maxlen=waiting)
        self._flushing = threading.Lock()
        self._listeners: list[Listener] = []
        #: Events that could not be written in time, and are in no store.
        self.lost = 0

    def record(self, event: Event) -> Event:
        """Keep the event, with the next id, and tell the listeners."""
        with self._recorded:
            self.last += 1
            event = replace(event, id=self.last)
            self._recent.append(event)
            if self._store is not None:
                self.lost += len(self._unwritten) == self._unwritten.maxlen
                self._unwritten.append(event)
            listeners = list(self._listeners)
            self._recorded.notify_all()
        for listener in listeners:
            self._tell(listener, event)
        return event

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Have a function called with every event from now on, in the thread that records it; returns what ends it."""
        with self._recorded:
            self._listeners.append(listener)
        return lambda: self._forget(listener)

    def since(self, after: int, limit: int = 1000) -> list[Event]:
        """The first `limit` events above an id: from memory, or from the store where they are too old for that. What is
        not written yet is in memory, however old it is."""
        with self._recorded:
            found = {event.id: event for event in (*self._unwritten, *self._recent) if event.id > after}
            missing = self.last - after - len(found)
        if self._store is not None and missing > 0:
            found |= {event.id: event for event in self._store.events(after, limit)}
        return [found[number] for number in sorted(found)[:limit]]

    def wait(self, after: int, timeout: float) -> bool:
        """Wait until there is an event above an id; whether there is one."""
        with self._recorded:
            return self._recorded.wait_for(lambda: bool(self._recent) and self._recent[-1].id > after, timeout)

    def flush(self) -> int:
        """Write what is not written, and say how much that was. What the store refuses waits for the next time."""
        if self._store is None:
            return 0
        with self._flushing:
            with self._recorded:
                events = list(self._unwritten)
            if not events:
                return 0
            self._store.write_events(events)
            with self._recorded:
                while self._unwritten and self._unwritten[0].id <= events[-1].id:
                    self._unwritten.popleft()
            return len(events)

    def _tell(self, listener: Listener, event: Event) -> None:
        try:
            listener(event)
        except Exception as error:
            # One who cannot listen must not keep others from recording; that it is dropped is an event too.
            LOGGER.warning("a listener to events is dropped", exc_info=True)
            self._forget(listener)
            reason = f"a listener was dropped because it raised {type(error).__name__}: {error}"
            self.record(Event(event.time, EventKind.FAULT, "events", reason, cause=str(event.id)))

    def _forget(self, listener: Listener) -> None:
        with self._recorded:
            self._listeners = [one for one in self._listeners if one is not listener]
