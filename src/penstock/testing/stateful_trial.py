"""`testing.stateful`: one stateful operator of a topology, with a clock of the test's own.

    trial = testing.stateful(topology, "visits")
    assert trial.rows([{"user": "ann"}]) == [{"user": "ann", "n": 1}]
    assert trial.advance(3600) == []
    assert trial.state("seen", user="ann") == 1

Without Spark: see processor_batches.py. Every call is one micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from penstock.errors import PenstockError
from penstock.failing import OperatorFailure, found_in
from penstock.testing.clock import Clock
from penstock.testing.given_rows import rows_of_schema
from penstock.testing.processor_batches import ProcessorBatches, Rows
from penstock.topology.declaration import Topology
from penstock.topology.definition import Keyed
from penstock.topology.state.held import HeldList, HeldMap, HeldValue, moment
from penstock.topology.state.processing import Processing


def stateful(topology: Topology, operator: str, *, clock: Clock | None = None) -> StatefulTrial:
    """A stateful operator by itself, with empty state. Without a clock it has one of its own: `trial.clock`."""
    definition = topology.definition()
    found = definition.operator(operator)
    if not isinstance(found, Keyed) or not isinstance(found.function, Processing):
        raise PenstockError(
            "TEST_ROWS",
            f'the {found.kind} "{operator}" has no processor.',
            "Name an operator that is declared with topology.stateful; testing.run runs all the others.",
            found.where,
        )
    schema = definition.schema_of_all(definition.inputs_of(operator))
    return StatefulTrial(found, found.function, schema, clock or Clock())


class StatefulTrial:
    """The micro-batches of one stateful operator, one call after the other."""

    def __init__(self, operator: Keyed, processing: Processing, schema: Any, clock: Clock) -> None:
        self._operator = operator
        self._processing = processing
        self._schema = schema
        self.clock = clock
        self._batches = ProcessorBatches(processing, clock)

    def rows(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """One micro-batch with these rows. Returns what the operator emits, also for timers that have come."""
        given = rows_of_schema(f'operator "{self._operator.name}"', rows, self._schema)
        return self._emitted(lambda: self._batches.work(given.to_pylist()))

    def advance(self, seconds: float) -> list[dict[str, Any]]:
        """Move the clock, and run a micro-batch without rows: timers of processing time come, values expire."""
        self.clock.advance(seconds)
        return self._emitted(lambda: self._batches.work([]))

    def pass_to(self, at: datetime) -> list[dict[str, Any]]:
        """Move the watermark to this moment, as rows of other keys would, and run a micro-batch without rows."""
        return self._emitted(lambda: self._batches.pass_to(at))

    @property
    def watermark(self) -> datetime | None:
        """None before the first rows, and without event time."""
        return moment(self._batches.watermark) if self._batches.watermark else None

    @property
    def late_rows(self) -> int:
        """How many rows were dropped because the watermark had passed them."""
        return self._batches.late_rows

    def state(self, name: str, **key: Any) -> Any:
        """What a state holds for a key: a value or None, a list, or a dict."""
        if name not in self._processing.states:
            raise self._wrong(f'there is no state "{name}"', f"Its states are: {', '.join(self._processing.states)}.")
        held = getattr(self._batches.processor(self._key(key)), name)
        match held:
            case HeldValue():
                return held.get()
            case HeldMap():
                return dict(held.items())
            case HeldList():
                return list(held)

    def timers(self, **key: Any) -> list[datetime]:
        """The timers of a key, the earliest first."""
        return list(self._batches.processor(self._key(key)).timers)

    def _key(self, key: Mapping[str, Any]) -> tuple[Any, ...]:
        columns = self._processing.key
        if set(key) != set(columns):
            given = ", ".join(f"{name}={value!r}" for name, value in key.items())
            raise self._wrong(f"the key is given as ({given})", f"Give a value for each of: {', '.join(columns)}.")
        return tuple(key[name] for name in columns)

    def _emitted(self, work: Any) -> list[dict[str, Any]]:
        try:
            rows: Rows = work()
        except OperatorFailure as failure:
            raise found_in(str(failure)) or failure from failure.__cause__
        emitted: list[dict[str, Any]] = self._batches.as_arrow(rows).to_pylist()
        return emitted

    def _wrong(self, problem: str, hint: str) -> PenstockError:
        return PenstockError("TEST_ROWS", f'"{self._operator.name}": {problem}.', hint, self._operator.where)
