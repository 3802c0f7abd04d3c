"""When the newest batches of every operator were published, and how many rows they read."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from itertools import pairwise

from penstock.monitor.report import BatchReport

#: So many of the newest publications of an operator are kept, however long ago.
KEPT = 1024


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """When a batch began, when it was published, and how many rows it read."""

    batch: int
    started: float
    finished: float
    rows: int = 0


class Publications:
    """Told of every batch. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._published: dict[str, deque[BatchTimes]] = {}

    def note(self, report: BatchReport) -> None:
        with self._lock:
            published = self._published.setdefault(report.operator, deque(maxlen=KEPT))
            published.append(BatchTimes(report.batch, report.started, report.finished, report.rows_in))

    def newest(self, operator: str) -> BatchTimes | None:
        with self._lock:
            published = self._published.get(operator)
            return published[-1] if published else None

    def batches(self, operator: str) -> list[BatchTimes]:
        """The operator's newest batches, the oldest first."""
        with self._lock:
            return list(self._published.get(operator, ()))

    def gaps(self, operator: str) -> list[tuple[float, float]]:
        """When the operator's newest batches were published, and the seconds since the one before."""
        times = [one.finished for one in self.batches(operator)]
        return [(after, after - before) for before, after in pairwise(times)]
