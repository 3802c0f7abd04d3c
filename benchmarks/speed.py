"""Penstock beside plain Structured Streaming, PyFlink and Bytewax, alternating in one run: `make bench-speed`.

    python benchmarks/speed.py [--rounds 3] [--sentences 2000000] [--parts throughput,latency,batch,growth]

Each measurement is a process of its own (benchmarks/speed/on_*.py), with a small run before it to warm up where an
engine compiles as it goes. The other engines are installed into environments of their own, once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from engine import PeakMemory, measure_batches
from results import Bar, finish, machine, write_results

from penstock import sources

HERE = Path(__file__).parent
SCRIPTS = HERE / "speed"
ENVIRONMENTS = HERE / ".environments"
PACKAGES = {"bytewax": ["bytewax==0.21.1", "pyarrow"], "flink": ["apache-flink==2.3.0"]}
FILES = 40
#: PyFlink's Python functions do a few thousand rows a second: it gets so many files of them only.
FLINK_FILES = 2
TIMEOUT = 1800.0
#: Micro-batches of each round that are timed one by one.
BATCHES = 40
Say = Callable[[str], None]


@dataclass(frozen=True)
class Engine:
    name: str
    script: str
    #: What the script is told before the workload.
    arguments: tuple[str, ...] = ()
    #: The environment that it runs in; empty is this one.
    environment: str = ""
    warms_up: bool = True
    reads_text: bool = False


PENSTOCK = Engine("penstock", "on_spark.py", ("penstock",))
PLAIN = Engine("plain", "on_spark.py", ("plain",))
FUSED = Engine("plain, fused by hand", "on_spark.py", ("plain-fused",))
LIMIT = Engine("two bare processes", "on_nothing.py", warms_up=False)
BYTEWAX = Engine("bytewax, two processes", "on_bytewax.py", environment="bytewax", warms_up=False)
FLINK = Engine("pyflink", "on_flink.py", environment="flink", reads_text=True)
WORKLOADS: dict[str, tuple[Engine, ...]] = {
    "chain": (PENSTOCK, PLAIN, FUSED, LIMIT, BYTEWAX, FLINK),
    "word-count": (PENSTOCK, PLAIN, BYTEWAX, FLINK),
    "linear": (PENSTOCK, PLAIN, LIMIT, BYTEWAX, FLINK),
    "top-n": (PENSTOCK, PLAIN, FLINK),
}
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
take those, and words are counted by batch before they go by key. PyFlink: parallelism 2, rows as text, Python
functions on its DataStream row by row, SQL where the workload is SQL; on {flink} of the {files} files, because it is
slow. "Two bare processes" run the same functions over the same files without any engine: the limit. Rows/s is rows over
the time from the first row read to the last one done; start-up and warm-up are not in it.
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


# Environments and data


def python_of(environment: str) -> str:
    """The interpreter of an engine's environment, made at the first call; raises if it cannot be installed."""
    if not environment:
        return sys.executable
    folder = ENVIRONMENTS / environment
    python, stamp = folder / "bin" / "python", folder / "installed"
    if not stamp.exists():
        venv.create(folder, with_pip=True, clear=True)
        line = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES[environment]]
        subprocess.run(line, check=True, capture_output=True, text=True)
        stamp.touch()
    return str(python)


@dataclass(frozen=True)
class Data:
    folder: Path
    rows: int

    def of(self, workload: str) -> str:
        return str(self.folder / ("sentences" if workload in ("chain", "word-count") else workload))

    def text_of(self, workload: str) -> str:
        return f"{self.of(workload)}-text"


