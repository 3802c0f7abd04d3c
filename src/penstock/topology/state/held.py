"""The states of one key while its processor works: what `self.<state>` and `self.timers` are in a processor.

Behind each is a store with the methods of PySpark's own states: that of Spark, or one in memory (memory.py). A value
that is read is a copy: a change counts only when it is set again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.errors import PenstockError
from penstock.topology.state.columns import Columns

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class HeldValue:
    """One value for each key."""

    def __init__(self, store: Any, columns: Columns) -> None:
        self._store = store
        self._columns = columns

    def get(self, default: Any = None) -> Any:
        """The value; the default if there is none, or its time to live is over."""
        found = self._store.get()
        return default if found is None else self._columns.unpack(found)

    def set(self, value: Any) -> None:
        self._store.update(self._columns.pack(value))

    def clear(self) -> None:
        self._store.clear()


class HeldList:
    """A list of values for each key. With a time to live, each element has its own."""

    def __init__(self, store: Any, columns: Columns) -> None:
        self._store = store
        self._columns = columns

    def __iter__(self) -> Iterator[Any]:
        # Spark gives its elements in portions: the list may be changed while somebody walks through it.
        return iter([self._columns.unpack(one) for one in self._store.get()])

    def append(self, value: Any) -> None:
        self._store.appendValue(self._columns.pack(value))

    def extend(self, values: Iterable[Any]) -> None:
        if packed := [self._columns.pack(value) for value in values]:
            self._store.appendList(packed)

    def set(self, values: Iterable[Any]) -> None:
        """Replace all elements."""
        packed = [self._columns.pack(value) for value in values]
        if packed:
            self._store.put(packed)
        else:
            self._store.clear()  # Spark refuses to put an empty list

    def clear(self) -> None:
        self._store.clear()


class HeldMap:
    """A map for each key. With a time to live, each entry has its own."""

    def __init__(self, store: Any, columns: Columns, keys: Columns) -> None:
        self._store = store
        self._columns = columns
        self._keys = keys

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of an entry; the default if there is none, or its time to live is over."""
        found = self._store.getValue(self._keys.pack(key))
        return default if found is None else self._columns.unpack(found)

    def __contains__(self, key: Any) -> bool:
        return bool(self._store.containsKey(self._keys.pack(key)))

    def set(self, key: Any, value: Any) -> None:
        self._store.updateValue(self._keys.pack(key), self._columns.pack(value))

    def remove(self, key: Any) -> None:
        """Remove an entry; nothing happens if there is none."""
        self._store.removeKey(self._keys.pack(key))

    def items(self) -> list[tuple[Any, Any]]:
        """All entries, in an order that is not defined."""
        return [(self._keys.unpack(key), self._columns.unpack(value)) for key, value in self._store.iterator()]

    def keys(self) -> list[Any]:
        return list(map(self._keys.unpack, self._store.keys()))

    def values(self) -> list[Any]:
        return list(map(self._columns.unpack, self._store.values()))

    def clear(self) -> None:
        self._store.clear()


class Timers:
    """The timers of one key. Spark counts in milliseconds: a timer is set to the next whole one."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def set(self, at: datetime) -> None:
        """Have `timer` called once `at` has come. A moment at which there is a timer already keeps one."""
        self._handle.registerTimer(milliseconds(at))

    def cancel(self, at: datetime) -> None:
        """Remove a timer; nothing happens if there is none at this moment."""
        self._handle.deleteTimer(milliseconds(at))

    def __iter__(self) -> Iterator[datetime]:
        """The moments of all timers of the key, the earliest first."""
        return iter(sorted(moment(one) for one in self._handle.listTimers()))


def milliseconds(at: Any) -> int:
    """Spark's number for a moment, rounded up: what is set to a moment must not come before it."""
    if not isinstance(at, datetime):
        raise PenstockError(
            "BAD_STATE",
            f"a timer is set to {at!r}, a {type(at).__name__}.",
            "Give a datetime, such as self.now + timedelta(minutes=1).",
        )
    aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return -((EPOCH - aware) // _MILLISECOND)


def moment(at: int) -> datetime:
    """The moment of one of Spark's numbers."""
    return EPOCH + timedelta(milliseconds=at)
