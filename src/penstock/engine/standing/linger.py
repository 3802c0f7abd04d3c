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

#: Rows that come one by one would cost a batch each. So they linger where they come into the topology, for so much of
#: the latency that is aimed at. Behind that they come in batches already: a query that reads them waits only for what
#: comes at almost the same time, from several bundles or several inputs.
SOURCE_SHARE, HOP_SHARE = 0.5, 0.04
#: Seconds over which the driver's work is measured.
MEASURE_SECONDS = 0.5
#: The driver's work is not exact, and neither is what a longer batch saves: the length changes by steps, up faster than
#: down, and stays as it is while the work is near what it may be.
LONGER_MOST, SHORTER, NEAR = 2.0, 0.8, 0.75
#: Where the store of segments is far, rows linger for so many times what a share costs beside its function. Larger
#: shares cost more, so where reading and writing take a fifth of the time, rows linger for as long as they may.
FAR_COSTS = 4.0


def at_a_far_store(
    seconds: Callable[[], float], cost: Callable[[], float | None], longest: float
) -> Callable[[], float]:
    """How long rows linger where every file of a segment takes long to write and to read, as on an object store: so
    long that batches are few and large, and most of a bundle's time is for rows. `seconds` is how long they would
    linger elsewhere, `cost` what a share costs by itself as measured, `longest` the most."""
    return lambda: max(seconds(), min(FAR_COSTS * (cost() or 0.0), longest))


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
        how many seconds of a core the driver has used so far."""
        self._latency = latency
        self._longest = longest
        self._cores = cores
        self._work, self._clock = work, clock
        self._lock = threading.Lock()
        #: By how much rows linger longer than the latency allows.
        self._factor = 1.0
        self._measured_at, self._worked = clock(), work()

    def at_source(self) -> float:
        """How long rows linger now where they come into the topology."""
        return self._seconds(SOURCE_SHARE)

    def at_hop(self) -> float:
        """How long rows linger now in front of a query that reads what others have written."""
        return self._seconds(HOP_SHARE)

    def _seconds(self, share: float) -> float:
        now = self._clock()
        if now >= self._measured_at + MEASURE_SECONDS and self._lock.acquire(blocking=False):
            try:
                self._measure(now)
            finally:
                self._lock.release()
        return min(self._latency * share * self._factor, max(self._longest, self._latency * share))

    def _measure(self, now: float) -> None:
        elapsed, worked = now - self._measured_at, self._work()
        if elapsed < MEASURE_SECONDS:
            return  # another thread has just measured
        used = (worked - self._worked) / elapsed
        self._measured_at, self._worked = now, worked
        if used > self._cores:
            most = max(self._longest / (self._latency * HOP_SHARE), 1.0)
            self._factor = min(self._factor * min(used / self._cores, LONGER_MOST), most)
        elif used < self._cores * NEAR:
            self._factor = max(self._factor * SHORTER, 1.0)
