"""Penstock beside plain Structured Streaming, the same input in the same run, alternating: `make bench-engine`.

(a) word count of 10-word sentences; (b) a chain of four Python operators; (c) the cost of one micro-batch that does
next to nothing. Every measurement of (a) and (b) is a process of its own with a small run before it to warm up, so that
peak memory is its own; (c) alternates within one session.

    python benchmarks/engine.py [--sentences 2000000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from results import Bar, finish, machine, write_results

from penstock import Settings, Topology, sinks, sources
from penstock.cluster.local import LocalCluster
from penstock.engine.host import SparkHost
from penstock.engine.runtime import Run
from penstock.engine.state_folder import StateFolder

FILES = 40
ROWS_A_BATCH = 10
TASKS = 8
#: Plain Structured Streaming reads this many files a micro-batch: 400,000 sentences, about 2 s.
FILES_A_BATCH = 8
METHOD = """\
Plain reads 8 of the 40 files a batch (400,000 sentences); Penstock bounds its batches by its 0.5 s interval. This was
set once, before the runs, and other batch sizes were not tried: they would change plain's memory and throughput.
"""
PARTS = ("latestOffset", "getOffset", "getBatch", "queryPlanning", "walCommit", "addBatch", "commitOffsets")


# The operators, the same functions for both.


def lower(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([pc.utf8_lower(batch.column(0))], names=["sentence"])


def split(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([pc.list_flatten(pc.utf8_split_whitespace(batch.column(0)))], names=["word"])


def long_words(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.greater(pc.utf8_length(batch.column(0)), 3))


def describe(batch: pa.RecordBatch) -> pa.RecordBatch:
    words = batch.column(0)
    sums = pa.array([zlib.crc32(word.encode()) for word in words.to_pylist()], pa.int64())
    return pa.record_batch([words, pc.utf8_length(words).cast(pa.int32()), sums], names=["word", "length", "crc"])


def each(function: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Callable[[Any], Any]:
    def apply(batches: Any) -> Any:
        return map(function, batches)

    return apply


def count(frame: Any) -> Any:
    return frame.groupBy("word").count()


def penstock_topology(workload: str, folder: str) -> Topology:
    topology = Topology(workload)
    files = sources.files(folder, format="parquet", schema="sentence string", follow=False)
    lines = topology.source("lines", files, instances=2)
    if workload == "word-count":
        words = topology.map("split", split, inputs=[lines], schema="word string", instances=2)
        schema = "word string, count long"
        last = topology.keyed("count", count, inputs=[words], key="word", schema=schema, tasks=TASKS, instances=2)
    else:
        lowered = topology.map("lower", lower, inputs=[lines], schema="sentence string", instances=2)
        words = topology.map("split", split, inputs=[lowered], schema="word string", instances=2)
        kept = topology.map("keep", long_words, inputs=[words], schema="word string", instances=2)
        schema = "word string, length int, crc long"
        last = topology.map("describe", describe, inputs=[kept], schema=schema, instances=2)
    topology.sink("out", sinks.noop(), inputs=[last], instances=2)
    return topology


def plain_frame(spark: Any, workload: str, folder: str, files_a_batch: int) -> Any:
    from pyspark.sql import functions as F

    lines = spark.readStream.schema("sentence string").option("maxFilesPerTrigger", files_a_batch).parquet(folder)
    if workload == "word-count":
        return lines.select(F.explode(F.split("sentence", " ")).alias("word")).groupBy("word").count()
    chained = lines.mapInArrow(each(lower), "sentence string").mapInArrow(each(split), "word string")
    chained = chained.mapInArrow(each(long_words), "word string")
    return chained.mapInArrow(each(describe), "word string, length int, crc long")


# One measurement, in a process of its own.


def measure(engine: str, workload: str, folder: str, warm_up: str) -> dict[str, Any]:
    settings = Settings()
    state = StateFolder.hold(None)
    peak = PeakMemory()
    try:
        with SparkHost("bench", LocalCluster(slots=2, cores=1, task_threads=4), settings, state.path / "logs") as host:
            host.spark.conf.set("spark.sql.shuffle.partitions", str(TASKS))
            run = run_penstock if engine == "penstock" else run_plain
            run(host, settings, workload, warm_up, str(state.path / "warm-up"))
            seconds, batches = run(host, settings, workload, folder, str(state.path / "measured"))
            return {"seconds": seconds, "batches": batches, "peak_mb": peak.stop()}
    finally:
        state.release()


def run_penstock(host: SparkHost, settings: Settings, workload: str, folder: str, state: str) -> Any:
    held = StateFolder.hold(state)
    try:
        with Run(penstock_topology(workload, folder).definition(), host, held, settings) as run:
            started = time.perf_counter()
            if not run.wait(1800):
                raise RuntimeError("it did not finish")
            seconds = time.perf_counter() - started
            batches = {}
            for operator in run.definition.operators:
                query = run.query(operator.name).query
                batches[operator.name] = parts([dict(one.durationMs) for one in query.recentProgress if query])
            return seconds, batches
    finally:
        held.release()


def run_plain(host: SparkHost, settings: Settings, workload: str, folder: str, state: str) -> Any:
    frame = plain_frame(host.spark, workload, folder, FILES_A_BATCH)
    mode = "update" if workload == "word-count" else "append"
    started = time.perf_counter()
    writer = frame.writeStream.format("noop").outputMode(mode).option("checkpointLocation", state)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return time.perf_counter() - started, {"query": parts([dict(one.durationMs) for one in query.recentProgress])}


def parts(durations: list[dict[str, int]]) -> dict[str, float]:
    """The median of each part of a micro-batch in ms, and how many there were."""
    busy = [one for one in durations if one.get("addBatch")]
    medians = {part: statistics.median(one.get(part, 0) for one in busy) for part in PARTS if busy}
    return {"batches": len(busy), **{part: value for part, value in medians.items() if value}}


class PeakMemory:
    """The most resident memory of a process (this one) and its descendants, sampled ten times a second."""

    def __init__(self, pid: int | None = None) -> None:
        self._root = psutil.Process(pid)
        self._peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            total = 0
            try:
                processes = [self._root, *self._root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            for process in processes:
                try:
                    total += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self._peak = max(self._peak, total)

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self._peak >> 20


# (c): one micro-batch.


def identity(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def measure_batches(rounds: int, batches: int) -> dict[str, list[dict[str, float]]]:
    """One batch after the other without a pause, for both, and nothing else at work meanwhile."""
    settings = Settings(batch_rows=ROWS_A_BATCH, chaining="off")
    state = StateFolder.hold(None)
    found: dict[str, list[dict[str, float]]] = {"plain": [], "penstock": []}
    try:
        with SparkHost("bench", LocalCluster(slots=1, cores=1, task_threads=4), settings, state.path / "logs") as host:
            for index in range(rounds + 1):
                plain = trickle_plain(host.spark, state.path / f"plain-{index}", batches)
                penstock = trickle_penstock(host, settings, str(state.path / f"penstock-{index}"), batches)
                if index:  # the first round warms up
                    found["plain"].append(plain)
                    found["penstock"].append(penstock)
    finally:
        state.release()
    return found


def trickle_plain(spark: Any, folder: Path, batches: int) -> dict[str, float]:
    """Plain Structured Streaming's own micro-batch: one small file to the no-op sink."""
    data = folder / "in"
    data.mkdir(parents=True)
    for index in range(batches):
        pq.write_table(pa.table({"id": list(range(ROWS_A_BATCH))}), data / f"{index:04d}.parquet")
    frame = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(data))
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.start()
    while sum(one.numInputRows > 0 for one in query.recentProgress) < batches:
        time.sleep(0.1)
    durations = [dict(one.durationMs) for one in query.recentProgress if one.numInputRows > 0][3:]
    query.stop()
    return cost(durations)


