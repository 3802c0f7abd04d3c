"""Throughput over time, from the batches of the sinks: it shows the effect of a scaling operation."""

from __future__ import annotations

import math
import statistics
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise

from penstock.autoscaler.throughput_change import ThroughputPoint

#: So many batches of a sink are remembered however old they are: they say how often it has one.
LEAST_KEPT = 4
#: Batches that come within so many seconds of the one before are remembered as one. Bundles that stand publish dozens a
#: second, and the points are a second apart.
TOGETHER = 0.25
#: A sink's next batch counts as under way, and not as missing, for so many times the usual gap between two batches.
PATIENCE = 2.0


class Timeline:
    """The last batches of all sinks. Any thread may add one."""

    def __init__(self, weights: Mapping[str, float], seconds: float) -> None:
        """`weights` has every sink, with how much a row counts there. Batches are remembered for so many seconds."""
        self._weights = dict(weights)
        self._seconds = seconds
        self._lock = threading.Lock()
        self._published: dict[str, deque[tuple[float, int]]] = {name: deque() for name in weights}
        #: The newest batch that is forgotten ended here.
        self._forgotten = -math.inf

    def add(self, operator: str, at: float, rows: int) -> None:
        if operator not in self._published:
            return
        with self._lock:
            batches = self._published[operator]
            if len(batches) > 1 and at - batches[-2][0] < TOGETHER:
                last, before = batches[-1]
                batches[-1] = max(at, last), before + rows
            else:
                batches.append((at, rows))
            while len(batches) > LEAST_KEPT and batches[0][0] < at - self._seconds:
                self._forgotten = max(self._forgotten, batches.popleft()[0])

    def points(self, start: float, stop: float, step: float = 1.0) -> list[ThroughputPoint]:
        """Rows a second at all sinks together, in steps; a point at t is for the step before it. The points end
        where the next batch of a sink is still under way: its rows are not known yet, and are not 0. They begin where
        batches are remembered, for the same reason."""
        with self._lock:
            published = {name: list(batches) for name, batches in self._published.items()}
            start = max(start, self._forgotten)
        stop = min([stop, *(known_until(batches, stop) for batches in published.values())])
        rates = [rates_of(batches, start, stop, step) for batches in published.values()]
        weights = self._weights.values()
        count = max(int((stop - start) / step), 0)
        return [
            ThroughputPoint(
                start + (index + 1) * step, sum(weight * one[index] for weight, one in zip(weights, rates, strict=True))
            )
            for index in range(count)
        ]


def known_until(batches: Sequence[tuple[float, int]], now: float) -> float:
    """Up to when the throughput of a sink is known: to its last batch, as long as the next one is not late."""
    gaps = [after - before for (before, _), (after, _) in pairwise(batches)]
    if not gaps or now > batches[-1][0] + PATIENCE * statistics.median(gaps):
        return now
    return min(batches[-1][0], now)


def rates_of(batches: Sequence[tuple[float, int]], start: float, stop: float, step: float) -> list[float]:
    """Rows a second in every step. A batch's rows count as if they had come out evenly over the usual gap before it: a
    batch that is a little late is no loss of throughput, and one that is very late leaves a hole, however many rows it
    has."""
    rates = [0.0] * max(int((stop - start) / step), 0)
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
