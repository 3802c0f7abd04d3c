"""Throughput over time, from the batches that came out of the sinks: for what happens around a scaling operation."""

from __future__ import annotations

import statistics
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise

from penstock.strategies.scaling.measure import Sample

#: Batches of a sink that are remembered: at one a second, an hour.
KEPT = 3600


class Timeline:
    """Fed with every batch of a sink, by any thread."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        """`weights` has every sink, with how much a row counts there."""
        self._weights = dict(weights)
        self._lock = threading.Lock()
        self._published: dict[str, deque[tuple[float, int]]] = {name: deque(maxlen=KEPT) for name in weights}

    def add(self, operator: str, at: float, rows: int) -> None:
        if operator in self._published:
            with self._lock:
                self._published[operator].append((at, rows))

    def samples(self, start: float, stop: float, step: float = 1.0) -> list[Sample]:
        """Rows a second at all sinks together, in steps; a sample at t is for the step before it."""
        with self._lock:
            published = {name: list(batches) for name, batches in self._published.items()}
        rates = [rates_of(batches, start, stop, step) for batches in published.values()]
        weights = self._weights.values()
        count = int((stop - start) / step)
        return [
            Sample(
                start + (index + 1) * step, sum(weight * one[index] for weight, one in zip(weights, rates, strict=True))
            )
            for index in range(count)
        ]


def rates_of(batches: Sequence[tuple[float, int]], start: float, stop: float, step: float) -> list[float]:
    """Rows a second in every step. A batch's rows count as if they had come out evenly over the usual gap before it: a
    batch that is a little late is no loss of throughput, and one that is very late leaves a hole, however many rows it
    has."""
    rates = [0.0] * int((stop - start) / step)
    gaps = [after - before for (before, _), (after, _) in pairwise(batches)]
    usual = max(statistics.median(gaps), 1e-3) if gaps else step
    for at, rows in batches:
        first = max(int((at - usual - start) / step), 0)
        for index in range(first, len(rates)):
            low, high = start + index * step, start + (index + 1) * step
            shared = min(at, high) - max(at - usual, low)
            if low >= at:
                break
            if shared > 0:
                rates[index] += rows * shared / usual / step
    return rates
