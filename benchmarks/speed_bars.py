"""What benchmarks/speed.py has to reach, as lines: from what was measured, round by round, to bars. No Spark here.

The number in front of a name says what the line is about: 1 latency, 2 throughput, 4 keyed operators, 6 slots of
unequal speed, 7 idle operators and new machines. Lines without a number are older.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from results import Bar
from speed_runs import APART, BYTEWAX, FLINK, FUSED, LIMIT, PENSTOCK, PLAIN, Engine

#: The ten operators in a row.
TEN = "linear"
#: Workload -> engine -> rows/s, or the answers at a rate, by round.
Rates = Mapping[str, Mapping[str, Sequence[float]]]
Latencies = Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]
#: Workload, the engine beside Penstock, the least that Penstock / it may be, and the number of the bar.
THROUGHPUT: tuple[tuple[str, Engine, float, str], ...] = (
    ("chain", LIMIT, 0.8, "2. "),
    ("chain", BYTEWAX, 1.0, "2. "),
    (TEN, BYTEWAX, 0.8, "2. "),
    ("word-count", PLAIN, 1.3, "4. "),
    ("top-n", PLAIN, 1.0, "4. "),
    ("chain", PLAIN, 2.0, ""),
    ("chain", FUSED, 1.2, ""),
    ("chain", FLINK, 1.0, ""),
)
#: The most seconds of processor time a second that ten operators with nothing to do may take.
IDLE_CORES = 0.05
#: The most seconds until a machine is there.
MACHINE_SECONDS = 20.0
#: The least that two slots do of what both can do together.
OF_BOTH = 0.95
#: The least that the chain does with a goal that is met, of what it does without one.
OF_NO_GOAL = 0.9


def throughput_bars(found: Rates) -> list[Bar]:
    """Ratios by round. A bar whose engines were not to be measured is left out; one that failed is not met."""
    return [
        Bar.of(f"{number}{workload}: penstock / {other.name}", ratios(found[workload], other), least, at_most=False)
        for workload, other, least, number in THROUGHPUT
        if other.name in found.get(workload, {})
    ]


def ratios(found: Mapping[str, Sequence[float]], other: Engine) -> list[float]:
    return [mine / its for mine, its in zip(found[PENSTOCK.name], found[other.name], strict=False)]


def latency_bars(seen: Latencies) -> list[Bar]:
    bars: list[Bar] = []

    def add(name: str, values: Sequence[float], most: float) -> None:
        bars.append(Bar.of(name, values, most, at_most=True))

    if TEN in seen:
        ten = seen[TEN]
        add("1. ten chained operators: p50, ms", _ms(ten[PENSTOCK.name], "p50"), 25)
        add("1. ten chained operators: p99, ms", _ms(ten[PENSTOCK.name], "p99"), 100)
        add("1. ten chained operators: p50, penstock / bytewax", _p50_ratios(ten, BYTEWAX), 2)
        add("1. ten operators apart: p50, ms", _ms(ten.get(APART.name, ()), "p50"), 120)
        for other in (PLAIN, FUSED):
            if other.name in ten:
                add(f"ten chained operators: p50, penstock / {other.name}", _p50_ratios(ten, other), 1.5)
    for workload in ("word-count", "top-n"):
        if workload in seen:
            add(f"4. {workload}: p50, penstock / plain", _p50_ratios(seen[workload], PLAIN), 1)
    return bars


def _ms(answers: Sequence[Mapping[str, float]], quantile: str) -> list[float]:
    return [one[quantile] * 1000 for one in answers]


def _p50_ratios(seen: Mapping[str, Sequence[Mapping[str, float]]], other: Engine) -> list[float]:
    pairs = zip(seen[PENSTOCK.name], seen.get(other.name, ()), strict=False)
    return [mine["p50"] / its["p50"] for mine, its in pairs]


def idle_bar(cores: Sequence[float]) -> Bar:
    return Bar.of("7. ten operators with nothing to do: cores", cores, IDLE_CORES, at_most=True)


def slots_bar(answers: Sequence[Mapping[str, Any]]) -> Bar:
    shares = [one["rate"] / one["possible"] for one in answers]
    return Bar.of("6. two slots, one of half the speed: of what both can do", shares, OF_BOTH, at_most=False)


def machine_bar(answers: Sequence[Mapping[str, Any]]) -> Bar:
    return Bar.of("7. a machine is there: s", [one["there"] for one in answers], MACHINE_SECONDS, at_most=True)


def goal_bar(without: Sequence[float], with_goal: Sequence[float]) -> Bar:
    shares = [one / its for one, its in zip(with_goal, without, strict=False)]
    return Bar.of("goal: chain with a goal / without", shares, OF_NO_GOAL, at_most=False)


def half_of_the_slowest(found: Mapping[str, Sequence[float]], middle: Callable[[Sequence[float]], float]) -> float:
    """The rate at which latency is measured, so that all who are compared can hold it. PyFlink, which takes rows one by
    one, does a hundredth of the others and does not count; two bare processes are no engine."""
    return min(middle(rates) for name, rates in found.items() if rates and name not in (FLINK.name, LIMIT.name)) / 2
