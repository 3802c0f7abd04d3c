"""Penstock and plain Structured Streaming, on local Spark with two cores.

python on_spark.py ENGINE WORKLOAD FOLDER WARM_UP        throughput: all of a folder's rows
python on_spark.py ENGINE WORKLOAD - WARM_UP --rate R    latency: R rows a second, as they are due, for a while
python on_spark.py ENGINE linear - WARM_UP --idle        processor time of ten queries that have nothing to do
python on_spark.py penstock WORKLOAD FOLDER WARM_UP --goal R    throughput with a controller that is to hold R rows/s at
                                                         the sinks; 0: steered in the same way, without a goal

ENGINE is penstock, plain, or plain-fused (the functions by hand in one).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from contents import content_of
from due_source import DueSource
from functions import CHAIN, MEASURE, SETTLE, ArrowFunction, Work, fused, quantiles, split, steps
from goal_given import steered_to, what_became
from settings_given import pairs, settings_of
from top_n import BOARD, best_of_boards

from penstock import Topology, aggregates, sinks, sources
from penstock.cluster.local import LocalCluster
from penstock.engine.spark.host import SparkHost
from penstock.engine.state.folder import StateFolder
from penstock.engine.topology import SparkTopology
from penstock.topology.definition import Keyed
from penstock.topology.output import Output

TASKS = 8
#: Plain Structured Streaming reads this many files a micro-batch.
FILES_A_BATCH = 8
SCHEMAS = {
    "chain": ["sentence string", "word string", "word string", "word string, length int, crc long"],
    "word-count": ["word string"],
}
INPUT = {"chain": "sentence string", "word-count": "sentence string", "top-n": "board string, item string, points long"}
NUMBERS = "id long, value double"


def operators_of(workload: str) -> list[tuple[ArrowFunction, str]]:
    """The Arrow functions of a workload, with what they give."""
    if workload == "chain":
        return list(zip(CHAIN, SCHEMAS["chain"], strict=True))
    if workload == "word-count":
        return [(split, "word string")]
    if workload == "linear":
        return [(step, NUMBERS) for step in steps(10)]
    if workload.startswith("work"):
        return [(Work(), NUMBERS)] * int(workload.removeprefix("work"))
    return []


def topology_of(workload: str, source: Any, instances: int = 2) -> Topology:
    topology = Topology(workload)
    last: Output = topology.source("rows", source, instances=instances)
    for number, (function, schema) in enumerate(operators_of(workload)):
        last = topology.map(f"step{number}", function, inputs=last, schema=schema, instances=instances)
    if workload == "word-count":
        last = topology.aggregate(
            "count", {"count": aggregates.count()}, inputs=last, key="word", tasks=TASKS, instances=2
        )
    if workload == "top-n":
        last = topology.keyed("best", best_of_boards, inputs=last, key="board", schema=BOARD, tasks=TASKS, instances=2)
    topology.sink("out", sinks.noop(), inputs=last, instances=instances)
    return topology


def each(function: ArrowFunction) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(function, batches)

    return apply


def plain_frame(lines: Any, engine: str, workload: str) -> Any:
    from pyspark.sql import functions as F

    if workload == "word-count":
        return lines.select(F.explode(F.split("sentence", " ")).alias("word")).groupBy("word").count()
    if workload == "top-n":
        return best_of_boards(lines)
    operators = operators_of(workload)
    if engine == "plain-fused":
        one = fused([function for function, _ in operators])
        return lines.mapInArrow(each(one), operators[-1][1])
    for function, schema in operators:
        lines = lines.mapInArrow(each(function), schema)
    return lines


def mode_of(workload: str) -> str:
    return "update" if workload in ("word-count", "top-n") else "append"


def run_penstock(host: SparkHost, workload: str, folder: str, state: str, goal: float | None = None) -> dict[str, Any]:
    instances = len(host.cluster.slots)
    schema = INPUT.get(workload, NUMBERS)
    files = sources.files(folder, format="parquet", schema=schema, follow=False)
    held = StateFolder.hold(state)
    try:
        definition = topology_of(workload, files, instances).definition()
        started = time.perf_counter()
        with SparkTopology(definition, host, held, host.settings) as run, steered_to(run, goal):
            if not run.wait(1800):
                raise RuntimeError("it did not finish")
            seconds = time.perf_counter() - started
            became = what_became(run, goal)
            keyed = next((one.name for one in run.definition.operators if isinstance(one, Keyed)), None)
            query = run.query(keyed).query if keyed else None
            return {"seconds": seconds} | became | (state_costs(query.recentProgress) if query else {})
    finally:
        held.release()


def state_costs(progress: Sequence[Any]) -> dict[str, float]:
    """What the batches of a keyed operator took, and what of that was the state store's, in ms: medians."""
    batches = [one for one in progress if one["numInputRows"] and one["stateOperators"]]
    parts = {
        "batch": [one["batchDuration"] for one in batches],
        "update": [one["stateOperators"][0]["allUpdatesTimeMs"] for one in batches],
        "commit": [one["stateOperators"][0]["commitTimeMs"] for one in batches],
    }
    return {"batches": len(batches)} | {name: statistics.median(ms) for name, ms in parts.items() if ms}


def run_plain(host: SparkHost, engine: str, workload: str, folder: str, state: str) -> dict[str, float]:
    schema = INPUT.get(workload, NUMBERS)
    lines = host.spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_A_BATCH).parquet(folder)
    started = time.perf_counter()
    writer = plain_frame(lines, engine, workload).writeStream.format("noop").option("checkpointLocation", state)
    writer = writer.outputMode(mode_of(workload))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return {"seconds": time.perf_counter() - started} | state_costs(query.recentProgress)


