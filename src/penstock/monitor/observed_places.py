"""Where bundles ran since the placement last changed, as the bundles saw it."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from penstock.monitor.report import BatchReport


class ObservedPlaces:
    """Told of every batch. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[str, dict[str, set[str]]] = {}
        #: When the requested placement last changed, and since when an operator's places are noted.
        self._changed_at = 0.0
        self._since: dict[str, float] = {}

    def note(self, report: BatchReport) -> None:
        name = report.operator
        with self._lock:
            if report.started < self._changed_at:
                return  # it may have been placed before the change
            if self._since.get(name, 0.0) < self._changed_at:
                self._places[name], self._since[name] = {}, self._changed_at
            for bundle in report.bundles:
                if bundle.executor is not None:
                    self._places.setdefault(name, {}).setdefault(bundle.slot, set()).add(bundle.executor)

    def placement_changed(self, at: float) -> None:
        """What was seen where before this time says nothing about the placement as it is now."""
        with self._lock:
            self._changed_at = at

    def of(self, operator: str) -> Mapping[str, set[str]]:
        """Slot -> the executors that ran its bundles."""
        with self._lock:
            return {slot: set(executors) for slot, executors in self._places.get(operator, {}).items()}
