"""What each live action does to a stream's output, beside what a user of Spark has today: `make bench-live`.

Every round runs four processes one after the other, each with a cluster of its own: Penstock carries each action out
once under load; plain Structured Streaming does what it can, at Spark's default locality wait; and again without a
wait: same machines, rows, keys and state. The fourth is Penstock without state, at more rows a second.

    python benchmarks/live.py [--rounds 3] [--state-mb 10] [--rate 1000] [--quick] [--only stateless]
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import children
import psutil
from live_bars import NO_WAIT, PENSTOCK, PLAIN, STATELESS, bars_of
from live_gaps import Measured
from live_load import TASKS, Load
from results import Bar, finish, machine, named, write_results

METHOD = """\
Both sides: two machines of one slot and one more to come, 8 state partitions in RocksDB with changelogs, rows of a rate
source -> a Python map -> count and largest text by key. Both sides may start a batch once a second: plain because
Spark's rate source makes rows by the second, Penstock because its operators were set to (latency_spark=1, and the sink
writes a file of what each batch gave: file_seconds=0.05; all else is its default). The first was fixed before the runs:
a gap can be held against a gap only if they are alike. Where batches take longer than that, gaps are longer too, above
all early in a process: the median gap before each action is in the table, and a ratio to a long one is a mild one. A
gap is the time between two batches that have come out: of Penstock's sink (parquet files), of plain's foreachBatch
(which writes to Spark's no-op sink: less work). Penstock's cluster has executors look for blocks to hand over every
second before they go; plain has Spark's 30 s.

Per action: the median gap of the calm before it, and the longest gap that ends between its begin and some seconds after
its end. Throughput is rows out over five median gaps, a batch's rows spread over the median gap before its end; "below
90%" are the seconds in which it was below 90% of that in the calm before, of so many watched, and in brackets the same
for the calm itself. State load is by how much the slowest task that moved took longer, in its first batch at its new
place, than it usually does, by Spark's records of its tasks; the bar takes that off. (Spark's own metric,
rocksdbLoadLatencyMs, was found not to count the first load of a store on an executor: tasks that moved took 1 to 1.5 s
longer, and it did not rise. The first version of this benchmark used it.) Figures are medians over the rounds; ratios
are those of each round, with their spread.

Plain is treated kindly: its session stays up while the query is stopped, and it is stopped right after a batch. A
machine that comes gets no state from Spark, so the query is stopped and started again before it is decommissioned.

