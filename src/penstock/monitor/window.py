"""A sliding window over the last sampling intervals, kept merged: reading it costs two merges, however long it is.

Time is handed in.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.monitor.intervals import Collector, Interval
from penstock.monitor.sample import Levels, Sample
from penstock.monitor.totals import OperatorTotals, merge_operators


@dataclass(frozen=True)
class WindowTotals:
    """All that is in a window at one moment."""

    #: The window is [since, until).
    since: float
    until: float
    #: How long a sampling interval is, how many the window covers now, and how many when it is full.
    interval: float
    samples: int
    full: int
    operators: Mapping[str, OperatorTotals]
    #: Where counting began later than `since` for an operator: at the end of a batch that was left out.
    counted_from: Mapping[str, float]


class Window:
    """Fed with every sample and every look at an operator. Any thread may call it.

    What it keeps is bounded by its length, whether or not anybody reads it; `keep_up`, once an interval, has the
    merging done before somebody waits for it."""

    def __init__(self, interval: float, samples: int, since: float) -> None:
        self._interval = interval
        self._samples = samples
        #: Held for as long as it takes to add a sample, or to begin anew. Merging can take longer, and must hold up
        #: neither those who publish nor those who change the placement: it has a lock of its own, which is always
        #: taken first.
        self._lock = threading.Lock()
        self._stretch = _Stretch(interval, samples, since)

    @staticmethod
    def of_seconds(interval: float, seconds: float, since: float) -> Window:
        """By time: as many whole intervals as it takes."""
        return Window(interval, max(math.ceil(seconds / interval - 1e-9), 1), since)

    def add(self, sample: Sample) -> None:
        with self._lock:
            stretch = self._stretch
            if sample.started < stretch.since:
                # It began under what was before: its rows do not count, and counting begins where it ended.
                begun = stretch.counted_from.get(sample.operator, stretch.since)
                stretch.counted_from[sample.operator] = max(begun, sample.finished)
                return
            stretch.collector.add(sample)

    def see(self, operator: str, levels: Levels) -> None:
        """Without a batch too: an operator that nobody looked at is missing, one that had nothing to do is not."""
        with self._lock:
            if levels.at >= self._stretch.since:
                self._stretch.collector.see(operator, levels)

    def restart(self, at: float) -> None:
        """Forget everything: what was measured before a reconfiguration says nothing about what is now. Whoever is
        reading meanwhile gets what was before."""
        fresh = _Stretch(self._interval, self._samples, at)
        with self._lock:
            self._stretch = fresh

    def keep_up(self, now: float) -> None:
        """Merge the intervals that are over, and forget those that have left the window."""
        stretch = self._stretch
        with stretch.merging:
            self._slide(stretch, now)

    def totals(self, now: float) -> WindowTotals:
        stretch = self._stretch
        with stretch.merging:
            start = self._slide(stretch, now)
            with self._lock:
                going_on = merge_operators(*(interval.operators for interval in stretch.collector.open))
                counted_from = dict(stretch.counted_from)
            since = max(stretch.since, start)
            until = max(now, since)
            return WindowTotals(
                since=since,
                until=until,
                interval=self._interval,
                samples=min(int((until - since) / self._interval + 1e-9), self._samples),
                full=self._samples,
                operators=merge_operators(*stretch.sliding.parts(), going_on),
                counted_from={name: at for name, at in counted_from.items() if at > since},
            )

    def _slide(self, stretch: _Stretch, now: float) -> float:
        """Returns where the window begins now."""
        with self._lock:
            closed = stretch.collector.close(now)
        start = (now // self._interval - self._samples) * self._interval
        for interval in closed:
            stretch.sliding.push(interval)
        stretch.sliding.drop_before(start)
        return start


class _Stretch:
    """What was measured from one reconfiguration to the next."""

    def __init__(self, interval: float, samples: int, since: float) -> None:
        self.since = since
        #: The window's intervals, and the one that goes on.
        self.collector = Collector(interval, since, most=samples + 1)
        self.counted_from: dict[str, float] = {}
        #: Held while intervals are merged.
        self.merging = threading.Lock()
        self.sliding = _Sliding()


class _Sliding:
    """A queue of intervals that knows the merged totals of all of them, in two merges a push on average.

    Sums of what is left cannot be had by subtraction: floats would drift, and a largest value or a sketch has no
    subtraction. So there are two stacks: new intervals are merged into the back, and the front holds, for each of its
    intervals, the merge of it and all that follow it there. When the front runs out, the back is turned over."""

    def __init__(self) -> None:
        #: The oldest is the last.
        self._front: list[tuple[Interval, dict[str, OperatorTotals]]] = []
        self._back: list[Interval] = []
        self._back_totals: dict[str, OperatorTotals] = {}

    def push(self, interval: Interval) -> None:
        self._back.append(interval)
        for name, totals in interval.operators.items():
            self._back_totals.setdefault(name, OperatorTotals()).merge(totals)

    def drop_before(self, start: float) -> None:
        while (oldest := self._oldest()) is not None and oldest.start < start:
            if not self._front:
                self._turn_over()
            self._front.pop()

    def parts(self) -> list[dict[str, OperatorTotals]]:
        """The totals of the older and of the newer half."""
        return [*([self._front[-1][1]] if self._front else []), self._back_totals]

    def _oldest(self) -> Interval | None:
        if self._front:
            return self._front[-1][0]
        return self._back[0] if self._back else None

    def _turn_over(self) -> None:
        totals: dict[str, OperatorTotals] = {}
        for interval in reversed(self._back):
            totals = merge_operators(interval.operators, totals)
            self._front.append((interval, totals))
        self._back, self._back_totals = [], {}
