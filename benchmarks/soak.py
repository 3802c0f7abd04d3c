"""The soak: `make soak MINUTES=60`. A topology at a steady load, with a change every minute, as its users would run and
steer it; every ten seconds what it holds is written down. Nothing may grow.

    python benchmarks/soak.py [--minutes 60]

After the first ten minutes no memory may grow by more than 2% an hour, and nothing that is counted may surely grow.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from results import RESULTS, Bar, finish, machine, write_results
from soak_probe import COUNTED, MEMORY, SERIES, Probe
from soak_topology import KEYS, RATE
from soak_trend import Point, Trend, trend_of

PENSTOCK = str(Path(sys.executable).parent / "penstock")
SAMPLE_SECONDS, CHANGE_SECONDS, HEAP_SECONDS = 10.0, 60.0, 60.0
WARM_UP_MINUTES = 10.0
#: One a minute; after the last everything is as it was before the first.
CHANGES = (
    ("set-instances", "order", "4"),
    ("set-instances", "order", "2"),
    ("scale-out", "--machines", "1"),
    ("scale-in", "--machines", "1"),
    ("set-instances", "count", "4"),
    ("set-instances", "count", "2"),
)
CYCLE = CHANGE_SECONDS * len(CHANGES)
MOST_PERCENT = 2.0
METHOD = """\
`penstock run` on a standalone cluster of two machines: {rate} rows/s of {keys} keys through a map with dead letters,
a map by key and a keyed operator, and every minute one of: {changes}. Every ten seconds what is in the table was
measured from outside; the heap once a minute, after a collection. Memory of the JVMs is what they have resident; of
Python processes what is theirs alone (USS). The first {warm:.0f} minutes do not count.

Growth is the slope of Theil and Sen (the median over all pairs) through the medians of each cycle of {cycle:.0f}
minutes in which the changes come back; "surely" is the lower end of its 95% interval. Memory and sizes may grow by
{most:g}% an hour; what is counted may not grow surely.

