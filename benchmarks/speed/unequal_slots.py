"""Two slots of which one has half the speed: how many rows each gets, beside what both can do together.

    python unequal_slots.py [--settle 15] [--seconds 30] [--set NAME=VALUE]

An operator waits for every row, on the second slot twice as long, and more rows come than both can do. A wait needs no
core, so what both can do together follows from the waits, whatever else the cores do.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from settings_given import settings_of

from penstock import Topology, sinks, sources
from penstock.cluster.local import LocalCluster
from penstock.engine.spark.host import SparkHost
from penstock.engine.state.folder import StateFolder
from penstock.engine.topology import SparkTopology
from penstock.monitor.report import BatchReport

#: The waits for a row on the first and on the second slot, in seconds.
WAITS = (0.000_05, 0.000_1)
#: How many times as many rows come as both slots can do.
TOO_MANY = 1.25
#: Seconds that a batch may take: what is under way at both ends of the time that is measured should not matter.
BATCH_SECONDS = 0.5


class Uneven:
    """Waits for every row, on the second bundle longer. What a wait took too long is taken off the next one."""

    def __init__(self) -> None:
        self._late = 0.0

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        seconds = batch.num_rows * WAITS[_bundle()]
        began = time.perf_counter()
        time.sleep(max(seconds - self._late, 0.0))
        self._late += time.perf_counter() - began - seconds
        return batch


def _bundle() -> int:
    """Which bundle of the operator this is: Spark's partitions of a turn are its bundles, in the order of the slots."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return int(context.partitionId()) if context is not None else 0


def topology(possible: float) -> Topology:
    made = Topology("uneven")
    rows = made.source("rows", sources.rate(possible * TOO_MANY, sources.numbers()))
    slow = made.map("slow", Uneven(), inputs=[rows], schema="id long, value double", instances=len(WAITS))
    made.sink("out", sinks.noop(), inputs=[slow])
    return made


def rates_of(batches: Sequence[BatchReport], slots: Sequence[str], since: float) -> dict[str, float]:
    """Rows a second by slot, from the first batch of a slot that ended after `since` to its last one."""
    found = {}
    for slot in slots:
        shares = [
            (report.finished, bundle.rows_in)
            for report in batches
            for bundle in report.bundles
            if bundle.slot == slot and report.finished >= since
        ]
        if len(shares) < 2:
            raise RuntimeError(f"slot {slot} had {len(shares)} batches, which is too few to measure")
        found[slot] = sum(rows for _, rows in shares[1:]) / (shares[-1][0] - shares[0][0])
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--settle", type=float, default=15.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    settings, state = settings_of(options.set), StateFolder.hold(None)
    settings = replace(settings, latency_under_load=BATCH_SECONDS, latency_with_backlog=BATCH_SECONDS, chaining="off")
    provider, here = LocalCluster(slots=len(WAITS), cores=1, task_threads=16), str(Path(__file__).parent)
    slots = [slot.name for slot in provider.cluster.slots]
    possible = {slot: 1 / wait for slot, wait in zip(slots, WAITS, strict=True)}
    batches: list[BatchReport] = []
    held = StateFolder.hold(str(state.path / "run"))
    try:
        with SparkHost("uneven", provider, settings, state.path / "logs", [here]) as host:
            definition = topology(sum(possible.values())).definition()
            run = SparkTopology(definition, host, held, settings)
            run.listen(lambda report: batches.append(report) if report.operator == "slow" else None)
            with run:
                run.wait(options.settle)
                since = batches[-1].finished if batches else 0.0
                run.wait(options.seconds)
                seen = list(batches)
                run.stop(drain=False)
    finally:
        held.release()
        state.release()
    rates = rates_of(seen, slots, since)
    total = sum(possible.values())
    print(
        json.dumps(
            {"rate": sum(rates.values()), "possible": total, "rate_by_slot": rates, "possible_by_slot": possible}
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
