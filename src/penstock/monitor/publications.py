"""When the newest batches of every operator were published."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from itertools import pairwise

from penstock.monitor.report import BatchReport

#: So many of the newest publications of an operator are kept, however long ago.
KEPT = 256


@dataclass(frozen=True)
class BatchTimes:
    """When a batch began, and when it was published."""

    batch: int
    started: float
    finished: float


class Publications:
    """Told of every batch. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._published: dict[str, deque[BatchTimes]] = {}

    def note(self, report: BatchReport) -> None:
        with self._lock:
            published = self._published.setdefault(report.operator, deque(maxlen=KEPT))
            published.append(BatchTimes(report.batch, report.started, report.finished))

    def newest(self, operator: str) -> BatchTimes | None:
        with self._lock:
            published = self._published.get(operator)
            return published[-1] if published else None

    def gaps(self, operator: str) -> list[tuple[float, float]]:
        """When the operator's newest batches were published, and the seconds since the one before."""
        with self._lock:
            times = [one.finished for one in self._published.get(operator, ())]
        return [(after, after - before) for before, after in pairwise(times)]
