"""Beside the throughput: latency at half of it, one micro-batch, and how cost grows."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from results import Bar
from speed_batch import measure_batches
from speed_runs import BYTEWAX, FILES, FLINK, FUSED, PENSTOCK, PLAIN, Data, Engine, Runs, write_data

#: The ten operators in a row.
TEN = "linear"
#: Micro-batches of each round that are timed one by one.
BATCHES = 40
#: Rows of the growth by operators and slots: enough that a run takes some seconds with one operator too.
GROWTH_ROWS = 10_000_000
Say = Callable[[str], None]
#: Engine -> rows/s.
Rates = Mapping[str, float]


def latency(runs: Runs, data: Data, warm_up: Data, rounds: int, full: Mapping[str, Rates], say: Say) -> list[Bar]:
    """Of Penstock and plain, each workload at half of the slowest one's full throughput, so that all can hold it; of
    the ten operators in a row also those of the others, and Penstock's, at half of their own."""
    say("## Latency, ms: from when a row is due to when its batch has been written\n")
    say("| workload | engine | rows/s | p50 (from - to) | p99 (from - to) |\n| --- | --- | --- | --- | --- |")
    for workload in (name for name in full if name != TEN):
        rate = min(full[workload][one.name] for one in (PENSTOCK, PLAIN)) / 2
        for engine in (PENSTOCK, PLAIN):
            say(_row(workload, engine, rate, [_latency_of(runs, engine, workload, data, warm_up, rate)]))
    return _of_ten(runs, data, warm_up, rounds, full[TEN], say) if TEN in full else []


def _of_ten(runs: Runs, data: Data, warm_up: Data, rounds: int, full: Rates, say: Say) -> list[Bar]:
    engines = [PENSTOCK, PLAIN, FUSED]
    rate = min(full[one.name] for one in engines) / 2
    seen: dict[str, list[dict[str, float]]] = {one.name: [] for one in engines}
    for index in range(rounds):
        turn = index % len(engines)
        for one in engines[turn:] + engines[:turn]:
            seen[one.name].append(_latency_of(runs, one, TEN, data, warm_up, rate))
    for one in engines:
        say(_row(TEN, one, rate, seen[one.name]))
    for one in (PENSTOCK, BYTEWAX, FLINK):
        if one.name in full:
            say(_row_at_half_of_its_own(runs, one, data, warm_up, full[one.name] / 2))
    say("")
    bars = []
    for one in (PLAIN, FUSED):
        ratios = [mine["p50"] / its["p50"] for mine, its in zip(seen[PENSTOCK.name], seen[one.name], strict=True)]
        say(f"p50 of ten operators, penstock / {one.name}, by round: {', '.join(f'{each:.2f}' for each in ratios)}.\n")
        name = f"3. latency p50 of ten operators: penstock / {one.name}"
        bars.append(Bar(name, statistics.median(ratios), 1.5, at_most=True))
    return bars


def _latency_of(runs: Runs, engine: Engine, workload: str, data: Data, warm_up: Data, rate: float) -> dict[str, float]:
    answer: dict[str, Any] = runs.run(engine, workload, data, warm_up, "--rate", str(rate))[0]
    print(f"latency: {workload}: {engine.name} at {rate:,.0f}: {answer}", file=sys.stderr, flush=True)
    return answer


def _row_at_half_of_its_own(runs: Runs, engine: Engine, data: Data, warm_up: Data, rate: float) -> str:
    try:
        return _row(f"{TEN}, half of its own", engine, rate, [_latency_of(runs, engine, TEN, data, warm_up, rate)])
    except (RuntimeError, subprocess.SubprocessError) as problem:
        print(problem, file=sys.stderr, flush=True)
        return f"| {TEN} | {engine.name} | {rate:,.0f} | not measured: {str(problem).splitlines()[-1][:200]} | |"


def _row(workload: str, engine: Engine, rate: float, found: list[dict[str, float]]) -> str:
    return f"| {workload} | {engine.name} | {rate:,.0f} | {_spread(found, 'p50')} | {_spread(found, 'p99')} |"