"Stateless" is Penstock with a source, the same map and a sink that counts, at {rate:,} rows/s and with its own
settings: bundles stand, and the sink publishes every few milliseconds. Its bars are for the longest silence at the
sink, in seconds, and not for a ratio.
"""
#: The spark.locality.wait of the plain processes (empty: Spark's default).
WAITS = {PLAIN: "", NO_WAIT: "0s"}
ROUNDS = 3
#: Rows a second of the process without state.
STATELESS_RATE = 2000
Measurements = dict[tuple[str, str], list[Measured]]


# One process: one engine, each action once.


def measure(engine: str, load: Load, folder: Path) -> dict[str, Any]:
    if engine == PENSTOCK:
        import live_penstock

        return live_penstock.measure(load, folder, children.tell)
    if engine == STATELESS:
        import live_stateless

        return live_stateless.measure(load, folder, children.tell)
    import live_plain

    return live_plain.measure(load, folder, WAITS[engine], children.tell)


def in_a_process(engine: str, load: Load, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", engine, json.dumps(asdict(load)), str(folder)]
    return children.answer_of(engine, command, folder, say)


# Putting it together.


def table(found: Measurements, say: Callable[[str], None]) -> None:
    say(
        "| engine | action | rounds | median gap before (s) | longest gap (s) | ratio (from - to) | action took (s) "
        "| s below 90% of s watched (calm) | state load (s) | tasks moved |"
    )
    say("| --- |" + " --- |" * 9)
    for (engine, action), all_of_it in found.items():

        def mid(get: Callable[[Measured], float], of: Sequence[Measured] = all_of_it) -> float:
            return statistics.median(get(one) for one in of)

        ratios = sorted(one.ratio for one in all_of_it)
        say(
            f"| {engine} | {action} | {len(all_of_it)} | {mid(lambda one: one.median_gap):.3f} "
            f"| {mid(lambda one: one.longest_gap):.3f} "
            f"| {statistics.median(ratios):.2f} ({ratios[0]:.2f} - {ratios[-1]:.2f}) | {mid(lambda one: one.took):.1f} "
            f"| {mid(lambda one: one.below):.1f} of {mid(lambda one: one.watched):.1f} "
            f"({mid(lambda one: one.below_before):.1f}) | {mid(lambda one: one.load_of_slowest):.2f} "
            f"| {', '.join(str(one.moved) for one in all_of_it)} |"
        )
    say("\nLongest gaps, round by round (s), and in brackets the median gaps before:\n")
    for (engine, action), all_of_it in found.items():
        values = ", ".join(f"{one.longest_gap:.3f} ({one.median_gap:.3f})" for one in all_of_it)
        say(f"- {engine}, {action}: {values}")
    say("")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="1 is a look, without plain's locality.wait=0")
    parser.add_argument("--state-mb", type=float, default=10.0, help="state of each of the 8 tasks")
    parser.add_argument("--rate", type=int, default=1000, help="rows a second")
    parser.add_argument("--quick", action="store_true", help="one small round, not written to results")
    parser.add_argument("--only", choices=(PENSTOCK, PLAIN, NO_WAIT, STATELESS), help="one process; bars of stateless")
    parser.add_argument("--one", nargs=3, metavar=("ENGINE", "LOAD", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        engine, load, folder = arguments.one
        children.end_with_parent()
        children.answer(measure(engine, Load(**json.loads(load)), Path(folder)))
        return 0
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    load = Load(arguments.rate, arguments.state_mb, before=10.0, after=5.0, warm_up=60.0)
    rounds = arguments.rounds
    if arguments.quick:
        load, rounds = Load(arguments.rate, 1.0, before=6.0, after=3.0, warm_up=3.0), 1
    engines = [STATELESS, PENSTOCK, PLAIN, *([NO_WAIT] if rounds > 1 or arguments.quick else [])]
    engines = [arguments.only] if arguments.only else engines
    return report(load, rounds, engines, keep=not arguments.quick)


def load_of(engine: str, load: Load) -> Load:
    """Without state there is none to be filled, and less to become warm."""
    return replace(load, rate=STATELESS_RATE, warm_up=load.warm_up / 3) if engine == STATELESS else load


def report(load: Load, rounds: int, engines: Sequence[str], keep: bool) -> int:
    began = time.monotonic()
    lines: list[str] = []
    found: Measurements = {}
    sizes: dict[str, list[int]] = {}
    #: What other programs used of the processor just before each process: such a run is only as good as its calm.
    others: list[float] = []
    rows = 0
    failed: list[str] = []

    def say(text: str = "") -> None:
        print(text, flush=True)
        lines.append(text)

    with tempfile.TemporaryDirectory(prefix="penstock-live-", ignore_cleanup_errors=True) as temporary:
        for index in range(rounds):
            for number, engine in enumerate(engines):

                def tell(text: str, who: str = f"round {index + 1}, {engine}") -> None:
                    print(f"{time.monotonic() - began:6.0f} s  {who}: {text}", file=sys.stderr, flush=True)

                others.append(psutil.cpu_percent(2.0))
                tell(f"others use {others[-1]:.0f}% of the processor")
                try:
                    answer = in_a_process(engine, load_of(engine, load), Path(temporary) / f"{index}-{number}", tell)
                except RuntimeError as problem:  # the others are measured all the same, and the bar below is missed
                    failed.append(f"round {index + 1}, {engine}: {str(problem).strip().splitlines()[-1][:300]}")
                    tell(str(problem))
                    continue
                for one in answer["actions"]:
                    measured = Measured(**one)
                    found.setdefault((engine, measured.action), []).append(measured)
                sizes.setdefault(engine, []).extend(answer["state_bytes"])
                rows += answer.get("rows", 0)
    say(f"## Interruption of each action: {load.rate:,} rows/s, {load.keys:,} keys, {rounds} rounds, alternating")
    say(METHOD.format(rate=STATELESS_RATE))
    for engine, values in sizes.items():
        if not values:
            continue
        low, mid, high = min(values), statistics.median(values), max(values)
        say(
            f"State of one of the {TASKS} tasks of {engine} before the actions: "
            f"{mid / 1e6:.1f} MB (from {low / 1e6:.1f} to {high / 1e6:.1f}).\n"
        )
    busy = ", ".join(f"{one:.0f}%" for one in others)
    say(f"What other programs used of the processor just before each process: {busy}.\n")
    table(found, say)
    judged = [*bars_of(found, load.cut, load.plain_cut), Bar("processes that failed", len(failed), 0, at_most=True)]
    for one in failed:
        say(f"Failed: {one}\n")
    if rows:
        say(f"Penstock emitted {rows:,} rows in all. After each round all had arrived, and every count was exact.\n")
    say(f"The whole took {(time.monotonic() - began) / 60:.0f} minutes.\n")
    if keep:
        is_whole = rounds >= ROUNDS and {STATELESS, PENSTOCK, PLAIN, NO_WAIT} <= set(engines)
        write_results(named("live", is_whole), lines, judged, machine())
    return finish(judged)


if __name__ == "__main__":
    sys.exit(main())
