"""A machine that comes to a running topology: when it is there, and where the time until then goes.

    python new_machine.py [--settle 20] [--set NAME=VALUE]

A standalone cluster of two machines runs a topology with a keyed operator at a few rows a second, so that the cores
have little else to do. A thread looks what has come of the third machine; the last phase is its first batch.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from settings_given import settings_of

from penstock import Settings, Topology, aggregates, sinks, sources
from penstock.cluster.model import Machine
from penstock.cluster.standalone import StandaloneCluster
from penstock.engine.spark.host import SparkHost
from penstock.engine.state.folder import StateFolder
from penstock.engine.topology import SparkTopology
from penstock.monitor.report import BatchReport
from penstock.plans import requests as plans
from penstock.plans.enacting import Status
from penstock.plans.plan import Plan

MACHINES, RATE = 2, 20
#: A keyed operator runs a micro-batch this often, in seconds: each costs a good part of a core for a moment.
LINGER = 1.0
POLL = 0.02
#: Seconds until the first batch, at the longest.
PATIENCE = 60.0
#: What is awaited, in this order.
REGISTERED = "the worker's process has registered with the master"
LAUNCHED = "the worker has started the executor's process"
CAME = "the executor has registered with the driver"
WARM = "its Python workers are warm, and it can be used"
THERE = "its state stores are warm: the machine is there"


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def topology() -> Topology:
    made = Topology("machines")
    rows = made.source("rows", sources.rate(RATE, sources.numbers()))
    mapped = made.map("same", same, inputs=[rows], schema="id long, value double", instances=MACHINES)
    counted = made.aggregate("count", {"count": aggregates.count()}, inputs=mapped, key="id", tasks=4, instances=2)
    made.sink("out", sinks.noop(), inputs=[counted])
    return made


class Watch:
    """Looks what has come of a machine, in a thread of its own."""

    def __init__(self, run: SparkTopology, provider: StandaloneCluster, machine: Machine) -> None:
        internals = run.host.streams.internals
        if internals is None:
            raise RuntimeError(f"nothing can be placed: {run.host.unplaced_because}")
        known = internals.executor_ids()
        log, work = provider.work_dir / f"worker-{machine.name}.log", provider.work_dir / machine.name
        self._awaited: dict[str, Callable[[], bool]] = {
            REGISTERED: lambda: log.exists() and "Successfully registered" in log.read_text(errors="replace"),
            LAUNCHED: lambda: any(work.glob("*/*/stderr")),
            CAME: lambda: bool(internals.executor_ids() - known),
            WARM: lambda: set(machine.slots) <= run.host.slots.usable(),
        }
        self.seen: dict[str, float] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._ending.wait(POLL):
            for what, has_come in self._awaited.items():
                if what in self.seen:
                    continue
                if not has_come():
                    break
                self.seen[what] = time.monotonic()

    def stop(self) -> dict[str, float]:
        """When each thing came; what was not seen in time came now."""
        self._ending.set()
        self._thread.join()
        return {what: self.seen.get(what, time.monotonic()) for what in self._awaited}


def carry_out(run: SparkTopology, plan: Plan) -> None:
    outcome = run.changes.carry_out(plan)
    if outcome.status is not Status.DONE:
        raise RuntimeError(f"{outcome.status}: {outcome.reason}")


def measure(run: SparkTopology, provider: StandaloneCluster) -> dict[str, object]:
    [machine] = provider.upcoming(1)
    watch, asked = Watch(run, provider, machine), time.monotonic()
    try:
        carry_out(run, plans.add_machines([machine]))
    finally:
        seen = watch.stop()
    there = time.monotonic()
    times = [asked, *seen.values(), there]
    phases = {what: after - before for what, (before, after) in zip([*seen, THERE], pairwise(times), strict=True)}
    return {"phases": phases, "there": there - asked, "first": first_batch(run, machine)}


def first_batch(run: SparkTopology, machine: Machine) -> float:
    """Give the machine an instance: seconds until its first batch is published."""
    slots, worked = {slot.name for slot in machine.slots}, threading.Event()
    ended: list[float] = []

    def hear(report: BatchReport) -> None:
        if report.operator == "same" and any(bundle.slot in slots for bundle in report.bundles):
            ended.append(time.monotonic())
            worked.set()

    run.listen(hear)
    began = time.monotonic()
    carry_out(run, plans.set_instances(run.placement, "same", dict.fromkeys(run.host.cluster.slots, 1)))
    if not worked.wait(PATIENCE):
        raise RuntimeError(f"the new machine had no batch within {PATIENCE:g} s")
    return ended[0] - began


def run_on(folder: Path, settings: Settings, settle: float) -> dict[str, object]:
    provider = StandaloneCluster(MACHINES, 1, 1, 12, folder / "cluster", settings.slot_memory_mb)
    state = StateFolder.hold(str(folder / "state"))
    try:
        with SparkHost("machines", provider, settings, folder / "logs", [str(Path(__file__).parent)]) as host:
            run = SparkTopology(topology().definition(), host, state, settings)
            with run:
                run.wait(settle)
                found = measure(run, provider)
                run.stop(drain=False)
        return found
    finally:
        state.release()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--settle", type=float, default=20.0)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    settings = replace(settings_of(options.set), latency_spark=LINGER)
    with tempfile.TemporaryDirectory(prefix="penstock-machine-", ignore_cleanup_errors=True) as folder:
        found = run_on(Path(folder), settings, options.settle)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
