"""Whether a series of measurements grows: a line that outliers do not move, and how sure it is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

Point = tuple[float, float]
#: Of the normal distribution, for 95% on both sides.
SURE = 1.96
LEAST_BINS = 5
#: A series is measured once a cycle if its points are this part of a cycle apart, or more.
ONCE = 0.9


@dataclass(frozen=True)
class Trend:
    """Of a series in its own unit; times in seconds."""

    middle: float
    #: Growth an hour: the median of the slopes between all pairs of points (Theil and Sen).
    an_hour: float
    #: What of it is sure: the least that it is with 95% certainty (Sen 1968, from Kendall's S), or, if that is more,
    #: by how much all of the last third of the cycles are above all of the first third. A count without noise that
    #: grows now and then has many pairs with the slope 0, and only the second rule finds it.
    surely_an_hour: float

    @property
    def percent_an_hour(self) -> float:
        return 100 * self.an_hour / self.middle if self.middle else 0.0


def trend_of(points: Sequence[Point], cycle: float) -> Trend:
    """Of the medians of whole cycles: what comes back with every cycle is no growth, and points of one cycle are not
    independent."""
    binned = medians(points, cycle)
    slopes = sorted(
        (later[1] - sooner[1]) / (later[0] - sooner[0])
        for index, sooner in enumerate(binned)
        for later in binned[index + 1 :]
    )
    middle = statistics.median(value for _, value in binned)
    if not slopes:
        return Trend(middle, 0.0, 0.0)
    count = len(binned)
    spread = SURE * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    lowest = slopes[max(0, math.floor((len(slopes) - spread) / 2))]
    return Trend(middle, 3600 * statistics.median(slopes), 3600 * max(lowest, rise(binned)))


def rise(binned: Sequence[Point]) -> float:
    """A second, by how much the lowest of the last third is above the highest of the first third; 0 if it is not."""
    third = math.ceil(len(binned) / 3)
    first, last = binned[:third], binned[-third:]
    if len(binned) < 3:
        return 0.0
    higher = min(value for _, value in last) - max(value for _, value in first)
    apart = statistics.median(at for at, _ in last) - statistics.median(at for at, _ in first)
    return max(higher, 0.0) / apart


def medians(points: Sequence[Point], cycle: float) -> list[Point]:
    """One point a cycle; of shorter parts where there are too few cycles. A series that was measured once a cycle is as
    it is: measured a moment sooner or later, a point would fall into the cycle of another."""
    if not points:
        return []
    first, last = points[0][0], points[-1][0]
    if len(points) > 1 and (last - first) / (len(points) - 1) >= ONCE * cycle:
        return list(points)
    width = min(cycle, (last - first) / LEAST_BINS) or 1.0
    bins: dict[int, list[Point]] = {}
    for at, value in points:
        bins.setdefault(min(int((at - first) / width), int((last - first) / width)), []).append((at, value))
    # A last cycle that is not whole has another median than whole ones.
    whole = [held for index, held in sorted(bins.items()) if first + (index + 1) * width <= last + 1e-6]
    return [(statistics.median(at for at, _ in held), statistics.median(value for _, value in held)) for held in whole]
