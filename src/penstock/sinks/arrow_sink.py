"""A sink that calls the user's own function with Arrow batches, in its bundles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.kinds import SinkKind
from penstock.sinks.mistakes import bad_sink


def arrow(function: Callable[[Any], Any]) -> ArrowSink:
    """A sink that calls `function(record_batch)` on its own slots, from each of its instances. Penstock ignores what
    the function returns. If a batch is run again after a failure, the function gets the same rows again."""
    if not callable(function):
        raise bad_sink(
            f"the sink's function is a {type(function).__name__}.", "Give a function that takes a RecordBatch."
        )
    return ArrowSink(function)


@dataclass(frozen=True)
class ArrowSink(SinkKind):
    function: Callable[[Any], Any]

    kind = "arrow"
    users_function = True

    def describe(self) -> Mapping[str, Any]:
        name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        return {"kind": self.kind, "function": str(name)}

    def bundle_function(self) -> Callable[[pa.RecordBatch], Any]:
        return self.function
