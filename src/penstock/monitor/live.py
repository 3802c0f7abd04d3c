"""What a running topology does right now: rates over a short window and latency, from the batches' own reports."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from ddsketch import DDSketch

from penstock.clock import run_time
from penstock.monitor.kept_state import KeptState
from penstock.monitor.report import BatchReport

#: Latency is known to this relative error.
LATENCY_ERROR = 0.01
#: A batch's rows are as old as anything between its oldest and its newest: this many points stand for that range.
_POINTS = 8
#: So many of the newest publications of an operator are kept, however long ago.
_PUBLISHED = 256


@dataclass(frozen=True)
class OperatorRates:
    """Over the window, or over the whole run: rows a second, seconds a batch."""

    rows_in: float
    rows_out: float
    batch_seconds: float | None
    batches: int


@dataclass(frozen=True)
class Latency:
    """End to end, in seconds, from when a row was due at the source to when its batch was published at the sink."""

    p50: float | None
    p99: float | None


class LiveStatistics:
    """Fed by the engine with every published batch; read by the command line."""

    def __init__(self, window: float = 10.0, clock: Callable[[], float] = run_time) -> None:
        self._window = window
        self._clock = clock
        self._lock = threading.Lock()
        self._recent: dict[str, deque[BatchReport]] = {}
        self._total_in: dict[str, int] = {}
        self._total_out: dict[str, int] = {}
        self._bad_rows: dict[str, int] = {}
        self._late_rows: dict[str, int] = {}
        self._kept: dict[str, tuple[KeptState, ...]] = {}
        self._batches: dict[str, int] = {}
        self._first: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._published: dict[str, deque[float]] = {}
        self._sketches: dict[str, DDSketch] = {}
        #: One sketch a second, for the window: sketches can be merged.
        self._by_second: dict[str, deque[tuple[int, DDSketch]]] = {}
        self._places: dict[str, dict[str, set[str]]] = {}
        #: When the requested placement last changed, and since when an operator's places are noted.
        self._changed_at = 0.0
        self._places_since: dict[str, float] = {}

    def add(self, report: BatchReport) -> None:
        name = report.operator
        with self._lock:
            recent = self._recent.setdefault(name, deque())
            recent.append(report)
            while recent and recent[0].finished < report.finished - self._window:
                recent.popleft()
            self._total_in[name] = self._total_in.get(name, 0) + report.rows_in
            self._total_out[name] = self._total_out.get(name, 0) + sum(report.rows_out.values())
            self._bad_rows[name] = self._bad_rows.get(name, 0) + report.bad_rows
            self._batches[name] = self._batches.get(name, 0) + 1
            self._first.setdefault(name, report.started)
            self._last[name] = report.finished
            sketches = self._sketches_at(name, report.finished)
            self._note_places(report)
            self._published.setdefault(name, deque(maxlen=_PUBLISHED)).append(report.finished)
            for bundle in report.bundles:
                if bundle.rows_in:
                    low, high = report.finished - bundle.born_to, report.finished - bundle.born_from
                    for point in range(_POINTS):
                        latency = max(low + (high - low) * (point + 0.5) / _POINTS, 0.0)
                        for sketch in sketches:
                            sketch.add(latency, bundle.rows_in / _POINTS)

    def _note_places(self, report: BatchReport) -> None:
        name = report.operator
        if report.started < self._changed_at:
            return  # it may have been placed before the change
        if self._places_since.get(name, 0.0) < self._changed_at:
            self._places[name], self._places_since[name] = {}, self._changed_at
        for bundle in report.bundles:
            if bundle.executor is not None:
                self._places.setdefault(name, {}).setdefault(bundle.slot, set()).add(bundle.executor)

    def placement_changed(self, at: float) -> None:
        """What was seen where before this time says nothing about the placement as it is now."""
        with self._lock:
            self._changed_at = at

    def gaps(self, operator: str) -> list[tuple[float, float]]:
        """When the operator's newest batches were published, and the seconds since the one before."""
        with self._lock:
            times = list(self._published.get(operator, ()))
        return [(after, after - before) for before, after in pairwise(times)]

    def batches(self, operator: str) -> int:
        """How many were published since the start of this run."""
        with self._lock:
            return self._batches.get(operator, 0)

    def last_started(self, operator: str) -> float:
        """When the newest published batch began; 0 if there was none."""
        with self._lock:
            recent = self._recent.get(operator)
            return recent[-1].started if recent else 0.0

    def _sketches_at(self, name: str, time: float) -> tuple[DDSketch, DDSketch]:
        """The sketch of the whole run, and that of this second."""
        recent = self._by_second.setdefault(name, deque())
        if not recent or recent[-1][0] != int(time):
            recent.append((int(time), DDSketch(LATENCY_ERROR)))
        while recent[0][0] < time - self._window:
            recent.popleft()
        return self._sketches.setdefault(name, DDSketch(LATENCY_ERROR)), recent[-1][1]

    def rates(self, operator: str) -> OperatorRates:
        """Over the window, up to now: an operator that has stopped shows falling rates, not its last ones."""
        now = self._clock()
        with self._lock:
            recent = [one for one in self._recent.get(operator, ()) if one.finished > now - self._window]
            if not recent:
                return OperatorRates(0.0, 0.0, None, 0)
            seconds = max(min(self._window, now - self._first[operator]), 0.001)
            return OperatorRates(
                rows_in=sum(one.rows_in for one in recent) / seconds,
                rows_out=sum(sum(one.rows_out.values()) for one in recent) / seconds,
                batch_seconds=sum(one.finished - one.started for one in recent) / len(recent),
                batches=len(recent),
            )

    def whole_run(self, operator: str) -> OperatorRates:
        """From the operator's first batch to its last."""
        with self._lock:
            batches = self._batches.get(operator, 0)
            if not batches:
                return OperatorRates(0.0, 0.0, None, 0)
            seconds = max(self._last[operator] - self._first[operator], 0.001)
            return OperatorRates(
                self._total_in[operator] / seconds, self._total_out[operator] / seconds, seconds / batches, batches
            )

    def totals(self, operator: str) -> tuple[int, int]:
        """Rows in and out since the start of this run."""
        with self._lock:
            return self._total_in.get(operator, 0), self._total_out.get(operator, 0)

    def bad_rows(self, operator: str) -> int:
        with self._lock:
            return self._bad_rows.get(operator, 0)

    def keep(self, operator: str, kept: tuple[KeptState, ...], late_rows: int) -> None:
        """What a keyed operator keeps after its newest batch, and the rows that came too late for it."""
        with self._lock:
            self._kept[operator] = kept
            self._late_rows[operator] = self._late_rows.get(operator, 0) + late_rows

    def kept(self, operator: str) -> tuple[KeptState, ...]:
        """The state of a keyed operator; nothing before its first batch."""
        with self._lock:
            return self._kept.get(operator, ())

    def late_rows(self, operator: str) -> int:
        """Rows that its watermark has dropped since the start of this run."""
        with self._lock:
            return self._late_rows.get(operator, 0)

    def latency(self, operator: str) -> Latency:
        """Over the whole run."""
        with self._lock:
            return _latency_of(self._sketches.get(operator))

    def recent_latency(self, operator: str) -> Latency:
        """Over the window."""
        merged = DDSketch(LATENCY_ERROR)
        with self._lock:
            for second, sketch in self._by_second.get(operator, ()):
                if second > self._clock() - self._window:
                    merged.merge(sketch)
        return _latency_of(merged)

    def observed(self, operator: str) -> Mapping[str, set[str]]:
        """Slot -> the executors that ran its bundles since the placement last changed, as the bundles saw it."""
        with self._lock:
            return {slot: set(executors) for slot, executors in self._places.get(operator, {}).items()}


def _latency_of(sketch: DDSketch | None) -> Latency:
    if sketch is None or not sketch.count:
        return Latency(None, None)
    return Latency(sketch.get_quantile_value(0.5), sketch.get_quantile_value(0.99))
