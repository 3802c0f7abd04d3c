"""The user's own function, called by the sink's bundles with Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.kinds import SinkKind
from penstock.sinks.mistakes import bad_sink


def arrow(function: Callable[[Any], Any]) -> ArrowSink:
    """The user's own, on the sink's slots: `function(record_batch)` for rows as they come, in as many instances as the
    sink has; what it returns is not looked at. A batch that is run again after a failure calls it again."""
    if not callable(function):
        raise bad_sink(f"the sink's function is a {type(function).__name__}.", "Give a function of a RecordBatch.")
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
