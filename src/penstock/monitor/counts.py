"""Where every batch is counted, once: in the sampling interval in which it finished.

All that is known of rows is read from here: the sliding window of decisions, the intervals for the statistics store,
the totals since the start, and the last seconds. Time is handed in.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence

from penstock.monitor.intervals import CountedInterval, Interval
from penstock.monitor.latency import LatencySketch
from penstock.monitor.recent_samples import RecentSamples
from penstock.monitor.run_totals import RunTotals
from penstock.monitor.sample import Levels, Sample, Waited
from penstock.monitor.totals import OperatorTotals, merge_operators
from penstock.monitor.window import Stretch, WindowTotals


class Counts:
    """Told of every sample and every look at an operator. Any thread may call it.

    What it keeps is bounded by the length of the window, whether or not anybody reads it; `keep_up`, once an interval,
    has the merging done before somebody waits for it."""

    def __init__(self, interval: float, samples: int, since: float, unwritten: int = 0) -> None:
        """The window has so many samples; at most so many intervals wait to be written, the newest."""
        self._seconds = interval
        self._samples = samples
        self._since = since
        #: Held for as long as it takes to add a sample, or to begin anew. Merging can take longer, and must hold up
        #: neither those who publish nor those who change the placement: it has a lock of its own, which is always
        #: taken first.
        self._lock = threading.Lock()
        #: The first interval that is not closed. What comes too late for its own goes here, so nothing is lost.
        self._first_open = self._index(since)
        self._open: dict[int, CountedInterval] = {}
        self._stretch = Stretch(since, samples)
        self._recent = RecentSamples()
        #: Of the intervals that are closed.
        self._run: dict[str, RunTotals] = {}
        self._run_latency: dict[str, LatencySketch] = {}
        self._unwritten: deque[CountedInterval] = deque(maxlen=unwritten)

    # What is counted

    def add(self, sample: Sample, for_decisions: bool = True) -> None:
        """One that is not for decisions is not in the window."""
        with self._lock:
            stretch = self._stretch
            present = for_decisions and sample.started >= stretch.since
            if for_decisions and not present:
                # It began under what was before: no decision counts its rows, and counting begins where it ended.
                begun = stretch.counted_from.get(sample.operator, stretch.since)
                stretch.counted_from[sample.operator] = max(begun, sample.finished)
            self._interval(sample.finished).totals(sample.operator, present).add(sample)
            self._recent.add(sample)

    def see(self, operator: str, levels: Levels) -> None:
        """Without a batch too: an operator that nobody looked at is missing, one that had nothing to do is not."""
        with self._lock:
            present = levels.at >= self._stretch.since
            self._interval(levels.at).totals(operator, present).see(levels)

    def wait(self, operator: str, waited: Mapping[str, Sequence[Waited]], at: float) -> None:
        """What bundles that stand have waited until then, by the slot where they are."""
        with self._lock:
            totals = self._interval(at).totals(operator, present=at >= self._stretch.since)
            for slot, bundles in waited.items():
                totals.wait(slot, bundles)

    def drop(self, operator: str, late_rows: int, at: float) -> None:
        """Rows that came too late for the operator's watermark."""
        with self._lock:
            self._interval(at).totals(operator, present=True).late_rows += late_rows

    def shuffle(self, operator: str, by_slot: Mapping[str, int], at: float) -> None:
        """Bytes that Spark's shuffle brought from other machines, as Spark says after the batches."""
        with self._lock:
            self._interval(at).totals(operator, present=True).shuffle(by_slot)

    def restart(self, at: float) -> None:
        """The window forgets everything: what was measured before a reconfiguration says nothing about what is now.
        Whoever is reading meanwhile gets what was before."""
        with self._lock:
            self._stretch.left = self._present()
            for interval in self._open.values():
                interval.cut()
            self._stretch = Stretch(at, self._samples)

    # What is read

    def keep_up(self, now: float) -> None:
        """Close the intervals that are over, merge those of the window, and forget those that have left it."""
        stretch = self._stretch
        with stretch.merging:
            self._slide(stretch, now)

    def window(self, now: float) -> WindowTotals:
        stretch = self._stretch
        with stretch.merging:
            start = self._slide(stretch, now)
            with self._lock:
                # Somebody else may have closed an interval since.
                closed = [interval.operators for interval in stretch.closed]
                going_on = merge_operators(*closed, *(self._present() if stretch.left is None else stretch.left))
                counted_from = dict(stretch.counted_from)
            since = max(stretch.since, start)
            until = max(now, since)
            return WindowTotals(
                since=since,
                until=until,
                interval=self._seconds,
                samples=min(int((until - since) / self._seconds + 1e-9), self._samples),
                full=self._samples,
                operators=merge_operators(*stretch.sliding.parts(), going_on),
                counted_from={name: at for name, at in counted_from.items() if at > since},
            )

    def unwritten(self, now: float, last: bool = False) -> list[Interval]:
        """The intervals that are over, each of them once, the oldest first; none for a time in which nothing came. At
        the end also the interval that goes on, as long as it lasted."""
        with self._lock:
            self._close(now)
            for index in sorted(self._open) if last else ():
                going_on = self._open[index]
                going_on.stop = max(min(going_on.stop, now), going_on.start)
                self._end(index)
            over = list(self._unwritten)
            self._unwritten.clear()
        return [interval.whole() for interval in over]

    def recent(self, operator: str, after: float) -> list[Sample]:
        """The samples that finished after a time, as far back as the last seconds go."""
        with self._lock:
            return self._recent.since(operator, after)

    def of_run(self, operator: str) -> RunTotals:
        """Since the start."""
        total = RunTotals()
        with self._lock:
            if (closed := self._run.get(operator)) is not None:
                total.merge(closed)
            for interval in self._open.values():
                for part in interval.parts:
                    if operator in part:
                        total.take(part[operator])
        return total

    def latency_of_run(self, operator: str) -> LatencySketch:
        total = LatencySketch()
        with self._lock:
            going_on = [part[operator].latency for one in self._open.values() for part in one.parts if operator in part]
            for sketch in (self._run_latency.get(operator), *going_on):
                if sketch is not None:
                    total.merge(sketch)
        return total

    # With the lock held

    def _present(self) -> list[dict[str, OperatorTotals]]:
        """What is being counted for decisions, the oldest first."""
        return [interval.present for _, interval in sorted(self._open.items())]

    def _interval(self, at: float) -> CountedInterval:
        index = max(self._index(at), self._first_open)
        interval = self._open.get(index)
        if interval is None:
            start = index * self._seconds
            # The first one may have begun late.
            interval = CountedInterval(max(start, self._since), (index + 1) * self._seconds)
            self._open[index] = interval
            # Those of the window, and the one that goes on.
            while len(self._open) > self._samples + 1:
                oldest = min(self._open)
                self._end(oldest, in_window=False)
                self._first_open = max(self._first_open, oldest + 1)
        return interval

    def _close(self, now: float) -> None:
        over = self._index(now)
        for index in sorted(index for index in self._open if index < over):
            self._end(index)
        self._first_open = max(self._first_open, over)

    def _end(self, index: int, in_window: bool = True) -> None:
        interval = self._open.pop(index)
        for part in interval.parts:
            for name, totals in part.items():
                self._run.setdefault(name, RunTotals()).take(totals)
                if totals.latency is not None:
                    self._run_latency.setdefault(name, LatencySketch()).merge(totals.latency)
        if in_window and interval.present:
            self._stretch.closed.append(interval.present_part())
        self._unwritten.append(interval)

    # Without it

    def _slide(self, stretch: Stretch, now: float) -> float:
        """Returns where the window begins now."""
        with self._lock:
            self._close(now)
            closed = list(stretch.closed)
            stretch.closed.clear()
        start = (now // self._seconds - self._samples) * self._seconds
        for interval in closed:
            stretch.sliding.push(interval)
        stretch.sliding.drop_before(start)
        return start

    def _index(self, at: float) -> int:
        return int(at // self._seconds)
