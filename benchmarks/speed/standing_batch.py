"""What a batch of bundles that stand costs, by rows and by number of bundles, on local Spark:

    python standing_batch.py [--small 3000] [--large 300] [--bundles 1,2,4,8] [--set NAME=VALUE]

The rows wait in a channel, cut so that each batch reads as many as it may. Then the operator is let loose, alone, and
the processor time of the driver, of Spark's JVM and of the Python workers is read before and after.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pyarrow as pa
from settings_given import settings_of

from penstock import Settings, Topology, sinks, sources
from penstock.cluster.local import LocalCluster
from penstock.engine.spark.host import SparkHost
from penstock.engine.state.folder import StateFolder
from penstock.engine.topology import SparkTopology
from penstock.monitor.report import BatchReport

#: Rows of a small batch, which is all cost and no rows, and of a large one.
FEW, MANY = 10, 10_000
#: Seconds that a run may take in all.
PATIENCE = 600.0


def identity(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


@dataclass(frozen=True)
class Size:
    rows: int
    bundles: int
    batches: int


class Processors:
    """Processor time so far of the driver's Python process, of its JVM and of the Python workers below that."""

    def __init__(self, java: int) -> None:
        self._java = java

    def read(self) -> Counter[str]:
        found: Counter[str] = Counter()
        here = psutil.Process()
        for process in [here, *here.children(recursive=True)]:
            try:
                spent = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            kind = "driver" if process.pid == here.pid else "jvm" if process.pid == self._java else "bundles"
            found[kind] += spent.user + spent.system
        return found


def topology_of(size: Size) -> Topology:
    topology = Topology("trickle")
    rows = topology.source("rows", sources.rate(10_000_000, sources.numbers(), rows=size.batches * size.rows))
    same = topology.map("same", identity, inputs=[rows], schema="id long, value double", instances=size.bundles)
    topology.sink("out", sinks.noop(), inputs=[same])
    return topology


def until(condition: Callable[[], bool], run: SparkTopology) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        run.check()
        if time.monotonic() > end:
            raise RuntimeError(f"it did not finish within {PATIENCE:g} s")
        time.sleep(0.02)


def measure(host: SparkHost, settings: Settings, state: str, size: Size) -> dict[str, float]:
    held = StateFolder.hold(state)
    # Nobody empties the channels meanwhile, and each operator is to be in a query of its own.
    settings = replace(settings, rows_at_once=size.rows, backlog_policy="spill", chaining="off")
    processors = Processors(host.spark.sparkContext._gateway.proc.pid)
    batches: list[BatchReport] = []
    try:
        run = SparkTopology(topology_of(size).definition(), host, held, settings)
        run.listen(lambda report: batches.append(report) if report.operator == "same" else None)
        try:
            run.start(held={"same", "out"})
            until(lambda: run.query("rows").drained, run)
            began, before = time.perf_counter(), processors.read()
            run.gates.release("same")
            until(lambda: run.query("same").drained, run)
            seconds, spent = time.perf_counter() - began, processors.read()
        finally:
            run.stop(drain=False)
    finally:
        held.release()
    rows = sum(report.rows_in for report in batches)
    if rows != size.rows * size.batches:
        raise RuntimeError(f"{size.rows * size.batches} rows were emitted, and {rows} were read")
    return {
        "rows": size.rows,
        "bundles": len({bundle.slot for report in batches for bundle in report.bundles}),
        "batches": len(batches),
        "batches_per_second": len(batches) / seconds,
        "rows_per_second": rows / seconds,
        **{f"{kind}_ms": (spent[kind] - before[kind]) / len(batches) * 1000 for kind in ("driver", "jvm", "bundles")},
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", type=int, default=3_000, help=f"batches of {FEW} rows")
    parser.add_argument("--large", type=int, default=300, help=f"batches of {MANY} rows")
    parser.add_argument("--bundles", default="1,2,4,8")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    bundles = [int(one) for one in options.bundles.split(",")]
    settings, state = settings_of(options.set), StateFolder.hold(None)
    sizes = [Size(FEW, one, options.small) for one in bundles] + [Size(MANY, one, options.large) for one in bundles]
    try:
        provider, here = (
            LocalCluster(max(bundles), cores=1, task_threads=4 * max(bundles) + 8),
            str(Path(__file__).parent),
        )
        with SparkHost("batches", provider, settings, state.path / "logs", [here]) as host:
            measure(host, settings, str(state.path / "warm-up"), sizes[0])
            found = [measure(host, settings, str(state.path / f"run-{i}"), size) for i, size in enumerate(sizes)]
    finally:
        state.release()
    print(json.dumps({"sizes": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
