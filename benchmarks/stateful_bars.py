"""What bench-stateful has to reach: from what was seen to bars and tables. Pure.

All bars were set before the first run. GROWS, which tells growth from noise, is ours; the shares are the paper's.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from live_gaps import Measured
from results import Bar
from stateful_schedule import INSTANCES, RATES, Phases
from stateful_seen import (
    IN,
    OUT,
    PLACEMENT,
    Migration,
    OtherFlow,
    Seen,
    at_ends,
    changes,
    followed,
    growths,
    latencies,
    machine_use,
    reversals,
)

#: Seconds of latency in a second: above it latency grows, below it that is what batches come and go by. An overload as
#: small as that of five instances at 350/s makes it grow by 0.08 at least (stateful_schedule.COST).
GROWS = 0.05
#: Percent of the state that the paper relocated, by what was decided (figure 7c).
PAPER_SHARES = {OUT: 0.0, IN: 37.5, PLACEMENT: 65.0}
PAPER_DETECTORS = "20, 10, 5, 10, 20, 10, 5"
#: Micro-batches: what a stateful move may cost beyond a stateless one, and what tasks that stay may lose.
MOVE_MORE, OTHERS_LOSE = 1.5, 1.0
KILLS = 10
#: The operators of the part `moves`, and actions by their names in the tables.
FULL, THIN = "count", "few"
THERE, BACK, RESTART = "move there", "move back", "stop and start"


@dataclass(frozen=True)
class PhasesSeen:
    """One run through the phases."""

    phases: Phases
    #: With times since the first tweet was due.
    samples: Sequence[Seen]
    migrations: Sequence[Migration] = ()


def phase_bars(elastic: PhasesSeen, fixed: PhasesSeen) -> list[Bar]:
    spans = elastic.phases.spans
    grown = [one for one in growths(elastic.samples, spans) if not math.isnan(one)]
    unseen = len(spans) - len(grown)
    ends = at_ends(elastic.samples, spans)
    without = dict(zip(fixed.phases.rates[1:3], growths(fixed.samples, fixed.phases.spans)[1:3], strict=True))
    return [
        Bar.of(
            "1. with elasticity: latency grows in the second half of the worst phase by, s/s",
            _worst(grown),
            GROWS,
            True,
        ),
        Bar("1. with elasticity: phases whose latency was not seen", unseen, 0, at_most=True),
        *(
            Bar(f"1. without elasticity: at {rate}/s latency grows by, s/s", slope, GROWS, at_most=False)
            for rate, slope in without.items()
        ),
        Bar("2. phases to whose load the detector's instances followed", followed(ends, RATES), len(RATES) - 1, False),
        Bar("2. detector's instances at the end, at the start 5", ends[-1] or float("nan"), INSTANCES, at_most=True),
        Bar("2. changes against the direction of a phase's first", reversals(changes(elastic.samples), spans), 0, True),
    ]


def _worst(values: Sequence[float]) -> list[float]:
    return [max(values)] if values else []


def share_bars(migrations: Sequence[Migration]) -> list[Bar]:
    """The worst scale-out, because the paper has none that moves anything; of the others the mean, as in the paper."""
    found = {kind: [one.share for one in migrations if one.kind == kind] for kind in PAPER_SHARES}
    bars = [
        Bar.of("3. state relocated by the worst scale-out, % (paper: 0)", _worst(found[OUT]), PAPER_SHARES[OUT], True),
        Bar.of(
            "3. state relocated by a scale-in on average, % (paper: 37.5)", _mean(found[IN]), PAPER_SHARES[IN], True
        ),
    ]
    if found[PLACEMENT]:  # nothing has to be placed anew: then there is nothing to be held against the paper
        name = "3. state relocated by a change of placement alone on average, % (paper: 65)"
        bars.append(Bar.of(name, _mean(found[PLACEMENT]), PAPER_SHARES[PLACEMENT], True))
    return bars


def _mean(values: Sequence[float]) -> list[float]:
    return [statistics.fmean(values)] if values else []


def move_bars(rounds: Sequence[Mapping[str, Sequence[Measured]]]) -> list[Bar]:
    """A move of the one operator is held against the same move of the other in the same round."""
    pairs = [pair for found in rounds for pair in zip(found[FULL], found[THIN], strict=True)]
    # Each against its own median gap: the micro-batches of an operator with state may be longer.
    more = [(full.longest_gap - thin.longest_gap) / full.median_gap for full, thin in pairs]
    lost = [full.ratio - 1 for full, _ in pairs]
    return [
        Bar.of("3. a stateful move costs more than a stateless one by, micro-batches", more, MOVE_MORE, True),
        Bar.of("3. tasks that do not move lose, micro-batches", lost, OTHERS_LOSE, at_most=True),
    ]


def count_bars(where: str, found: Mapping[str, Any]) -> list[Bar]:
    """`found` is what stateful_counts.compared says."""
    return [
        Bar(f"4. {where}: changes of patterns that were compared", found["changes"], 1, at_most=False),
        Bar(
            f"4. {where}: changes that the batch job has not, or that lack",
            found["missing"] + found["surplus"],
            0,
            True,
        ),
    ]


# Tables


def phase_table(elastic: PhasesSeen, fixed: PhasesSeen) -> list[str]:
    lines = [
        "| lambda | latency p50 with, s | growth with, s/s | without, s | growth without, s/s | detectors at its end "
        "| machines' use with: mean, max | without: mean, max |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    ends = at_ends(elastic.samples, elastic.phases.spans)
    slopes, others = growths(elastic.samples, elastic.phases.spans), growths(fixed.samples, fixed.phases.spans)
    for index, rate in enumerate(elastic.phases.rates):
        span = elastic.phases.spans[index]
        was_run = index < len(fixed.phases.rates)
        lines.append(
            f"| {rate} | {middle(elastic.samples, span)} | {slopes[index]:.3f} "
            f"| {middle(fixed.samples, span) if was_run else ''} | {f'{others[index]:.3f}' if was_run else ''} "
            f"| {ends[index]} | {use_text(elastic.samples, span)} "
            f"| {use_text(fixed.samples, span) if was_run else ''} |"
        )
    steps = changes(elastic.samples)
    went = ", ".join(str(one) for one in [steps[0].before, *(one.after for one in steps)]) if steps else "no change"
    return [*lines, "", f"The detector's instances: {went} (the paper: {PAPER_DETECTORS}).", ""]


def middle(samples: Sequence[Seen], span: tuple[float, float]) -> str:
    values = [latency for _, latency in latencies(samples, span)]
    return f"{statistics.median(values):.1f}" if values else "not seen"


def use_text(samples: Sequence[Seen], span: tuple[float, float]) -> str:
    mean, most = machine_use(samples, span)
    return f"{mean:.0%}, {most:.0%}"


def migration_table(migrations: Sequence[Migration]) -> list[str]:
    lines = [
        "| migration | kind | tasks moved | state of all tasks, MB | moved, MB | share, % | change took, s "
        "| longest gap, s (usual) | pause, save, load, resume, s |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for number, one in enumerate(migrations, 1):
        parts = ", ".join("-" if seconds is None else f"{seconds:.2f}" for seconds in one.phases.values())
        lines.append(
            f"| {number} | {one.kind} | {one.tasks} of {one.of_tasks} | {one.of_bytes / 1e6:.2f} "
            f"| {one.bytes / 1e6:.2f} | {one.share:.1f} | {one.seconds:.1f} "
            f"| {_gaps(one)} | {parts or 'nothing moved'} |"
        )
    return [*lines, "", *_others_table(migrations)]


def _others_table(migrations: Sequence[Migration]) -> list[str]:
    """The operators that a change did not touch, while it moved state; no lines if no state moved."""
    lines = [
        f"| {number} | {other.operator}{', behind the detector' if other.behind else ''} | {_gaps(other)} "
        f"| {_rate(other.before)} | {_rate(other.during)} |"
        for number, one in enumerate(migrations, 1)
        for other in one.others
    ]
    if not lines:
        return []
    return [
        "The other operators while state moved. Those behind the detector wait for its rows.",
        "",
        "| migration | operator | longest gap, s (usual) | rows/s before | rows/s during |",
        "| ---: | --- | --- | ---: | ---: |",
        *lines,
        "",
    ]


def _gaps(one: Migration | OtherFlow) -> str:
    usual = "" if one.usual_gap is None else f" ({one.usual_gap:.2f})"
    return f"{one.gap:.2f}{usual}" if one.gap is not None else usual.strip()


def _rate(rows: float | None) -> str:
    return "-" if rows is None else f"{rows:.1f}"


def move_table(rounds: Sequence[Mapping[str, Sequence[Measured]]]) -> list[str]:
    lines = [
        "| round | operator | action | median gap before, s | longest gap, s | longest / median | load of state, s |",
        "| ---: | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for number, found in enumerate(rounds, 1):
        for name, what in ((FULL, "with state"), (THIN, "without")):
            lines += [
                f"| {number} | {what} | {one.action} | {one.median_gap:.2f} | {one.longest_gap:.2f} | {one.ratio:.2f} "
                f"| {one.load_of_slowest:.2f} |"
                for one in found[name]
            ]
    return [*lines, ""]


def size_table(found: Sequence[tuple[float, str, Sequence[int], Sequence[Measured]]]) -> list[str]:
    """`found` has MB a task, the engine, the bytes of each task as they were found, and what was measured."""
    lines = [
        "| MB a task (found) | engine | action | median gap before, s | longest gap, s | load of state, s | took, s |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for size, engine, sizes, measured in found:
        held = f"{statistics.median(sizes) / 1e6:.1f}" if sizes else "unknown"
        lines += [
            f"| {size:g} ({held}) | {engine} | {one.action} | {one.median_gap:.2f} | {one.longest_gap:.2f} "
            f"| {one.load_of_slowest:.2f} | {one.took:.1f} |"
            for one in measured
        ]
    return [*lines, ""]