def trickle_penstock(host: SparkHost, settings: Settings, state: str, batches: int) -> dict[str, float]:
    """The operator alone: the source has filled its channel before, the sink reads afterwards."""
    topology = Topology("trickle")
    rows = topology.source("rows", sources.rate(1_000_000, sources.numbers(), rows=batches * ROWS_A_BATCH))
    same = topology.map("same", identity, inputs=[rows], schema="id long, value double")
    topology.sink("out", sinks.noop(), inputs=[same])
    held = StateFolder.hold(state)
    try:
        run = Run(topology.definition(), host, held, settings)
        try:
            run.start(held={"same", "out"})
            until(lambda: run.query("rows").drained, run)
            query = run.query("same")
            query.intake.open()
            until(lambda: query.drained, run)
            assert query.query is not None
            durations = [dict(one.durationMs) for one in query.query.recentProgress if one.numInputRows > 0][3:]
        finally:
            run.stop(drain=False)
        return cost(durations)
    finally:
        held.release()


def until(condition: Callable[[], bool], run: Run) -> None:
    while not condition():
        run.check()
        time.sleep(0.1)


def cost(durations: list[dict[str, int]]) -> dict[str, float]:
    """Medians in ms."""
    medians = {part: statistics.median(one.get(part, 0) for one in durations) for part in PARTS}
    return medians | {"total": statistics.median(one["triggerExecution"] for one in durations)}


