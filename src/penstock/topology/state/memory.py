"""The states and timers of all keys in memory, with the semantics of Spark's: for tests without Spark.

The classes have the method names of PySpark's own states, so that a processor works on either. What a store does by
the clock follows Spark's state stores: a value is gone once its time has come, a timer has come at its moment.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any

Key = tuple[Any, ...]
Stored = tuple[Any, ...]


class MemoryHandle:
    """What PySpark's StatefulProcessorHandle is on Spark. `key` and `now` say whose turn it is, and when."""

    def __init__(self) -> None:
        self.key: Key = ()
        #: The processing time of the micro-batch, in milliseconds.
        self.now = 0
        self.timers: dict[Key, set[int]] = {}
        self._stores: dict[str, Any] = {}

    def getValueState(self, name: str, schema: Any, ttl: int | None = None) -> MemoryValue:
        store: MemoryValue = self._stores.setdefault(name, MemoryValue(self, ttl))
        return store

    def getListState(self, name: str, schema: Any, ttl: int | None = None) -> MemoryList:
        store: MemoryList = self._stores.setdefault(name, MemoryList(self, ttl))
        return store

    def getMapState(self, name: str, keys: Any, schema: Any, ttl: int | None = None) -> MemoryMap:
        store: MemoryMap = self._stores.setdefault(name, MemoryMap(self, ttl))
        return store

    def registerTimer(self, at: int) -> None:
        self.timers.setdefault(self.key, set()).add(at)

    def deleteTimer(self, at: int) -> None:
        self.timers.get(self.key, set()).discard(at)

    def listTimers(self) -> Iterator[int]:
        return iter(sorted(self.timers.get(self.key, ())))

    def copied(self) -> Any:
        """What all keys have, to be put back if a micro-batch fails: Spark keeps nothing of one that failed."""
        return {key: set(times) for key, times in self.timers.items()}, {
            name: store.copied() for name, store in self._stores.items()
        }

    def put_back(self, copied: Any) -> None:
        self.timers, held = copied
        for name, store in self._stores.items():
            store.put_back(held.get(name, {}))

    def expired(self, until: int) -> list[tuple[Key, int]]:
        """The timers that have come, the earliest first."""
        found = [(at, key) for key, times in self.timers.items() for at in times if at <= until]
        return [(key, at) for at, key in sorted(found, key=lambda one: one[0])]


class _Store:
    """What is held for each key, each value with the moment at which it is gone."""

    def __init__(self, handle: MemoryHandle, ttl: int | None) -> None:
        self._handle = handle
        self._ttl = ttl
        self._held: dict[Key, Any] = {}

    def _timed(self, value: Stored) -> tuple[Stored, float]:
        return value, math.inf if self._ttl is None else self._handle.now + self._ttl

    def _lives(self, timed: tuple[Stored, float]) -> bool:
        return self._handle.now < timed[1]

    def clear(self) -> None:
        self._held.pop(self._handle.key, None)

    def copied(self) -> dict[Key, Any]:
        return {key: copy.copy(held) for key, held in self._held.items()}

    def put_back(self, copied: dict[Key, Any]) -> None:
        self._held = copied


class MemoryValue(_Store):
    def get(self) -> Stored | None:
        timed = self._held.get(self._handle.key)
        return timed[0] if timed is not None and self._lives(timed) else None

    def update(self, value: Stored) -> None:
        self._held[self._handle.key] = self._timed(value)


class MemoryList(_Store):
    def get(self) -> Iterator[Stored]:
        return iter([timed[0] for timed in self._held.get(self._handle.key, ()) if self._lives(timed)])

    def put(self, values: Sequence[Stored]) -> None:
        self._held[self._handle.key] = [self._timed(value) for value in values]

    def appendValue(self, value: Stored) -> None:
        self.appendList([value])

    def appendList(self, values: Sequence[Stored]) -> None:
        self._held.setdefault(self._handle.key, []).extend(self._timed(value) for value in values)


class MemoryMap(_Store):
    def iterator(self) -> Iterator[tuple[Stored, Stored]]:
        held: dict[Stored, tuple[Stored, float]] = self._held.get(self._handle.key, {})
        return iter([(key, timed[0]) for key, timed in held.items() if self._lives(timed)])

    def keys(self) -> Iterator[Stored]:
        return iter([key for key, _ in self.iterator()])

    def values(self) -> Iterator[Stored]:
        return iter([value for _, value in self.iterator()])

    def getValue(self, key: Stored) -> Stored | None:
        return dict(self.iterator()).get(key)

    def containsKey(self, key: Stored) -> bool:
        return key in dict(self.iterator())

    def updateValue(self, key: Stored, value: Stored) -> None:
        self._held.setdefault(self._handle.key, {})[key] = self._timed(value)

    def removeKey(self, key: Stored) -> None:
        self._held.get(self._handle.key, {}).pop(key, None)