def write_data(folder: Path, rows: int, files: int, names: Sequence[str] = ("sentences", "linear", "top-n")) -> Data:
    each = rows // files
    makers: dict[str, Callable[[int], pa.Table]] = {
        "sentences": lambda first: _table(sources.sentences(words=10, vocabulary=10_000, seed=1).rows(first, each)),
        "linear": lambda first: pa.table({"id": np.arange(first, first + each), "value": np.ones(each)}),
        "top-n": lambda first: _boards(first, each),
    }
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / f"{name}-text").mkdir()
        for index in range(files):
            table = makers[name](index * each)
            pq.write_table(table, folder / name / f"{index:04d}.parquet")
            if index < FLINK_FILES:
                _write_text(table, name, folder / f"{name}-text" / f"{index:04d}.txt")
    return Data(folder, each * files)


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def _boards(first: int, count: int) -> pa.Table:
    draw = np.random.default_rng(first)
    return pa.table(
        {
            "board": [f"board-{one}" for one in draw.integers(0, 1000, count)],
            "item": [f"item-{one}" for one in draw.integers(0, 100_000, count)],
            "points": draw.integers(0, 1 << 40, count),
        }
    )


def _write_text(table: pa.Table, name: str, file: Path) -> None:
    columns = ["value"] if name == "linear" else table.column_names
    rows = zip(*(table.column(column).to_pylist() for column in columns), strict=True)
    file.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))


# Running one


def run(engine: Engine, workload: str, data: Data, warm_up: Data, *more: str) -> tuple[dict[str, Any], int]:
    """What the script says, and the most memory that it and its children had, in MB."""
    folder = data.text_of(workload) if engine.reads_text else data.of(workload)
    line = [python_of(engine.environment), str(SCRIPTS / engine.script), *engine.arguments, workload, folder]
    if engine.warms_up:
        line.append(warm_up.text_of(workload) if engine.reads_text else warm_up.of(workload))
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([*line, *more], stdout=subprocess.PIPE, stderr=errors, text=True)
        watch = PeakMemory(process.pid)
        try:
            output, _ = process.communicate(timeout=TIMEOUT)
        finally:
            peak = watch.stop()
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode:
            errors.seek(0)
            raise RuntimeError(f"{engine.name} on {workload}: {errors.read()[-2000:]}")
    answer: dict[str, Any] = json.loads(output.splitlines()[-1])
    return answer, peak


# Throughput


def throughput(
    data: Data, warm_up: Data, rounds: int, workloads: Sequence[str], say: Say
) -> dict[str, dict[str, Measured]]:
    found: dict[str, dict[str, Measured]] = {}
    for workload in workloads:
        engines = WORKLOADS[workload]
        results = found[workload] = {engine.name: Measured() for engine in engines}
        for index in range(rounds):
            turn = index % len(engines)
            for engine in (*engines[turn:], *engines[:turn]):
                _measure(engine, workload, data, warm_up, results[engine.name])
        say(f"## {workload}: {WHAT[workload]}\n")
        say("| engine | rows/s (from - to) | penstock is | peak memory, MB | start-up, s |")
        say("| --- |" + " --- |" * 4)
        for engine in engines:
            say(_row(engine.name, results[engine.name], results[PENSTOCK.name].rates))
        say("")
    return found


def _measure(engine: Engine, workload: str, data: Data, warm_up: Data, into: Measured) -> None:
    if into.problem:
        return
    began = time.monotonic()
    try:
        answer, peak = run(engine, workload, data, warm_up)
    except (RuntimeError, subprocess.SubprocessError) as problem:
        into.problem = str(problem).strip().splitlines()[-1][:300]
        print(f"{workload}: {engine.name}: {problem}", file=sys.stderr, flush=True)
        return
    rows = data.rows * FLINK_FILES // FILES if engine.reads_text else data.rows
    into.rates.append(rows / answer["seconds"])
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


# Latency


