"""The effect of a scaling operation on the throughput, from a timeline of points: pure functions, no clock.

A point at t is the throughput since the point before it, so it stands for the time between the two.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: The paper's band around the post-scale mean (Stela, section IV-D).
BAND = 0.05
#: Below this share of the throughput an operation counts as an interruption.
INTERRUPTED = 0.9


@dataclass(frozen=True)
class ThroughputPoint:
    #: Seconds, on any clock.
    at: float
    #: Rows a second that arrived at the sinks, weighted.
    throughput: float


@dataclass(frozen=True)
class ThroughputChange:
    """Rates are rows a second, times are seconds from the start of the operation. None means: not within the
    timeline."""

    before: float
    after: float
    #: Section IV-D: twice above and twice below the post-scale mean, within 5% of it.
    convergence: float | None
    #: The thesis, section 7.2: the same within one standard deviation.
    convergence_sigma: float | None
    #: Penstock's own, stricter: from here on to the end of the timeline no point is more than 5% off.
    settled: float | None
    time_at_zero: float
    time_below: float


def throughput_change(timeline: Sequence[ThroughputPoint], start: float, window: float) -> ThroughputChange:
    """Compare the last `window` seconds before `start`, when the operation began, with the last ones of the timeline.

    The papers' post-scale mean M and standard deviation sigma are taken over that last window: over all points since
    the start the interruption itself would be in the yardstick.
    """
    after = [point for point in timeline if point.at > start]
    end = after[-1].at if after else start
    settled = [point.throughput for point in after if point.at > end - window]
    before_mean = _mean(point.throughput for point in timeline if start - window < point.at <= start)
    after_mean = _mean(settled)
    sigma = statistics.pstdev(settled) if settled else 0.0
    # A scale-in may lower the throughput for good: that is no interruption.
    limit = INTERRUPTED * min(before_mean, after_mean)
    return ThroughputChange(
        before_mean,
        after_mean,
        convergence(after, start, after_mean, BAND * after_mean),
        convergence(after, start, after_mean, sigma),
        settling(after, start, after_mean, BAND * after_mean),
        time_below(timeline, start, 0.0),
        time_below(timeline, start, limit) if limit > 0 else time_below(timeline, start, 0.0),
    )


def convergence(points: Iterable[ThroughputPoint], start: float, M: float, band: float) -> float | None:
    """Seconds until two points above and two below M have been seen, each within the band.

    Samples on either side need not take turns, and those outside the band are passed over. One that is exactly M, as on
    a line without noise, stands for both sides.
    """
    above = below = 0
    for point in points:
        off = point.throughput - M
        if abs(off) > band:
            continue
        above += off >= 0
        below += off <= 0
        if above >= 2 and below >= 2:
            return point.at - start
    return None


def settling(points: Sequence[ThroughputPoint], start: float, M: float, band: float) -> float | None:
    """Seconds until the throughput stays within the band to the end."""
    since: float | None = None
    for point in points:
        if abs(point.throughput - M) > band:
            since = None
        elif since is None:
            since = point.at - start
    return since


def time_below(timeline: Sequence[ThroughputPoint], start: float, limit: float) -> float:
    """Seconds after the start at a throughput below the limit; a limit of 0 counts those at zero."""
    total, last = 0.0, start
    for point in timeline:
        if point.at <= start:
            continue
        if point.throughput < limit or point.throughput == 0:
            total += point.at - last
        last = point.at
    return total


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found) if found else 0.0
