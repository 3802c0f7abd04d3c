"""The user's own function, called on the driver with every micro-batch as a DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.kinds import SinkKind, SinkPlace
from penstock.sinks.mistakes import bad_sink


def function(function: Callable[[Any, int], Any]) -> FunctionSink:
    """The user's own: `function(dataframe, batch_id)` for every batch, as in Spark's foreachBatch. A batch that is run
    again after a failure has the same id, by which the function can tell that it did its work already."""
    if not callable(function):
        raise bad_sink(
            f"the sink's function is a {type(function).__name__}.", "Give a function of a DataFrame and a batch id."
        )
    return FunctionSink(function)


@dataclass(frozen=True)
class FunctionSink(SinkKind):
    function: Callable[[Any, int], Any]

    kind = "function"
    written_by_bundles = False
    users_function = True

    def describe(self) -> Mapping[str, Any]:
        name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        return {"kind": self.kind, "function": str(name)}

    def batch_writer(self, place: SinkPlace) -> FunctionWriter:
        return FunctionWriter(self, place.batches_before)


@dataclass(frozen=True)
class FunctionWriter:
    spec: FunctionSink
    #: A number that the function has seen never comes again for other rows, also when the sink began anew.
    before: int = 0

    def write(self, frame: Any, batch: int) -> None:
        self.spec.function(frame, self.before + batch)
