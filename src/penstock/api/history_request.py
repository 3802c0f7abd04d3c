"""What somebody asks of the history of a running topology: one value for the handle, HTTP and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.monitor.history import POINTS
from penstock.monitor.series import By


@dataclass(frozen=True)
class HistoryRequest:
    """Metrics over a length of time. Times are seconds since the epoch, by the wall clock."""

    metrics: Sequence[str]
    since: float
    #: None means now.
    until: float | None = None
    #: One series for each operator, for each operator and slot, for each stream, or for each machine (of a lab).
    by: By = "operator"
    #: Only this operator (for streams: the operator that reads them). None means all operators.
    operator: str | None = None
    #: About so many points in each series.
    points: int = POINTS