# Latency at a rate


def latency_of_penstock(host: SparkHost, workload: str, rate: float, state: str) -> dict[str, float]:
    held = StateFolder.hold(state)
    try:
        source = sources.rate(rate, content_of(workload))
        with SparkTopology(topology_of(workload, source).definition(), host, held, host.settings) as run:
            run.wait(SETTLE)
            run.monitor.restart(time.time())
            run.wait(MEASURE)
            seen = run.snapshot().operators["out"].latency
            run.stop(drain=False)
        if seen is None:
            raise RuntimeError(f"no row reached the sink in {MEASURE:g} s")
        return {"p50": seen.p50, "p99": seen.p99}
    finally:
        held.release()


def latency_of_plain(host: SparkHost, engine: str, workload: str, rate: float, state: str) -> dict[str, float]:
    """From when a row is due to when its batch has been written, as for Penstock."""
    host.spark.dataSource.register(DueSource)
    host.spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100000")
    began = time.time()
    options = {"workload": workload, "rate": str(rate), "began": str(began)}
    rows = host.spark.readStream.format("due").options(**options).load()
    writer = plain_frame(rows, engine, workload).writeStream.format("noop").outputMode(mode_of(workload))
    query = writer.option("checkpointLocation", state).start()
    time.sleep(SETTLE)
    counted_from = time.time()
    time.sleep(MEASURE)
    parts = []
    for progress in query.recentProgress:
        [source] = progress["sources"]
        first, last = (json.loads(source[name] or "null") for name in ("startOffset", "endOffset"))
        first, last = (first or {"row": 0})["row"], last["row"]
        ended = written_at(progress)
        if ended > counted_from and last > first:
            parts.append((ended - began - last / rate, ended - began - first / rate, last - first))
    query.stop()
    if not parts:
        raise RuntimeError(f"no batch ended in {MEASURE:g} s")
    return quantiles(parts)


def written_at(progress: Any) -> float:
    """When the rows of a batch had been written; what Spark does after that is not theirs to wait for."""
    took = progress["durationMs"]
    started = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return started + float(took["triggerExecution"] - took.get("commitOffsets", 0)) / 1000


# Nothing to do


def idle_penstock(host: SparkHost, state: str) -> float:
    source = sources.rate(sources.stepped([(1, 100), (3600, 0)]), content_of("linear"))
    held = StateFolder.hold(state)
    try:
        settings = replace(host.settings, chaining="off")
        with SparkTopology(topology_of("linear", source).definition(), host, held, settings) as run:
            run.wait(SETTLE)
            used = cores_used()
            run.stop(drain=False)
            return used
    finally:
        held.release()


def idle_plain(host: SparkHost, state: str) -> float:
    """Ten queries, each over a folder in which nothing comes any more."""
    host.spark.conf.set("spark.sql.streaming.pollingDelay", "10ms")  # Spark's default
    queries = []
    for number, (function, schema) in enumerate(operators_of("linear")):
        folder = Path(state) / f"in-{number}"
        folder.mkdir(parents=True)
        rows = host.spark.readStream.schema(NUMBERS).parquet(str(folder)).mapInArrow(each(function), schema)
        writer = rows.writeStream.format("noop").option("checkpointLocation", f"{state}/checkpoint-{number}")
        queries.append(writer.start())
    time.sleep(SETTLE)
    used = cores_used()
    for query in queries:
        query.stop()
    return used


def cores_used() -> float:
    """Of this process and all below it."""

    def seconds() -> float:
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    before = seconds()
    time.sleep(MEASURE)
    return (seconds() - before) / MEASURE


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=("penstock", "plain", "plain-fused"))
    parser.add_argument("workload")
    parser.add_argument("folder")
    parser.add_argument("warm_up")
    parser.add_argument("--rate", type=float)
    parser.add_argument("--idle", action="store_true")
    parser.add_argument("--goal", type=float, help="rows/s at the sinks; 0 is no goal")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    settings, state = settings_of(options.set), StateFolder.hold(None)
    provider = LocalCluster(slots=options.slots, cores=1, task_threads=40 * options.slots)
    began = time.perf_counter()
    try:
        here, conf = str(Path(__file__).parent), pairs(options.conf)
        with SparkHost("speed", provider, settings, state.path / "logs", [here], conf) as host:
            started = time.perf_counter() - began
            host.spark.conf.set("spark.sql.shuffle.partitions", str(TASKS))

            def run(folder: str, name: str, goal: float | None = None) -> dict[str, Any]:
                where = str(state.path / name)
                if options.engine == "penstock":
                    return run_penstock(host, options.workload, folder, where, goal)
                return run_plain(host, options.engine, options.workload, folder, where)

            run(options.warm_up, "warm-up")
            if options.idle:
                idle = idle_penstock if options.engine == "penstock" else idle_plain
                print(json.dumps({"cores": idle(host, str(state.path / "idle"))}))
                return 0
            if options.rate:
                at_a_rate = (options.workload, options.rate, str(state.path / "at-a-rate"))
                if options.engine == "penstock":
                    print(json.dumps(latency_of_penstock(host, *at_a_rate)))
                else:
                    print(json.dumps(latency_of_plain(host, options.engine, *at_a_rate)))
                return 0
            print(json.dumps(run(options.folder, "measured", options.goal) | {"start_up": started}))
    finally:
        state.release()
    return 0


if __name__ == "__main__":
    sys.exit(main())
