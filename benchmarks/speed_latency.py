"""Latency at half of the slowest engine's throughput, alternating: one part of benchmarks/speed.py."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from results import Bar
from speed_bars import TEN, Rates, half_of_the_slowest, latency_bars
from speed_runs import APART, BYTEWAX, FLINK, FUSED, PENSTOCK, PLAIN, Data, Engine, Runs

Say = Callable[[str], None]
Seen = dict[str, list[dict[str, float]]]
#: By workload: who is measured in a look, and who else in the whole benchmark.
LOOK: Mapping[str, Sequence[Engine]] = {
    TEN: (PENSTOCK, APART, BYTEWAX),
    "word-count": (PENSTOCK, PLAIN),
    "top-n": (PENSTOCK, PLAIN),
}
MORE: Mapping[str, Sequence[Engine]] = {TEN: (PLAIN, FUSED), "chain": (PENSTOCK, PLAIN)}


def latency(runs: Runs, data: Data, warm_up: Data, rounds: int, full: Rates, is_look: bool, say: Say) -> list[Bar]:
    """Of every workload whose throughput is known; of the ten operators also what the others, and Penstock, have at
    half of their own throughput, once."""
    say("## Latency, ms: from when a row is due to when its batch has been written\n")
    say("| workload | engine | rows/s | p50 (from - to) | p99 (from - to) |\n| --- | --- | --- | --- | --- |")
    seen: dict[str, Seen] = {}
    for workload in full:
        engines = [*LOOK.get(workload, ()), *(() if is_look else MORE.get(workload, ()))]
        if not engines:
            continue
        rate = half_of_the_slowest(full[workload], statistics.median)
        found = seen[workload] = {one.name: [] for one in engines}
        for index in range(rounds):
            turn = index % len(engines)
            for one in engines[turn:] + engines[:turn]:
                _measure(runs, one, workload, data, warm_up, rate, found[one.name])
        for name, answers in found.items():
            say(_row(workload, name, rate, answers))
    if TEN in full and not is_look:
        for one in (PENSTOCK, BYTEWAX, FLINK):
            if full[TEN].get(one.name):
                rate, answers = statistics.median(full[TEN][one.name]) / 2, list[dict[str, float]]()
                _measure(runs, one, TEN, data, warm_up, rate, answers)
                say(_row(f"{TEN}, half of its own", one.name, rate, answers))
    say("")
    return latency_bars(seen)


def _measure(
    runs: Runs, engine: Engine, workload: str, data: Data, warm_up: Data, rate: float, into: list[dict[str, float]]
) -> None:
    """An engine that fails costs its own figures only."""
    try:
        answer: dict[str, Any] = runs.run(engine, workload, data, warm_up, "--rate", str(rate))[0]
    except (RuntimeError, subprocess.SubprocessError) as problem:
        print(f"latency: {workload}: {engine.name}: {problem}", file=sys.stderr, flush=True)
        return
    print(f"latency: {workload}: {engine.name} at {rate:,.0f}: {answer}", file=sys.stderr, flush=True)
    into.append(answer)


def _row(workload: str, name: str, rate: float, found: Sequence[Mapping[str, float]]) -> str:
    if not found:
        return f"| {workload} | {name} | {rate:,.0f} | not measured | |"
    return f"| {workload} | {name} | {rate:,.0f} | {_spread(found, 'p50')} | {_spread(found, 'p99')} |"


def _spread(found: Sequence[Mapping[str, float]], quantile: str) -> str:
    values = sorted(one[quantile] * 1000 for one in found)
    middle = f"{statistics.median(values):,.1f}"
    return middle if len(values) == 1 else f"{middle} ({values[0]:,.1f} - {values[-1]:,.1f})"
