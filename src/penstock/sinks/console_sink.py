"""A sink that prints rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.kinds import SinkKind, SinkPlace
from penstock.sinks.mistakes import bad_sink


def console(rows: int = 20, every: int = 1) -> ConsoleSink:
    """A sink that prints up to `rows` rows of a batch. With `every=10` it prints only one in ten batches."""
    for name, value in (("rows", rows), ("every", every)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise bad_sink(f"{name} of sinks.console is {value!r}.", "Give a whole number of at least 1.")
    return ConsoleSink(rows, every)


@dataclass(frozen=True)
class ConsoleSink(SinkKind):
    #: How many rows of a batch are shown at most.
    rows: int
    #: Of how many batches one is shown.
    every: int

    kind = "console"
    written_by_bundles = False

    def describe(self) -> Mapping[str, Any]:
        return {"kind": self.kind, "rows": self.rows, "every": self.every}

    def batch_writer(self, place: SinkPlace) -> ConsoleWriter:
        return ConsoleWriter(self)


@dataclass(frozen=True)
class ConsoleWriter:
    spec: ConsoleSink

    def write(self, frame: Any, batch: int) -> None:
        if batch % self.spec.every == 0:
            frame.show(self.spec.rows, truncate=False)
