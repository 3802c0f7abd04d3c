"""The figures 4 to 7 of Elastic Stateful Storm, of what was seen here. What the paper's own figures show is in words
beside them: its curves are not ours to print."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stateful_bars import PhasesSeen
from stateful_seen import DETECTOR, Migration

#: What the paper's figures show, in facts.
PAPER = """\
| figure of the paper | what it shows | plot |
| --- | --- | --- |
| 4, latency | without: grows from 350/s on, up to 1500 ms at 900/s; below 90 ms when the buffers are empty again, at 3300 s. With: below 900 ms at 900/s | top left |
| 5, executors | detector 20, 10, 5, 10, 20, 10, 5; generator 2, 1; 23 executors at 900/s, 8 at the end | top right |
| 6, nodes | without: about 50% at most on the busiest node at 900/s; half of its cores with executors are full, half almost idle | middle |
| 7, migrations | nine: six by scaling, three by placement; 2 to 16 MB of state; 65% relocated by placement, 37.5% by scale-in, 0% by scale-out; about 10 s more than without state | bottom |
"""  # noqa: E501 - rows of a table


def plot(elastic: PhasesSeen, fixed: PhasesSeen, migrations: Sequence[Migration], file: Path) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 2, figsize=(13, 11))
    for seen, name in ((elastic, "with elasticity"), (fixed, "without")):
        points = [(one.at, one.latency) for one in seen.samples if one.latency is not None]
        axes[0][0].plot([at for at, _ in points], [latency for _, latency in points], label=name, linewidth=0.9)
    _dress(axes[0][0], elastic, "figure 4: latency p50 at the reporter, s")
    for value, name in (("detectors", DETECTOR), ("instances", "all operators")):
        times = [one.at for one in elastic.samples]
        axes[0][1].step(times, [getattr(one, value) for one in elastic.samples], where="post", label=name)
    _dress(axes[0][1], elastic, "figure 5: instances, with elasticity")
    for axis, seen, name in ((axes[1][0], elastic, "6a: with"), (axes[1][1], fixed, "6b: without")):
        used = [(one.at, list(one.used.values())) for one in seen.samples if one.used]
        axis.plot([at for at, _ in used], [statistics.fmean(one) for _, one in used], label="mean", linewidth=0.9)
        axis.plot([at for at, _ in used], [max(one) for _, one in used], label="maximum", linewidth=0.9)
        _dress(axis, seen, f"figure {name}: machines' use of their cores")
    numbers = range(1, len(migrations) + 1)
    axes[2][0].bar(numbers, [one.share for one in migrations], color="tab:blue")
    axes[2][0].set_title("figure 7c: state relocated by each migration, %", fontsize=9)
    axes[2][0].set_ylim(0, 100)
    axes[2][1].bar(numbers, [one.seconds for one in migrations], color="tab:orange")
    axes[2][1].set_title("figure 7d: seconds that each change took", fontsize=9)
    for axis in axes[2]:
        axis.set_xticks(
            list(numbers), [f"{number}\n{one.kind}" for number, one in zip(numbers, migrations, strict=True)]
        )
    figure.tight_layout()
    figure.savefig(file, dpi=90)
    pyplot.close(figure)


def _dress(axis: Any, seen: PhasesSeen, title: str) -> None:
    for (start, _), rate in zip(seen.phases.spans, seen.phases.rates, strict=True):
        axis.axvline(start, color="grey", linewidth=0.6, linestyle=":")
        axis.annotate(f"{rate}/s", (start, 1.0), xycoords=("data", "axes fraction"), fontsize=7, va="top")
    axis.set_title(title, fontsize=9)
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=7, loc="upper right")
