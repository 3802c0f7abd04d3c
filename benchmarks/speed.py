"""Penstock beside plain Structured Streaming, PyFlink and Bytewax, alternating in one run: `make bench-speed`.

    python benchmarks/speed.py [--rounds 3] [--sentences 4000000] [--parts slots,goal]

Each measurement is a process of its own (benchmarks/speed/*.py), with a small run before it to warm up where an engine
compiles as it goes. The other engines are installed into environments of their own, once. With `--keep FILE` a
benchmark that was cut off goes on where it was. With `--rounds 1` it is a look: half of the rows, the first five
parts or those that are named, and of the engines those that bars need.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from results import Bar, finish, machine, named, write_results
from speed_bars import TEN, ratios, throughput_bars
from speed_latency import latency
from speed_more import batches, growth, idle, middle, new_machine, slots, with_goal
from speed_runs import (
    BYTEWAX,
    FILES,
    FLINK,
    FLINK_FILES,
    FUSED,
    LIMIT,
    PENSTOCK,
    PLAIN,
    TIMES,
    Data,
    Engine,
    Runs,
    write_data,
)

from penstock.errors import PenstockError

Say = Callable[[str], None]
#: More than ten seconds of work for the fastest: batches need a few to grow.
SENTENCES = 4_000_000
#: Of a look.
FEW_SENTENCES = 2_000_000
WORKLOADS: dict[str, tuple[Engine, ...]] = {
    "chain": (PENSTOCK, PLAIN, FUSED, LIMIT, BYTEWAX, FLINK),
    "word-count": (PENSTOCK, PLAIN, BYTEWAX, FLINK),
    "linear": (PENSTOCK, PLAIN, FUSED, LIMIT, BYTEWAX, FLINK),
    "top-n": (PENSTOCK, PLAIN, BYTEWAX, FLINK),
}
#: Those of a look: the ones that bars need.
LOOK: dict[str, tuple[Engine, ...]] = {
    "chain": (PENSTOCK, LIMIT, BYTEWAX),
    "word-count": (PENSTOCK, PLAIN),
    "linear": (PENSTOCK, PLAIN, BYTEWAX),
    "top-n": (PENSTOCK, PLAIN),
}
ROUNDS = 3
LOOK_PARTS = ("throughput", "latency", "slots", "idle", "machine")
PARTS = (*LOOK_PARTS, "goal", "batch", "growth")
WHAT = {
    "chain": "four Python functions over sentences of 10 words: lower case, split, words of more than 3 letters, their "
    "length and CRC",
    "word-count": "words of the same sentences counted; plain in native SQL",
    "linear": "ten operators in a row, each a little arithmetic on a column",
    "top-n": "of 1,000 boards the ten highest rows, kept up to date",
}
METHOD = """\
Two cores. Every engine reads the same rows, which lie in files, and its results go nowhere. Penstock and plain
Structured Streaming: local Spark, two slots of one core, RocksDB state with changelog for both, plain with 8 of the 40
files a micro-batch. Bytewax: two processes with a worker each; its items are whole Arrow batches where the functions
take those, and words are counted, and boards ranked, by batch before they go by key. PyFlink: parallelism 2, rows as
text, Python functions on its DataStream row by row, SQL where the workload is SQL; on {flink} of the {files} files,
because it is slow. The ten operators in a row get {times} times as many rows, but for plain Structured Streaming: with
fewer, the fast ones would be through in half a second. "Two bare processes" run the same functions over the same files
without any engine: the limit.
Rows/s is rows over the time from the start of the query, or of the topology, to the last row done; Spark's start and a
warm-up are not in it. Of Bytewax it is the time from the first row read. Of PyFlink, what many rows take longer than
few: a job of its own starts a cluster.
"""


@dataclass
class Measured:
    rates: list[float] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)
    start_ups: list[float] = field(default_factory=list)
    problem: str = ""


def throughput(
    runs: Runs, data: Data, warm_up: Data, rounds: int, workloads: Mapping[str, Sequence[Engine]], say: Say
) -> dict[str, dict[str, Measured]]:
    found: dict[str, dict[str, Measured]] = {}
    for workload, engines in workloads.items():
        results = found[workload] = {engine.name: Measured() for engine in engines}
        for index in range(rounds):
            turn = index % len(engines)
            for engine in (*engines[turn:], *engines[:turn]):
                _measure(runs, engine, workload, data, warm_up, results[engine.name])
        say(f"## {workload}: {WHAT[workload]}\n")
        say("| engine | rows/s (from - to) | penstock is | peak memory, MB | start-up, s |")
        say("| --- |" + " --- |" * 4)
        for engine in engines:
            say(_row(engine, results))
        say("")
    return found


def _measure(runs: Runs, engine: Engine, workload: str, data: Data, warm_up: Data, into: Measured) -> None:
    if into.problem:
        return
    began = time.monotonic()
    try:
        answer, peak = runs.run(engine, workload, data, warm_up)
    except (RuntimeError, subprocess.SubprocessError) as problem:
        into.problem = str(problem).strip().splitlines()[-1][:300]
        print(f"{workload}: {engine.name}: {problem}", file=sys.stderr, flush=True)
        return
    into.rates.append(answer.get("rows", data.rows_of(workload, engine.is_slow)) / answer["seconds"])
    into.peaks.append(peak)
    if "start_up" in answer:
        into.start_ups.append(answer["start_up"])
    print(
        f"{workload}: {engine.name}: {into.rates[-1]:,.0f} rows/s ({time.monotonic() - began:.0f} s in all)",
        file=sys.stderr,
        flush=True,
    )


def _row(engine: Engine, results: Mapping[str, Measured]) -> str:
    one = results[engine.name]
    if not one.rates:
        return f"| {engine.name} | not measured: {one.problem} | | | |"
    penstock = ratios(rates_of(results), engine)
    is_so_fast = f"{statistics.median(penstock):.2f}x ({min(penstock):.2f} - {max(penstock):.2f})" if penstock else ""
    start_up = f"{statistics.median(one.start_ups):.1f}" if one.start_ups else ""
    return f"| {engine.name} | {middle(one.rates, 0)} | {is_so_fast} | {max(one.peaks):,} | {start_up} |"


def rates_of(results: Mapping[str, Measured]) -> dict[str, list[float]]:
    return {name: one.rates for name, one in results.items()}


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="1 is a look")
    parser.add_argument("--sentences", type=int, help=f"{SENTENCES}; of a look {FEW_SENTENCES}")
    parser.add_argument("--parts", default="", help=f"{','.join(PARTS)}; of a look {','.join(LOOK_PARTS)}")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of Penstock's runs")
    parser.add_argument("--keep", type=Path, help="a file for what was measured, to go on after a cut")
    options = parser.parse_args(arguments)
    options.is_look = options.rounds == 1
    options.sentences = options.sentences or (FEW_SENTENCES if options.is_look else SENTENCES)
    parts = options.parts.split(",") if options.parts else [*(LOOK_PARTS if options.is_look else PARTS)]
    if unknown := sorted(set(parts) - set(PARTS)):
        parser.error(f"there is no part {', '.join(unknown)}; choose among {', '.join(PARTS)}")
    if "latency" in parts:
        parts.append("throughput")  # latency is measured at half of it
    options.parts = [part for part in PARTS if part in parts]
    options.workloads = options.workloads.split(",")
    if unknown := sorted(set(options.workloads) - set(WORKLOADS)):
        parser.error(f"there is no workload {', '.join(unknown)}; choose among {', '.join(WORKLOADS)}")
    everything = set(parts) >= set(PARTS) and set(options.workloads) >= set(WORKLOADS) and not options.set
    options.is_whole = everything and options.rounds >= ROUNDS and options.sentences >= SENTENCES
    return options


def main() -> int:
    options = options_of()
    runs = Runs(options.keep, options.set)
    engines = {workload: (LOOK if options.is_look else WORKLOADS)[workload] for workload in options.workloads}
    lines: list[str] = []
    bars: list[Bar] = []

    def say(text: str) -> None:
        print(text, flush=True)
        lines.append(text)

    say(METHOD.format(flink=FLINK_FILES, files=FILES, times=TIMES[TEN]))
    if not options.is_whole:
        say(
            f"A look: {options.rounds} rounds; {', '.join(options.parts)}; workloads {', '.join(options.workloads)}; "
            f"{options.sentences:,} rows; settings {', '.join(options.set) or 'as they are'}.\n"
        )
    with tempfile.TemporaryDirectory(prefix="penstock-speed-") as temporary:
        folder, rounds = Path(temporary), options.rounds
        data = write_data(folder / "data", options.sentences, FILES, times=TIMES)
        warm_up = write_data(folder / "warm-up", 80_000, 8)
        found: dict[str, dict[str, list[float]]] = {}

        def measure_throughput() -> list[Bar]:
            measured = throughput(runs, data, warm_up, rounds, engines, say)
            found.update({workload: rates_of(results) for workload, results in measured.items()})
            return throughput_bars(found)

        work: dict[str, Callable[[], list[Bar]]] = {
            "throughput": measure_throughput,
            "latency": lambda: latency(runs, data, warm_up, rounds, found, options.is_look, say),
            "slots": lambda: slots(runs, rounds, say),
            "idle": lambda: idle(runs, data, warm_up, rounds, options.is_look, say),
            "machine": lambda: new_machine(runs, rounds, say),
            "goal": lambda: with_goal(runs, folder / "goal", warm_up, rounds, say),
            "batch": lambda: batches(runs, rounds, say),
            "growth": lambda: growth(runs, folder / "growth", warm_up, rounds, say),
        }
        for part in options.parts:
            try:
                bars += work[part]()
            except (PenstockError, RuntimeError, LookupError, ValueError, subprocess.SubprocessError) as problem:
                # What was measured before, for an hour perhaps, is kept.
                print(f"{part}: {problem}", file=sys.stderr, flush=True)
                say(f"\n{part} was not measured whole: {str(problem).strip().splitlines()[-1][:300]}\n")
                bars.append(Bar(f"{part}: measured whole", 0, 1, at_most=False))
    if len(runs.commits) > 1:
        say(f"Runs by commit: {', '.join(f'{name} {count}' for name, count in runs.commits.items())}.\n")
    write_results(named("speed", options.is_whole), lines, bars, machine())
    return finish(bars)


if __name__ == "__main__":
    sys.exit(main())