def _spread(found: list[dict[str, float]], quantile: str) -> str:
    values = sorted(one[quantile] * 1000 for one in found)
    middle = f"{statistics.median(values):,.0f}"
    return middle if len(values) == 1 else f"{middle} ({values[0]:,.0f} - {values[-1]:,.0f})"


def one_batch(rounds: int, say: Say) -> list[Bar]:
    found = measure_batches(2 * rounds, BATCHES)  # short ones, and one can be half again as long as another
    ratios = [mine["total"] / its["total"] for mine, its in zip(found["penstock"], found["plain"], strict=True)]
    say("## One micro-batch, ms\n")
    say(
        "Plain: one small file to nowhere. Penstock: an Arrow operator that returns its batch as it is, alone: its "
        "source has ended and its sink has not begun.\n"
    )
    say("| part | penstock | plain |\n| --- | --- | --- |")
    for part in found["plain"][0]:
        cells = [statistics.median(one[part] for one in found[engine]) for engine in ("penstock", "plain")]
        say(f"| {part} | {cells[0]:.1f} | {cells[1]:.1f} |")
    say(f"\nRatio of totals by round: {', '.join(f'{one:.2f}' for one in ratios)}.\n")
    return [Bar("4. one micro-batch: penstock / plain", statistics.median(ratios), 1.2, at_most=True)]


def idle(runs: Runs, data: Data, warm_up: Data, rounds: int, say: Say) -> list[Bar]:
    say("## Ten operators in queries of their own that have nothing to do\n")
    say("| engine | cores used (from - to) |\n| --- | --- |")
    found: dict[str, list[float]] = {PENSTOCK.name: [], PLAIN.name: []}
    for _ in range(rounds):
        for engine in (PENSTOCK, PLAIN):
            found[engine.name].append(runs.run(engine, TEN, data, warm_up, "--idle")[0]["cores"])
    for name, cores in found.items():
        say(f"| {name} | {statistics.median(cores):.2f} ({min(cores):.2f} - {max(cores):.2f}) |")
    say("")
    return []


def growth(runs: Runs, folder: Path, warm_up: Data, rounds: int, say: Say) -> list[Bar]:
    """By the number of operators in a row, of slots, and of rows; with operators that compute a little."""
    data = write_data(folder / "rows", GROWTH_ROWS, FILES, ["linear"])

    def rate(operators: int, rows: Data, *more: str) -> float:
        workload = f"work{operators}"
        for one in (rows, warm_up):
            one.also_called("linear", workload)
        answers = [runs.run(PENSTOCK, workload, rows, warm_up, *more)[0] for _ in range(rounds)]
        found = rows.rows / statistics.median(answer["seconds"] for answer in answers)
        print(f"growth: {operators} operators, {rows.rows} rows, {more}: {found:,.0f}", file=sys.stderr, flush=True)
        return found

    say("## How cost grows\n\n| operators in a row | rows/s | rows x operators/s |\n| --- | --- | --- |")
    work: dict[int, float] = {}
    for operators in (1, 2, 4, 8, 16, 32):
        found = rate(operators, data)
        work[operators] = found * operators
        say(f"| {operators} | {found:,.0f} | {work[operators]:,.0f} |")
    say("\n| slots, on two cores | rows/s |\n| --- | --- |")
    for slots in (1, 2, 4, 8, 16):
        say(f"| {slots} | {rate(10, data, '--slots', str(slots)):,.0f} |")
    say("\n| rows | rows/s |\n| --- | --- |")
    for rows in (10_000, 100_000, 1_000_000, 10_000_000):
        say(f"| {rows:,} | {rate(10, write_data(folder / str(rows), rows, FILES, ['linear'])):,.0f} |")
    say("")
    return [
        Bar("4. work/s with 32 operators / with 1", work[32] / work[1], 0.8, at_most=False),
        # With one operator reading the files weighs as much as its work: this one shows what an operator adds.
        Bar("4. work/s with 32 operators / with 8", work[32] / work[8], 0.8, at_most=False),
    ]
