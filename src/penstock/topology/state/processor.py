"""The processor: the class that a user writes for a stateful operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, ClassVar

from penstock.errors import PenstockError
from penstock.topology.state.declared import states_of
from penstock.topology.state.held import Timers, moment

#: A row, or the key of one: values by column.
Row = Mapping[str, Any]


class Processor:
    """Works on the rows of one key at a time. States are declared as attributes of the class.

    Spark makes a new copy of the processor for every task and micro-batch: what is to last is set in a state, and not
    in an attribute."""

    #: What the processor works with at the moment: Spark's store, or one in memory.
    _bound: _Bound | None = None
    #: Attributes that are no states.
    RESERVED: ClassVar[frozenset[str]] = frozenset(
        {"rows", "timer", "timers", "has_timers", "now", "watermark", "bind", "at_time", "held_state"}
    )

    def rows(self, key: Row, rows: Iterator[dict[str, Any]]) -> Iterable[Row]:
        """Called with the rows of one key in a micro-batch. Yields the rows that the operator emits."""
        raise NotImplementedError

    def timer(self, key: Row, at: datetime) -> Iterable[Row]:
        """Called when a timer of a key has come. Yields the rows that the operator emits."""
        return ()

    @property
    def has_timers(self) -> bool:
        """Whether the class has a method `timer` of its own."""
        return type(self).timer is not Processor.timer

    @property
    def timers(self) -> Timers:
        """The timers of the key."""
        if not self.has_timers:
            raise PenstockError(
                "BAD_STATE",
                f"{type(self).__name__} uses timers and has no method timer().",
                "Write timer(self, key, at): Penstock calls it when a timer has come.",
            )
        return self._working().timers

    @property
    def now(self) -> datetime:
        """The time of the micro-batch. It is the same for all its rows, and again if the batch is replayed."""
        return self._working().now

    @property
    def watermark(self) -> datetime | None:
        """The watermark of the micro-batch: rows and timers up to it are done. None before the first rows."""
        return self._working().watermark

    def bind(self, handle: Any) -> None:
        """Penstock calls this before it hands rows to the processor. `handle` is PySpark's, or one in memory."""
        self._bound = _Bound(handle, {name: one.held(handle) for name, one in states_of(type(self)).items()})

    def at_time(self, processing: int, watermark: int) -> None:
        """Penstock says what time it is, in Spark's numbers: -1 where there is none."""
        bound = self._working()
        bound.processing, bound.event = processing, watermark

    def held_state(self, name: str) -> Any:
        """The state of the key that is declared under this name."""
        return self._working().states[name]

    def _working(self) -> _Bound:
        if self._bound is None:
            raise PenstockError(
                "BAD_STATE",
                f"the state of {type(self).__name__} is used outside of rows() and timer().",
                "State belongs to a key: use it only in rows() and timer(), and not in __init__.",
            )
        return self._bound


class _Bound:
    """The stores and the time that a processor works with."""

    def __init__(self, handle: Any, states: Mapping[str, Any]) -> None:
        self.timers = Timers(handle)
        self.states = states
        self.processing = -1
        self.event = -1

    @property
    def now(self) -> datetime:
        if self.processing < 0:
            raise PenstockError(
                "BAD_STATE",
                "a processor asks for the time, and Spark gives it none.",
                "Write a method timer(), give a state a ttl, or declare the operator with event_time=...",
            )
        return moment(self.processing)

    @property
    def watermark(self) -> datetime | None:
        return moment(self.event) if self.event > 0 else None
