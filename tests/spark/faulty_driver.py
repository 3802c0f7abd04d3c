"""A driver to be struck by faults: `python faulty_driver.py CONFIG`, a JSON object (Campaign.config). It runs a
topology of the campaign and, on a cluster of its own, changes it all the time, by chance, until the file `stop`
appears; then it drains and ends.

It says what happens on standard output, a JSON object a line, and when each sink's batch was published.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from fault_lab import SHAPE
from fault_topologies import SHAPES, build

from penstock import PenstockError, Settings
from penstock.cluster import standalone
from penstock.cluster.ground import Loopback
from penstock.cluster.lab.ground import LabGround
from penstock.cluster.local import LocalCluster
from penstock.cluster.provider import Provider
from penstock.cluster.standalone import StandaloneCluster
from penstock.engine.spark.host import SparkHost
from penstock.engine.state.folder import StateFolder
from penstock.engine.topology import SparkTopology
from penstock.monitor.report import BatchReport
from penstock.plans import requests as plans
from penstock.plans.plan import Plan
from penstock.running import Changes

SETTINGS = {
    "latency_under_load": 0.5,
    "latency_spark": 0.05,
    "retention_seconds": 1,
    "change_seconds": 60,
    "cluster_timeout": 120,
    "drain_seconds": 120,
}
MOST_MACHINES = 3


def say(what: str, **fields: object) -> None:
    """One line, in one piece: several threads say something, and `print` would write the end of the line by itself."""
    sys.stdout.write(f"{json.dumps({'what': what, **fields})}\n")
    sys.stdout.flush()


class Chance:
    """Plans by chance, each of them one that may be refused."""

    def __init__(self, run: SparkTopology, elastic: tuple[str, ...], seed: int) -> None:
        self.run = run
        self.elastic = elastic
        self.random = random.Random(seed)

    def plan(self) -> Plan:
        kinds = [self.instances, self.machine, *([self.move] if self.run.placement.tasks else [])]
        return self.random.choice(kinds)()

    def instances(self) -> Plan:
        slots = self.random.sample(self.run.host.cluster.slots, k=min(2, len(self.run.host.cluster.slots)))
        operator = self.random.choice(self.elastic)
        return plans.set_instances(self.run.placement, operator, {slot: self.random.randint(1, 2) for slot in slots})

    def move(self) -> Plan:
        slots = self.run.host.cluster.slots
        operator = self.random.choice(sorted(self.run.placement.tasks))
        tasks = self.random.sample(range(len(self.run.placement.tasks[operator])), k=2)
        return plans.move_tasks(operator, {task: self.random.choice(slots) for task in tasks})

    def machine(self) -> Plan:
        cluster = self.run.host.cluster
        if len(cluster.machines) < MOST_MACHINES and self.random.random() < 0.6:
            return plans.add_machines(self.run.host.provider.upcoming(1))
        # The machine with the fewest instances and tasks: the least has to move.
        held = self.run.placement.load()
        for slots in self.run.placement.tasks.values():
            held.update(slots)
        least = min(cluster.machines, key=lambda one: (sum(held[slot] for slot in one.slots), one.name))
        return plans.remove_machines(self.run.placement, cluster, [least.name])


class Changing(threading.Thread):
    """Changes the topology all the time, until `end`. A change may be refused; any other error is a mistake, of
    Penstock or of the campaign: the thread says it and ends, and `check` raises it."""

    def __init__(self, chance: Chance, changes: Changes) -> None:
        super().__init__(daemon=True)
        self.chance = chance
        self.changes = changes
        self.ending = threading.Event()
        self._mistake: Exception | None = None

    def run(self) -> None:
        try:
            while not self.ending.wait(self.chance.random.uniform(0.5, 3)):
                self._change()
        except Exception as mistake:
            self._mistake = mistake
            say("broken", message="".join(traceback.format_exception(mistake)))

    def _change(self) -> None:
        try:
            plan = self.chance.plan()
            say("change", plan=[str(action) for action in plan.actions])
            outcome = self.changes.carry_out(plan)
            say("changed", status=outcome.status, reason=outcome.reason, seconds=outcome.seconds)
        except PenstockError as error:
            say("refused", error=error.name, message=error.message)

    def check(self) -> None:
        if self._mistake is not None:
            raise self._mistake

    def end(self) -> None:
        self.ending.set()
        self.join()
        self.check()


def provider_of(cluster: str, folder: Path) -> Provider:
    if cluster == "local":
        return LocalCluster(1, 1, 24)
    if cluster == "lab":
        standalone.START_SECONDS = 240.0
    ground = LabGround(SHAPE) if cluster == "lab" else Loopback()
    return StandaloneCluster(2, 1, 1, 24, folder, ground=ground)


def main(config: dict[str, Any]) -> None:
    folder, shape, is_own = Path(config["folder"]), SHAPES[config["shape"]], config["cluster"] != "local"
    settings = Settings(**SETTINGS, **config["settings"])
    definition = build(config["shape"], folder / "out", config["rate"], config["name"]).definition()
    state = StateFolder.hold(str(folder / "state"))
    provider = provider_of(config["cluster"], folder / "cluster")
    host = SparkHost(config["name"], provider, settings, folder / "logs", [str(Path(__file__).parent)])
    sinks = {sink.name for sink in definition.sinks}

    def say_published(report: BatchReport) -> None:
        if report.operator in sinks:
            say("published", sink=report.operator, batch=report.batch, rows=report.rows_in)

    with host, SparkTopology(definition, host, state, settings) as run:
        run.listen(say_published)
        say("running", pid=os.getpid())
        changing = Changing(Chance(run, shape.elastic, config["seed"]), run.changes) if is_own else None
        if changing:
            changing.start()
        told = run.events.last
        while not Path(config["stop"]).exists():
            run.wait(0.2)
            if changing:
                changing.check()
            for happening in run.events.since(told):
                told = happening.id
                say("happening", kind=happening.kind, text=happening.reason)
        if changing:
            changing.end()
        drained = run.stop()
        emitted = {source.name: run.query(source.name).feeds[0].position for source in definition.sources}
        say("finished", drained=drained, emitted=emitted)
    state.release()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