# Putting it together.


def in_a_process(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, __file__, "--one", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def write_input(folder: Path, sentences: int, files: int) -> str:
    folder.mkdir()
    content, each_file = sources.sentences(words=10, vocabulary=10_000, seed=1), sentences // files
    for index in range(files):
        table = pa.Table.from_batches([content.rows(index * each_file, each_file)])
        pq.write_table(table, folder / f"{index:04d}.parquet")
    return str(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sentences", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--one", nargs=4, metavar=("ENGINE", "WORKLOAD", "FOLDER", "WARM_UP"))
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(*arguments.one)))
        return 0
    lines: list[str] = []

    def say(text: str = "") -> None:
        print(text, flush=True)
        lines.append(text)

    if arguments.sentences:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as temporary:
            data = write_input(Path(temporary) / "data", arguments.sentences, FILES)
            warm_up = write_input(Path(temporary) / "warm-up", 80_000, 8)
            for workload in ("word-count", "chain"):
                compare(workload, data, warm_up, arguments, say)
    say(f"## One micro-batch (ms, medians of {arguments.rounds} rounds of {arguments.batches} batches, alternating)")
    say(
        "Plain: one small file to the no-op sink. Penstock: an Arrow operator that returns its batch as it is, "
        "alone: its source has ended and its sink has not begun."
    )
    found = measure_batches(arguments.rounds, arguments.batches)
    say("| part | plain | penstock |\n| --- | --- | --- |")
    for part in (*PARTS, "total"):
        values = [statistics.median(one[part] for one in found[engine]) for engine in ("plain", "penstock")]
        if any(values):
            say(f"| {part} | {values[0]:.1f} | {values[1]:.1f} |")
    ratios = [mine["total"] / its["total"] for mine, its in zip(found["penstock"], found["plain"], strict=True)]
    say(f"\nratio of totals, round by round: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
    say()
    bar = Bar(
        "4. micro-batch of an idle-cheap Arrow operator against plain", statistics.median(ratios), 1.5, at_most=True
    )
    write_results("engine", lines, [bar], machine())
    return finish([bar])


def compare(workload: str, data: str, warm_up: str, arguments: Any, say: Callable[[str], None]) -> None:
    say(f"## {workload}: {arguments.sentences:,} sentences of 10 words, {arguments.rounds} rounds, alternating")
    say(METHOD)
    say("| round | plain rows/s | penstock rows/s | ratio | plain peak MB | penstock peak MB |")
    say("| --- | --- | --- | --- | --- | --- |")
    ratios, last = [], {}
    for index in range(arguments.rounds):
        last = {engine: in_a_process(engine, workload, data, warm_up) for engine in ("plain", "penstock")}
        rates = {engine: arguments.sentences / one["seconds"] for engine, one in last.items()}
        ratios.append(rates["penstock"] / rates["plain"])
        say(
            f"| {index + 1} | {rates['plain']:,.0f} | {rates['penstock']:,.0f} | {ratios[-1]:.2f} "
            f"| {last['plain']['peak_mb']:,} | {last['penstock']['peak_mb']:,} |"
        )
    say(f"\nratio: median {statistics.median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}\n")
    say("Per-batch overhead by part (ms, medians of the last round; getOffset includes waiting for rows):\n")
    say("| query | batches | " + " | ".join(PARTS) + " |\n| --- | --- |" + " --- |" * len(PARTS))
    for engine, one in last.items():
        for name, values in one["batches"].items():
            cells = " | ".join(f"{values.get(part, 0):.0f}" for part in PARTS)
            say(f"| {engine}: {name} | {values.get('batches', 0):.0f} | {cells} |")
    say("")


if __name__ == "__main__":
    sys.exit(main())
