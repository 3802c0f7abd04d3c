"""Beside throughput and latency: what a batch costs, slots of unequal speed, operators without work, a machine that
comes, what a goal costs, and how cost grows. Parts of benchmarks/speed.py."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from results import Bar
from speed_bars import TEN, goal_bar, idle_bar, machine_bar, slots_bar
from speed_runs import FILES, GOAL, PENSTOCK, PLAIN, WITH_GOAL, WITHOUT_GOAL, Data, Runs, write_data

#: Rows of the growth by operators and slots: enough that a run takes some seconds with one operator too.
GROWTH_ROWS = 10_000_000
#: Rows of the chain with a goal and without: some 30 s of work. A controller changes nothing in the first 18 s: 5 of a
#: window, and 12.5 in which it must want the same.
GOAL_ROWS = 10_000_000
Say = Callable[[str], None]


def middle(values: Sequence[float], digits: int = 2) -> str:
    """The median, and the spread where there are several."""
    shown = f"{statistics.median(values):,.{digits}f}"
    return shown if len(values) == 1 else f"{shown} ({min(values):,.{digits}f} - {max(values):,.{digits}f})"


def batches(runs: Runs, rounds: int, say: Say) -> list[Bar]:
    """No bars: what the driver carries is for the documentation."""
    found: dict[tuple[int, int], list[Mapping[str, float]]] = {}
    for _ in range(rounds):
        answer = runs.script("standing_batch.py")
        print(f"batch: {answer}", file=sys.stderr, flush=True)
        for one in answer["sizes"]:
            found.setdefault((one["rows"], one["bundles"]), []).append(one)
    say("## What a batch of bundles that stand costs\n")
    say(
        "An operator that returns its rows as they are, alone: its source has ended and its sink has not begun. Each "
        "batch reads one share, and is published. CPU is of one batch, in ms: of the driver's Python process, of "
        "Spark's JVM, and of all Python workers together.\n"
    )
    say("| rows a batch | bundles | batches/s at the limit | rows/s | driver, ms | JVM, ms | bundles, ms |")
    say("| --- |" + " --- |" * 6)
    for (rows, bundles), answers in found.items():
        cells = [
            middle([one["batches_per_second"] for one in answers], 0),
            middle([one["rows_per_second"] for one in answers], 0),
            *(middle([one[name] for one in answers]) for name in ("driver_ms", "jvm_ms", "bundles_ms")),
        ]
        say(f"| {rows:,} | {bundles} | {' | '.join(cells)} |")
    say("")
    return []


def slots(runs: Runs, rounds: int, say: Say) -> list[Bar]:
    answers = [_told("slots", runs.script("unequal_slots.py")) for _ in range(rounds)]
    say("## Two slots, one of half the speed\n")
    say(
        "An operator waits for every row, on the second slot twice as long, and more rows come than both can do. An "
        "equal split would give 0.67 of what both can do together.\n"
    )
    say("| slot | can do, rows/s | does, rows/s (from - to) |\n| --- | --- | --- |")
    for slot, possible in answers[0]["possible_by_slot"].items():
        say(f"| {slot} | {possible:,.0f} | {middle([one['rate_by_slot'][slot] for one in answers], 0)} |")
    both = middle([one["rate"] for one in answers], 0)
    say(f"| both | {answers[0]['possible']:,.0f} | {both} |\n")
    return [slots_bar(answers)]


def new_machine(runs: Runs, rounds: int, say: Say) -> list[Bar]:
    answers = [_told("machine", runs.script("new_machine.py")) for _ in range(rounds)]
    say("## A machine comes: where the time goes, s\n")
    say(
        "A standalone cluster of two machines, a topology with a keyed operator at a few rows a second, and a third "
        "machine. Each line is the time since the line before.\n"
    )
    say("| until | s (from - to) |\n| --- | --- |")
    for phase in answers[0]["phases"]:
        say(f"| {phase} | {middle([one['phases'][phase] for one in answers])} |")
    say(f"| the machine is there, in all | {middle([one['there'] for one in answers])} |")
    say(f"| its first batch is published, since it was to get work | {middle([one['first'] for one in answers])} |\n")
    return [machine_bar(answers)]


def _told(part: str, answer: dict[str, Any]) -> dict[str, Any]:
    print(f"{part}: {answer}", file=sys.stderr, flush=True)
    return answer


def idle(runs: Runs, data: Data, warm_up: Data, rounds: int, is_look: bool, say: Say) -> list[Bar]:
    say("## Ten operators in queries of their own that have nothing to do\n")
    say("| engine | cores used (from - to) |\n| --- | --- |")
    engines = (PENSTOCK,) if is_look else (PENSTOCK, PLAIN)
    found: dict[str, list[float]] = {engine.name: [] for engine in engines}
    for _ in range(rounds):
        for engine in engines:
            found[engine.name].append(runs.run(engine, TEN, data, warm_up, "--idle")[0]["cores"])
    for name, cores in found.items():
        say(f"| {name} | {middle(cores, 3)} |")
    say("")
    return [idle_bar(found[PENSTOCK.name])]


def with_goal(runs: Runs, folder: Path, warm_up: Data, rounds: int, say: Say) -> list[Bar]:
    """The chain with a goal that is met and without one, in turn. Raises RuntimeError where the goal was not in force:
    then nothing was compared."""
    data = write_data(folder, GOAL_ROWS, FILES, ["sentences"])
    engines = (WITHOUT_GOAL, WITH_GOAL)
    found: dict[str, list[Mapping[str, Any]]] = {engine.name: [] for engine in engines}
    for index in range(rounds):
        for engine in engines[:: -1 if index % 2 else 1]:
            answer = _told(f"goal: {engine.name}", runs.run(engine, "chain", data, warm_up)[0])
            found[engine.name].append(answer)
    rates = {name: [data.rows / one["seconds"] for one in answers] for name, answers in found.items()}
    say("## The chain of four with a goal that is met\n")
    say(
        f"The workload chain, {data.rows:,} rows, with a controller that is to hold {GOAL:,} rows/s at the sinks, and "
        "without. Both are sampled every second, and the controller looks as often.\n"
    )
    say("| run | rows/s (from - to) | operators in the longest chain | operations of the controller, in all |")
    say("| --- |" + " --- |" * 3)
    for name, answers in found.items():
        chains = " or ".join(str(length) for length in sorted({one["longest_chain"] for one in answers}))
        operations = sum(one["operations"] for one in answers)
        say(f"| {name} | {middle(rates[name], 0)} | {chains} | {operations} |")
    say("")
    for answer in found[WITH_GOAL.name]:
        _check_goal(answer)
    return [goal_bar(rates[WITHOUT_GOAL.name], rates[WITH_GOAL.name])]


def _check_goal(answer: Mapping[str, Any]) -> None:
    if not answer["decided"]:
        raise RuntimeError(f"in {answer['seconds']:.0f} s the controller decided nothing: {answer['told']}")
    reached = answer["at_the_sinks"]
    if reached is None or reached < GOAL:
        raise RuntimeError(f"the goal of {GOAL:,} rows/s was not met: {reached} rows/s at the sinks")


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
    for count in (1, 2, 4, 8, 16):
        say(f"| {count} | {rate(10, data, '--slots', str(count)):,.0f} |")
    say("\n| rows | rows/s |\n| --- | --- |")
    for rows in (10_000, 100_000, 1_000_000, 10_000_000):
        say(f"| {rows:,} | {rate(10, write_data(folder / str(rows), rows, FILES, ['linear'])):,.0f} |")
    say("")
    return [
        Bar("work/s with 32 operators / with 1", work[32] / work[1], 0.8, at_most=False),
        # With one operator reading the files weighs as much as its work: this one shows what an operator adds.
        Bar("work/s with 32 operators / with 8", work[32] / work[8], 0.8, at_most=False),
    ]