{seconds:.0f} s, {samples} samples. Changes: {outcomes}.
"""


class Soak:
    """One run of the topology; `points` has what was measured, by series."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = folder
        self.seconds = seconds
        self.points: dict[str, list[Point]] = defaultdict(list)
        self.outcomes: Counter[str] = Counter()
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self._environment = os.environ | {"TMPDIR": str(self.temporary), "PENSTOCK_RUNNING": str(folder / "running")}

    def run(self) -> str:
        """The topology's own summary at the end, a JSON object."""
        state = self.folder / "state"
        topology = Path(__file__).parent / "soak_topology.py"
        command = [PENSTOCK, "run", str(topology), "--cluster", "standalone", "--machines", "2", "--state", str(state)]
        with (self.folder / "run.log").open("wb") as log, (self.folder / "run.json").open("wb") as out:
            driver = subprocess.Popen([*command, "--json"], env=self._environment, stdout=out, stderr=log)
        try:
            probe = Probe(driver.pid, state, self.temporary)
            self._await_start(driver, probe)
            self._soak(driver, probe)
            driver.terminate()
            code = driver.wait(180)
        finally:
            driver.kill()
            driver.wait()
        assert code == 0, self._log()
        return " ".join((self.folder / "run.json").read_text().split())

    def _await_start(self, driver: subprocess.Popen[bytes], probe: Probe) -> None:
        deadline = time.monotonic() + 180
        while not probe.has_begun:
            assert driver.poll() is None, self._log()
            assert time.monotonic() < deadline, f"it does not start\n{self._log()}"
            time.sleep(1)

    def _soak(self, driver: subprocess.Popen[bytes], probe: Probe) -> None:
        began = time.monotonic()
        due = {"sample": 0.0, "change": CHANGE_SECONDS, "heap": HEAP_SECONDS / 2}
        change: subprocess.Popen[bytes] | None = None
        count = 0
        while (now := time.monotonic() - began) < self.seconds:
            assert driver.poll() is None, f"it ended with {driver.returncode}\n{self._log()}"
            if now >= due["sample"]:
                due["sample"] += SAMPLE_SECONDS
                self._note(now, probe.look())
            if now >= due["heap"]:
                due["heap"] += HEAP_SECONDS
                self._note(now, probe.heap())
            if now >= due["change"]:
                due["change"] += CHANGE_SECONDS
                change = self._change(CHANGES[count % len(CHANGES)], change)
                count += 1
            time.sleep(0.2)
        if change is not None:
            self._count(change, 120)

    def _note(self, now: float, seen: dict[str, float]) -> None:
        for name, value in seen.items():
            self.points[name].append((now, value))

    def _change(self, words: Sequence[str], before: subprocess.Popen[bytes] | None) -> subprocess.Popen[bytes]:
        """Asked for beside the sampling; the one before it has had its minute."""
        if before is not None:
            self._count(before, 0)
        return subprocess.Popen(
            [PENSTOCK, *words], env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _count(self, change: subprocess.Popen[bytes], seconds: float) -> None:
        try:
            self.outcomes["done" if change.wait(seconds) == 0 else "refused or rolled back"] += 1
        except subprocess.TimeoutExpired:
            self.outcomes["took longer than a minute"] += 1
            change.kill()
            change.wait()

    def _log(self) -> str:
        return (self.folder / "run.log").read_text()[-4000:]


def bars_of(trends: dict[str, Trend]) -> list[Bar]:
    bars = []
    for name, kind in SERIES.items():
        if kind == MEMORY and name in trends:
            bars.append(Bar(f"soak: {name}: growth in % an hour", trends[name].percent_an_hour, MOST_PERCENT, True))
        elif kind == COUNTED and name in trends:
            bars.append(Bar(f"soak: {name}: sure growth an hour", max(trends[name].surely_an_hour, 0.0), 0, True))
    return bars


def table_of(trends: dict[str, Trend]) -> list[str]:
    lines = ["| series | median | growth an hour | in % | surely an hour |", "| --- | --- | --- | --- | --- |"]
    for name, trend in trends.items():
        figures = (
            f"{trend.middle:.1f} | {trend.an_hour:+.2f} | {trend.percent_an_hour:+.1f} | {trend.surely_an_hour:+.2f}"
        )
        lines.append(f"| {name} | {figures} |")
    return lines


def plot(points: dict[str, list[Point]], warm_up: float, file: Path) -> None:
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    options = parser.parse_args()
    seconds = options.minutes * 60
    # A look is too short for the bars: it shows what the hour would, less surely.
    is_whole = options.minutes >= 2 * WARM_UP_MINUTES
    warm_up = 60 * WARM_UP_MINUTES if is_whole else seconds / 3
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        soak = Soak(Path(folder), seconds)
        summary = soak.run()
        left = sorted(path.name for path in soak.temporary.iterdir())
    counted = {name: [point for point in held if point[0] >= warm_up] for name, held in soak.points.items()}
    trends = {name: trend_of(counted[name], CYCLE) for name in SERIES if len(counted.get(name, ())) > 1}
    name = "soak" if is_whole else "soak-look"
    RESULTS.mkdir(exist_ok=True)
    plot(soak.points, warm_up, RESULTS / f"{name}.png")
    method = METHOD.format(
        rate=RATE,
        keys=KEYS,
        changes=", ".join(" ".join(words) for words in CHANGES),
        warm=warm_up / 60,
        cycle=CYCLE / 60,
        most=MOST_PERCENT,
        seconds=seconds,
        samples=len(soak.points["driver Python, MB"]),
        outcomes=", ".join(f"{count} {outcome}" for outcome, count in soak.outcomes.most_common()) or "none",
    )
    missing = [name for name in SERIES if name not in trends]
    lines = [method, *table_of(trends), "", f"![the series]({name}.png)", ""]
    lines += [f"Not measured here: {', '.join(missing)}.", ""] if missing else []
    lines += [f"The topology's own summary: `{summary[:1500]}`", ""]
    print("\n".join(lines))
    bars = [*bars_of(trends), Bar("soak: temporary files left at the end", len(left), 0, at_most=True)]
    write_results(name, lines, bars, machine())
    return finish(bars)


if __name__ == "__main__":
    sys.exit(main())
