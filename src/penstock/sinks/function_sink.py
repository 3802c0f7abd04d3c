"""A sink that calls the user's own function with every micro-batch as a DataFrame, on the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.kinds import SinkKind, SinkPlace
from penstock.sinks.mistakes import bad_sink


def function(function: Callable[[Any, int], Any]) -> FunctionSink:
    """A sink that calls `function(dataframe, batch_id)` for every batch, as Spark's foreachBatch does. A batch that is
    run again after a failure has the same id, so the function can tell that it has done its work already."""
    if not callable(function):
        raise bad_sink(
            f"the sink's function is a {type(function).__name__}.",
            "Give a function that takes a DataFrame and a batch id.",
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
