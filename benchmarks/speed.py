"""Penstock beside plain Structured Streaming, PyFlink and Bytewax, alternating in one run: `make bench-speed`.

    python benchmarks/speed.py [--rounds 3] [--sentences 4000000] [--parts throughput,latency,batch,idle,growth]

Each measurement is a process of its own (benchmarks/speed/on_*.py), with a small run before it to warm up where an
engine compiles as it goes. The other engines are installed into environments of their own, once. With `--keep FILE` a
benchmark that was cut off goes on where it was.
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
from speed_more import growth, idle, latency, one_batch
from speed_runs import (
    BYTEWAX,
    FILES,
    FLINK,
    FLINK_FILES,
    FUSED,
    LIMIT,
    PENSTOCK,
    PLAIN,
    Data,
    Engine,
    Runs,
    write_data,
)

from penstock.errors import PenstockError

Say = Callable[[str], None]
#: More than ten seconds of work for the fastest: batches need a few to grow.
SENTENCES = 4_000_000
WORKLOADS: dict[str, tuple[Engine, ...]] = {
    "chain": (PENSTOCK, PLAIN, FUSED, LIMIT, BYTEWAX, FLINK),
    "word-count": (PENSTOCK, PLAIN, BYTEWAX, FLINK),
    "linear": (PENSTOCK, PLAIN, FUSED, LIMIT, BYTEWAX, FLINK),
    "top-n": (PENSTOCK, PLAIN, BYTEWAX, FLINK),
}
ROUNDS = 3
PARTS = ("throughput", "latency", "batch", "idle", "growth")
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
because it is slow. "Two bare processes" run the same functions over the same files without any engine: the limit.
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

    @property
    def rate(self) -> float:
        return statistics.median(self.rates) if self.rates else float("nan")


def throughput(
    runs: Runs, data: Data, warm_up: Data, rounds: int, workloads: Sequence[str], say: Say
) -> dict[str, dict[str, Measured]]:
    found: dict[str, dict[str, Measured]] = {}
    for workload in workloads:
        engines = WORKLOADS[workload]
        results = found[workload] = {engine.name: Measured() for engine in engines}
        for index in range(rounds):
            turn = index % len(engines)
            for engine in (*engines[turn:], *engines[:turn]):
                _measure(runs, engine, workload, data, warm_up, results[engine.name])
        say(f"## {workload}: {WHAT[workload]}\n")
        say("| engine | rows/s (from - to) | penstock is | peak memory, MB | start-up, s |")
        say("| --- |" + " --- |" * 4)
        for engine in engines:
            say(_row(engine.name, results[engine.name], results[PENSTOCK.name].rates))
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
    into.rates.append(answer.get("rows", data.rows) / answer["seconds"])
    into.peaks.append(peak)
    if "start_up" in answer:
        into.start_ups.append(answer["start_up"])
    print(
        f"{workload}: {engine.name}: {into.rates[-1]:,.0f} rows/s ({time.monotonic() - began:.0f} s in all)",
        file=sys.stderr,
        flush=True,
    )


def _row(name: str, one: Measured, penstock: Sequence[float]) -> str:
    if not one.rates:
        return f"| {name} | not measured: {one.problem} | | | |"
    ratios = [mine / its for mine, its in zip(penstock, one.rates, strict=False)]
    start_up = f"{statistics.median(one.start_ups):.1f}" if one.start_ups else ""
    return (
        f"| {name} | {one.rate:,.0f} ({min(one.rates):,.0f} - {max(one.rates):,.0f}) "
        f"| {statistics.median(ratios):.2f}x ({min(ratios):.2f} - {max(ratios):.2f}) "
        f"| {max(one.peaks):,} | {start_up} |"
    )


def ratio(results: Mapping[str, Measured], other: Engine) -> float:
    """Of Penstock to another, round by round; an engine that was not measured gives no number."""
    pairs = zip(results[PENSTOCK.name].rates, results[other.name].rates, strict=False)
    ratios = [mine / its for mine, its in pairs]
    return statistics.median(ratios) if ratios else float("nan")


def throughput_bars(found: Mapping[str, Mapping[str, Measured]]) -> list[Bar]:
    bars = []
    if "chain" in found:
        chain = found["chain"]
        bars += [
            Bar("1. chain: penstock / plain", ratio(chain, PLAIN), 2.0, at_most=False),
            Bar("1. chain: penstock / plain fused by hand", ratio(chain, FUSED), 1.2, at_most=False),
            Bar("1. chain: penstock / two bare processes", ratio(chain, LIMIT), 0.7, at_most=False),
            Bar("1. chain: penstock / bytewax", ratio(chain, BYTEWAX), 1.0, at_most=False),
            Bar("1. chain: penstock / pyflink", ratio(chain, FLINK), 1.0, at_most=False),
        ]
    if "word-count" in found:
        bars.append(Bar("2. word count: penstock / plain", ratio(found["word-count"], PLAIN), 1.0, at_most=False))
    return bars


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--sentences", type=int, default=SENTENCES)
    parser.add_argument("--parts", default="", help=f"{','.join(PARTS)}; of a look with --rounds 1 the first three")
    parser.add_argument("--workloads", default="", help=f"{','.join(WORKLOADS)}; of a look the first three")
    parser.add_argument("--keep", type=Path, help="a file for what was measured, to go on after a cut")
    options = parser.parse_args()
    runs = Runs(options.keep)
    most = 3 if options.rounds == 1 else None
    parts = options.parts.split(",") if options.parts else [*PARTS][:most]
    if "latency" in parts and "throughput" not in parts:
        parts = ["throughput", *parts]  # latency is measured at half of it
    workloads = options.workloads.split(",") if options.workloads else [*WORKLOADS][:most]
    is_whole = options.rounds >= ROUNDS and set(parts) >= set(PARTS) and set(workloads) >= set(WORKLOADS)
    lines: list[str] = []
    bars: list[Bar] = []

    def say(text: str) -> None:
        print(text, flush=True)
        lines.append(text)

    say(METHOD.format(flink=FLINK_FILES, files=FILES))
    if not is_whole:
        say(f"A look: {options.rounds} rounds; {', '.join(parts)}; workloads {', '.join(workloads)}.\n")
    with tempfile.TemporaryDirectory(prefix="penstock-speed-") as temporary:
        folder = Path(temporary)
        data = write_data(folder / "data", options.sentences, FILES)
        warm_up = write_data(folder / "warm-up", 80_000, 8)
        found: dict[str, dict[str, Measured]] = {}

        def rates() -> dict[str, dict[str, float]]:
            return {
                workload: {name: one.rate for name, one in engines.items() if one.rates}
                for workload, engines in found.items()
            }

        def measure_throughput() -> list[Bar]:
            found.update(throughput(runs, data, warm_up, options.rounds, workloads, say))
            return throughput_bars(found)

        work: dict[str, Callable[[], list[Bar]]] = {
            "throughput": measure_throughput,
            "latency": lambda: latency(runs, data, warm_up, options.rounds, rates(), say),
            "batch": lambda: one_batch(options.rounds, say),
            "idle": lambda: idle(runs, data, warm_up, options.rounds, say),
            "growth": lambda: growth(runs, folder / "growth", warm_up, options.rounds, say),
        }
        for part in parts:
            try:
                bars += work[part]()
            except (PenstockError, RuntimeError, LookupError, subprocess.SubprocessError) as problem:
                # What was measured before, for an hour perhaps, is kept.
                print(f"{part}: {problem}", file=sys.stderr, flush=True)
                say(f"\n{part} was not measured whole: {str(problem).strip().splitlines()[-1][:300]}\n")
                bars.append(Bar(f"{part}: measured whole", 0, 1, at_most=False))
    if len(runs.commits) > 1:
        say(f"Runs by commit: {', '.join(f'{name} {count}' for name, count in runs.commits.items())}.\n")
    write_results(named("speed", is_whole), lines, bars, machine())
    return finish(bars)


if __name__ == "__main__":
    sys.exit(main())
