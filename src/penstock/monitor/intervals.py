"""Fixed sampling intervals, aligned to multiples of their length: samples go into the one in which they finished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.monitor.sample import Levels, Sample
from penstock.monitor.totals import OperatorTotals


@dataclass(frozen=True)
class Interval:
    """What was added up in [start, stop). An operator that is not in it was not heard of, which is not the same as one
    that did nothing."""

    start: float
    stop: float
    operators: Mapping[str, OperatorTotals]

    @property
    def seconds(self) -> float:
        return self.stop - self.start


class Collector:
    """Takes samples as they come, and hands out the intervals that are over. Not safe for several threads; its owner
    is. `most` intervals are open at a time: when nobody has them handed out, the oldest are forgotten."""

    def __init__(self, seconds: float, since: float, most: int = 1000) -> None:
        self._seconds = seconds
        self._since = since
        self._most = most
        #: The first interval that is not handed out. What comes too late for its own goes here, so nothing is lost.
        self._first_open = self._index(since)
        self._open: dict[int, dict[str, OperatorTotals]] = {}

    def add(self, sample: Sample) -> None:
        self._totals(sample.finished, sample.operator).add(sample)

    def see(self, operator: str, levels: Levels) -> None:
        self._totals(levels.at, operator).see(levels)

    def drop(self, operator: str, late_rows: int, at: float) -> None:
        self._totals(at, operator).late_rows += late_rows

    def close(self, now: float) -> list[Interval]:
        """Those that are over and not handed out yet, the oldest first; none for a time in which nothing came."""
        over = self._index(now)
        closed = [self._interval(index) for index in sorted(self._open) if index < over]
        for index in [index for index in self._open if index < over]:
            del self._open[index]
        self._first_open = max(self._first_open, over)
        return closed

    def flush(self, now: float) -> list[Interval]:
        """At the end: also the interval that is still going on, as long as it lasted."""
        closed = self.close(now)
        last = [self._interval(index, until=now) for index in sorted(self._open)]
        self._open = {}
        return closed + last

    @property
    def open(self) -> list[Interval]:
        """What has come in and is not handed out."""
        return [self._interval(index) for index in sorted(self._open)]

    def _interval(self, index: int, until: float | None = None) -> Interval:
        start, stop = index * self._seconds, (index + 1) * self._seconds
        # The first one may have begun late.
        begin = max(start, self._since)
        return Interval(begin, max(min(stop, until if until is not None else stop), begin), self._open[index])

    def _totals(self, at: float, operator: str) -> OperatorTotals:
        index = max(self._index(at), self._first_open)
        operators = self._open.get(index)
        if operators is None:
            operators = self._open[index] = {}
            while len(self._open) > self._most:
                oldest = min(self._open)
                del self._open[oldest]
                self._first_open = max(self._first_open, oldest + 1)
        return operators.setdefault(operator, OperatorTotals())

    def _index(self, at: float) -> int:
        return int(at // self._seconds)
