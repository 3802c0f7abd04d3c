"""A sliding window over the last sampling intervals, kept merged: reading it costs two merges, however long it is."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.monitor.intervals import Interval
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


class Stretch:
    """What was measured from one reconfiguration to the next: the window never reaches farther back."""

    def __init__(self, since: float, samples: int) -> None:
        self.since = since
        #: Where counting began later than `since` for an operator.
        self.counted_from: dict[str, float] = {}
        #: Intervals that are over and not merged yet.
        self.closed: deque[Interval] = deque(maxlen=samples + 1)
        #: What was still being counted when the stretch ended; None as long as it goes on.
        self.left: list[dict[str, OperatorTotals]] | None = None
        #: Held while intervals are merged.
        self.merging = threading.Lock()
        self.sliding = Sliding()


class Sliding:
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
