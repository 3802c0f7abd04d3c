"""How long rows linger before the next batch is cut of them: as the aimed-at latency allows, or longer while the
driver works more than it may.

Every batch costs the driver about the same, however many rows it has. So many operators with few rows each could keep
the driver busy with nothing but batches, and all of them would be slow. One `Linger` serves all queries of a run: when
the driver's process uses more of a core than `latency_cores`, all batches get longer step by step, and shorter later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: An operator waits for so much of the latency that is aimed at before it begins the next batch: rows that come one by
#: one would cost a batch each.
LATENCY_SHARE = 0.1
#: Seconds over which the driver's work is measured.
MEASURE_SECONDS = 0.5
#: The driver's work is not exact, and neither is what a longer batch saves: the length changes by steps, up faster than
#: down, and stays as it is while the work is near what it may be.
LONGER_MOST, SHORTER, NEAR = 2.0, 0.8, 0.75


class Linger:
    """Any thread may ask it."""

    def __init__(
        self,
        latency: float,
        cores: float,
        longest: float,
        work: Callable[[], float] = time.process_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`cores` is what the driver may use, `longest` the most seconds that rows linger whatever it uses. `work` says
        how many seconds of a core it has used so far."""
        self._shortest = latency * LATENCY_SHARE
        self._longest = max(longest, self._shortest)
        self._cores = cores
        self._work, self._clock = work, clock
        self._lock = threading.Lock()
        self._seconds = self._shortest
        self._measured_at, self._worked = clock(), work()

    def seconds(self) -> float:
        """How long rows linger now."""
        now = self._clock()
        if now >= self._measured_at + MEASURE_SECONDS and self._lock.acquire(blocking=False):
            try:
                self._measure(now)
            finally:
                self._lock.release()
        return self._seconds

    def _measure(self, now: float) -> None:
        elapsed, worked = now - self._measured_at, self._work()
        if elapsed < MEASURE_SECONDS:
            return  # another thread has just measured
        used = (worked - self._worked) / elapsed
        self._measured_at, self._worked = now, worked
        if used > self._cores:
            self._seconds = min(self._seconds * min(used / self._cores, LONGER_MOST), self._longest)
        elif used < self._cores * NEAR:
            self._seconds = max(self._seconds * SHORTER, self._shortest)