def latency(data: Data, warm_up: Data, rounds: int, full: float, say: Say) -> list[Bar]:
    """At half of the slower one's full throughput, so that both can hold it."""
    rate = full / 2
    ratios, rows = [], []
    for index in range(rounds):
        pair = (PENSTOCK, PLAIN) if index % 2 == 0 else (PLAIN, PENSTOCK)
        seen = {one.name: run(one, "linear", data, warm_up, "--rate", str(rate))[0] for one in pair}
        ratios.append(seen["penstock"]["p50"] / seen["plain"]["p50"])
        rows.append([f"{seen[name][q] * 1000:,.0f}" for name in ("penstock", "plain") for q in ("p50", "p99")])
        print(f"latency: {seen}", file=sys.stderr, flush=True)
    say(f"## Latency of the ten operators in a row at {rate:,.0f} rows/s\n")
    say("| round | penstock p50, ms | p99 | plain p50, ms | p99 | p50: ratio |\n| --- | --- | --- | --- | --- | --- |")
    for index, (cells, one) in enumerate(zip(rows, ratios, strict=True)):
        say(f"| {index + 1} | {' | '.join(cells)} | {one:.2f} |")
    say("")
    return [Bar("3. latency p50 of ten operators: penstock / plain", statistics.median(ratios), 1.5, at_most=True)]


# One micro-batch


def one_batch(rounds: int, say: Say) -> list[Bar]:
    """As `make bench-engine` has it."""
    found = measure_batches(rounds, BATCHES)
    ratios = [mine["total"] / its["total"] for mine, its in zip(found["penstock"], found["plain"], strict=True)]
    say("## One micro-batch, ms (an Arrow operator that does nothing; plain from a small file to nowhere)\n")
    say("| part | penstock | plain |\n| --- | --- | --- |")
    for part in found["plain"][0]:
        cells = [statistics.median(one[part] for one in found[engine]) for engine in ("penstock", "plain")]
        say(f"| {part} | {cells[0]:.1f} | {cells[1]:.1f} |")
    say(f"\nRatio of totals by round: {', '.join(f'{one:.2f}' for one in ratios)}.\n")
    return [Bar("4. one micro-batch: penstock / plain", statistics.median(ratios), 1.2, at_most=True)]


# How cost grows


def growth(folder: Path, warm_up: Data, rounds: int, say: Say) -> list[Bar]:
    """By the number of operators in a row, of slots, and of rows."""
    data = write_data(folder / "rows", 4_000_000, FILES, ["linear"])

    def rate(operators: int, rows: Data, *more: str) -> float:
        for one in (rows, warm_up):
            _also_called(one, f"linear{operators}")
        answers = [run(PENSTOCK, f"linear{operators}", rows, warm_up, *more)[0] for _ in range(rounds)]
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
    return [Bar("4. work/s with 32 operators / with 1", work[32] / work[1], 0.8, at_most=False)]


def _also_called(data: Data, name: str) -> None:
    """The same rows under the name of another workload."""
    link = data.folder / name
    if not link.exists():
        link.symlink_to(data.folder / "linear")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=2_000_000)
    parser.add_argument("--parts", default="throughput,latency,batch,growth")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    options = parser.parse_args()
    parts, workloads = options.parts.split(","), options.workloads.split(",")
    lines: list[str] = []
    bars: list[Bar] = []

    def say(text: str) -> None:
        print(text, flush=True)
        lines.append(text)

    say(METHOD.format(flink=FLINK_FILES, files=FILES))
    with tempfile.TemporaryDirectory(prefix="penstock-speed-") as temporary:
        data = write_data(Path(temporary) / "data", options.sentences, FILES)
        warm_up = write_data(Path(temporary) / "warm-up", 80_000, 8)
        found = throughput(data, warm_up, options.rounds, workloads, say) if "throughput" in parts else {}
        bars += throughput_bars(found)
        if "latency" in parts and "linear" in found:
            full = min(found["linear"][one.name].rate for one in (PENSTOCK, PLAIN))
            bars += latency(data, warm_up, options.rounds, full, say)
        if "batch" in parts:
            bars += one_batch(options.rounds, say)
        if "growth" in parts:
            bars += growth(Path(temporary) / "growth", warm_up, options.rounds, say)
    write_results("speed", lines, bars, machine())
    return finish(bars)


if __name__ == "__main__":
    sys.exit(main())
