"""What a keyed operator keeps inside, in rows of its state, and whether their results are still to come.

A count that is told with every batch keeps its rows by design: everything it knows was emitted. A window that waits for
its watermark holds results that nobody has seen yet. Only the second is something that has not arrived.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.topology.definition import Keyed, Operator
from penstock.topology.state.processing import Processing


class Kind(StrEnum):
    """What the state is for."""

    AGGREGATE = "aggregate"
    JOIN = "join"
    DISTINCT = "distinct"
    #: transformWithState and the like: only the user knows.
    OWN = "own"


@dataclass(frozen=True)
class KeptState:
    """The state of one stateful step of an operator, after its newest batch."""

    kind: Kind
    rows: int
    #: Whether results of these rows are emitted only when the watermark has passed them.
    open: bool = False

    def as_json(self) -> dict[str, Any]:
        return {"kind": str(self.kind), "rows": self.rows, "open": self.open}

    @staticmethod
    def parse(fields: Mapping[str, Any]) -> KeptState:
        return KeptState(Kind(fields["kind"]), fields["rows"], fields["open"])

    def __str__(self) -> str:
        if self.open:
            results = "1 result" if self.rows == 1 else f"{self.rows:,} results"
            return f"{results} of windows that are still open"
        rows, verb = ("1 row", "is") if self.rows == 1 else (f"{self.rows:,} rows", "are")
        return {
            Kind.AGGREGATE: f"{rows} of results, all of which were emitted",
            Kind.JOIN: f"{rows} that {verb} kept in case a row comes that they join with",
            Kind.DISTINCT: f"{rows} that tell what was seen before",
            Kind.OWN: f"{rows} of its function's own state",
        }[self.kind]


class KeptStates:
    """The state of every keyed operator of a run after its newest batch. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[str, tuple[KeptState, ...]] = {}

    def note(self, operator: str, states: tuple[KeptState, ...]) -> None:
        with self._lock:
            self._states[operator] = states

    def of(self, operator: str) -> tuple[KeptState, ...]:
        """Nothing before its first batch."""
        with self._lock:
            return self._states.get(operator, ())


def open_rows(kept: Iterable[KeptState]) -> int:
    """Results that are not emitted yet."""
    return sum(one.rows for one in kept if one.open)


def left_inside(kept: Mapping[str, Iterable[KeptState]]) -> dict[str, int]:
    """By operator, the results that are not emitted yet, where there are any."""
    return {name: rows for name, states in kept.items() if (rows := open_rows(states))}


def may_give_more(operator: Operator, kept: Iterable[KeptState]) -> bool:
    """Whether nobody but the user knows if all results of what an operator keeps are emitted: an outer join emits rows
    without a partner when the watermark passes them, and state of the user's own may wait for a timer."""
    if not isinstance(operator, Keyed):
        return False
    # Spark runs outer joins in append mode only.
    may_wait = {Kind.JOIN: operator.output_mode == "append", Kind.OWN: not gives_all_at_once(operator)}
    return any(may_wait.get(one.kind, False) and one.rows for one in kept)


def more_in_words(operators: Iterable[str]) -> str:
    """Of operators that may give more, for a line of a page or an event; empty if there are none."""
    names = ", ".join(f'"{name}"' for name in operators)
    return f"rows that are kept in {names} may not have given all of their results" if names else ""


def gives_all_at_once(operator: Keyed) -> bool:
    """Whether an operator has a processor without timers: what that keeps gives nothing without new rows."""
    return isinstance(operator.function, Processing) and not operator.function.processor.has_timers


def left_in_words(left: Mapping[str, int]) -> str:
    """For a line of a page or an event; empty if nothing is left."""
    return ", ".join(f'{rows:,} {"result" if rows == 1 else "results"} in "{name}"' for name, rows in left.items())


def unknown_in_words(operators: Iterable[str]) -> str:
    """Of operators that may hold results, for a line of a page or an event; empty if there are none."""
    names = ", ".join(f'"{name}"' for name in operators)
    why = "an earlier run was ended before it wrote that down, and no batch has run since"
    return f"it is not known whether results are left inside {names}: {why}" if names else ""
