"""What the soak says of what it has measured: the bars, the table and the plot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from results import Bar
from soak_probe import COUNTED, HEAP, MEMORY, SERIES, SMALL
from soak_trend import LEAST_BINS, Point, Trend, trend_of

SAMPLE_SECONDS, CHANGE_SECONDS = 10.0, 60.0
SEGMENT_SECONDS = 1.0
WARM_UP_MINUTES = 10.0
#: One a minute; after the last everything is as it was before the first. Storm's default moves instances and adds none:
#: Stela gives instances to a new machine and keeps them when a machine goes, and what is counted would grow with them.
CHANGES = (
    ("set-instances order 4",),
    ("set-instances order 2",),
    ("scale-out --machines 1 --strategy storm",),
    ("scale-in --machines 1 --strategy storm",),
    ("set-instances count 4",),
    ("set-instances count 2",),
)
CYCLE = CHANGE_SECONDS * len(CHANGES)
#: Reading the heap has the driver collect its garbage, and then Spark deletes the files of old shuffles. Spark itself
#: has the driver collect every five minutes (session.py): if the soak did so much more often, it would hide files that
#: pile up. One reading a cycle is enough for a trend, which has one point a cycle in any case.
HEAP_SECONDS = CYCLE
#: Shorter soaks are looks: growth cannot be told from what comes and goes within a cycle.
LEAST_MINUTES = WARM_UP_MINUTES + LEAST_BINS * CYCLE / 60
MOST_PERCENT, LEAST_DONE_PERCENT = 2.0, 80.0
#: What logs and scratch files may grow by in an hour if that is more than `MOST_PERCENT`: there is about a MB of them,
#: of which 2% is less than what one change writes into a log. Penstock's log and those of executors are cut at some MB;
#: those of the daemons and of the driver's JVM are not, and have some lines a change.
MOST_MB = 0.5
DONE = "done"


@dataclass
class Measured:
    """What was seen of one run of the topology."""

    #: How long it was to be.
    seconds: float
    points: dict[str, list[Point]] = field(default_factory=dict)
    #: Of the changes that were asked for.
    outcomes: Counter[str] = field(default_factory=Counter)
    #: Temporary files that were there when the topology had ended.
    left: Sequence[str] = ()
    #: What happened that should not have: queries and machines that were lost, though nothing struck them.
    faults: Sequence[str] = ()
    #: Why it did not run to its end; empty if it did.
    problem: str = ""

    def note(self, now: float, seen: Mapping[str, float]) -> None:
        for name, value in seen.items():
            self.points.setdefault(name, []).append((now, value))

    @property
    def lasted(self) -> float:
        """Up to the last sample: less than `seconds` if the run was cut off."""
        return max((points[-1][0] for points in self.points.values() if points), default=0.0)

    @property
    def is_whole(self) -> bool:
        return self.lasted + SAMPLE_SECONDS >= 60 * LEAST_MINUTES

    @property
    def warm_up(self) -> float:
        return 60 * WARM_UP_MINUTES if self.is_whole else self.lasted / 3

    def counted(self, name: str) -> list[Point]:
        return [point for point in self.points.get(name, ()) if point[0] >= self.warm_up]

    @property
    def trends(self) -> dict[str, Trend]:
        return {name: trend_of(counted, CYCLE) for name in SERIES if len(counted := self.counted(name)) > 1}

    @property
    def not_measured(self) -> list[str]:
        """Series with less than half of the samples that there should be, in the time that was asked for."""
        time = self.seconds - self.warm_up
        expected = {name: time / (HEAP_SECONDS if name == HEAP else SAMPLE_SECONDS) for name in SERIES}
        return [name for name in SERIES if len(self.counted(name)) < max(2, expected[name] / 2)]


def bars_of(measured: Measured) -> list[Bar]:
    asked = sum(measured.outcomes.values())
    done = 100 * measured.outcomes[DONE] / asked if asked else 0.0
    missing = measured.not_measured
    named = f" ({', '.join(missing)})" if missing else ""
    return [
        *(growth_bars(measured.trends, missing) if measured.is_whole else []),
        Bar(f"soak: series that were not measured{named}", len(missing), 0, at_most=True),
        Bar(f"soak: changes that were done, % of the {asked} asked for", done, LEAST_DONE_PERCENT, at_most=False),
        Bar("soak: faults that the topology told of", len(measured.faults), 0, at_most=True),
        Bar("soak: times that the topology did not run to its end", bool(measured.problem), 0, at_most=True),
        Bar("soak: temporary files left at the end", len(measured.left), 0, at_most=True),
    ]


def growth_bars(trends: Mapping[str, Trend], without: Sequence[str]) -> list[Bar]:
    bars = []
    for name, kind in SERIES.items():
        if name not in trends or name in without:
            continue
        trend = trends[name]
        if kind == MEMORY:
            bars.append(Bar(f"soak: {name}: growth in % an hour", trend.percent_an_hour, MOST_PERCENT, True))
        elif kind == SMALL:
            most = max(MOST_MB, MOST_PERCENT / 100 * trend.middle)
            bars.append(Bar(f"soak: {name}: growth an hour", trend.an_hour, most, True))
        elif kind == COUNTED:
            what = f"soak: {name}: sure growth an hour (estimate {trend.an_hour:+.2f})"
            bars.append(Bar(what, max(trend.surely_an_hour, 0.0), 0, True))
    return bars


def table_of(trends: Mapping[str, Trend]) -> list[str]:
    lines = ["| series | median | growth an hour | in % | surely an hour |", "| --- | --- | --- | --- | --- |"]
    for name, trend in trends.items():
        figures = (
            f"{trend.middle:.1f} | {trend.an_hour:+.2f} | {trend.percent_an_hour:+.1f} | {trend.surely_an_hour:+.2f}"
        )
        lines.append(f"| {name} | {figures} |")
    return lines


def plot(points: Mapping[str, Sequence[Point]], warm_up: float, file: Path) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    names = [name for name in SERIES if name in points]
    rows = -(-len(names) // 3)
    figure, axes = pyplot.subplots(rows, 3, figsize=(15, 2.2 * rows), squeeze=False)
    for axis, name in zip(axes.flat, names, strict=False):
        axis.plot([at / 60 for at, _ in points[name]], [value for _, value in points[name]], linewidth=0.8)
        axis.axvline(warm_up / 60, color="grey", linewidth=0.5)
        axis.set_title(name, fontsize=8)
        axis.tick_params(labelsize=7)
        axis.set_ylim(bottom=0)
    for axis in list(axes.flat)[len(names) :]:
        axis.set_visible(False)
    figure.tight_layout()
    figure.savefig(file, dpi=80)
    pyplot.close(figure)
