"""Latency as a sketch: quantiles with a bounded relative error, that can be merged and written down as text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from ddsketch import LogarithmicMapping
from ddsketch.ddsketch import BaseDDSketch
from ddsketch.store import DenseStore

#: Quantiles are known to this relative error.
RELATIVE_ERROR = 0.01
#: What is shorter counts as this: nobody can measure it, and it keeps the number of bins small.
SHORTEST = 1e-4
#: A batch's rows are as old as anything between its oldest and its newest: this many points stand for that range.
_POINTS = 8
_MAPPING = LogarithmicMapping(RELATIVE_ERROR)


@dataclass(frozen=True)
class Latency:
    """End to end, in seconds: from when a row was due at its source to when its batch was published at the sink."""

    rows: int
    mean: float
    p50: float
    p90: float
    p99: float


class LatencySketch:
    """How long rows took, in seconds. Adding is for its maker alone: once handed on, it is read and merged only."""

    def __init__(self) -> None:
        self._bins = DenseStore()
        self._sketch = _over(self._bins)
        self._seconds = 0.0

    def add(self, seconds: float, rows: int = 1) -> None:
        self._sketch.add(max(seconds, SHORTEST), rows)
        self._seconds += seconds * rows

    def add_range(self, shortest: float, longest: float, rows: int) -> None:
        """Rows of which only the range is known: spread evenly over it, every row once."""
        points = min(_POINTS, rows)
        for point in range(points):
            share = rows * (point + 1) // points - rows * point // points
            self.add(max(shortest + (longest - shortest) * (point + 0.5) / points, 0.0), share)

    def merge(self, other: LatencySketch) -> None:
        self._sketch.merge(other._sketch)
        self._seconds += other._seconds

    @property
    def rows(self) -> int:
        return round(self._bins.count)

    @property
    def mean(self) -> float | None:
        return self._seconds / self.rows if self.rows else None

    def quantile(self, share: float) -> float | None:
        """None if there is no row."""
        value: float | None = self._sketch.get_quantile_value(share)
        return value

    @property
    def latency(self) -> Latency | None:
        """In a few figures; None if there is no row."""
        mean = self.mean
        if mean is None:
            return None
        p50, p90, p99 = (self.quantile(share) or 0.0 for share in (0.5, 0.9, 0.99))
        return Latency(self.rows, mean, p50, p90, p99)

    def as_text(self) -> str:
        """JSON: the sum of the seconds, the first bin's key, and the rows of the bins from there on."""
        bins = self._bins
        counts: list[int] = []
        if bins.count:
            counts = [round(bins.bins[key - bins.offset]) for key in range(bins.min_key, bins.max_key + 1)]
        return json.dumps([round(self._seconds, 6), bins.min_key if counts else 0, counts], separators=(",", ":"))

    @staticmethod
    def parse(text: str) -> LatencySketch:
        seconds, first, counts = json.loads(text)
        sketch = LatencySketch()
        if counts:
            # All at once: a day of history is thousands of sketches.
            bins = sketch._bins
            bins.bins, bins.offset, bins.count = counts, first, sum(counts)
            bins.min_key, bins.max_key = first, first + len(counts) - 1
            sketch._sketch = _over(bins)  # it counts what the bins hold when it is made
        sketch._seconds = seconds
        return sketch


def merged(sketches: Iterable[LatencySketch]) -> LatencySketch:
    """All of them in a new one."""
    total = LatencySketch()
    for sketch in sketches:
        total.merge(sketch)
    return total


def _over(bins: DenseStore) -> BaseDDSketch:
    return BaseDDSketch(_MAPPING, bins, DenseStore(), 0.0)
