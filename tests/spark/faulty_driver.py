"""A driver to be killed: `python faulty_driver.py FOLDER SEED RATE`. It runs the steered topology on a cluster of its
own and changes it all the time, by chance, until a file `stop` appears in the folder; then it drains and ends.

It says what happens on standard output, a JSON object a line, and when each sink's batch was published.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from pathlib import Path

from steered import steered

from penstock import PenstockError, Settings
from penstock.cluster.plan import Plan
from penstock.cluster.standalone import StandaloneCluster
from penstock.controller import plans
from penstock.engine.changing import Changes
from penstock.engine.host import SparkHost
from penstock.engine.manifest import BatchReport
from penstock.engine.runtime import Run
from penstock.engine.state_folder import StateFolder

SETTINGS = Settings(
    batch_interval=0.5,
    batch_linger=0.05,
    retention_seconds=1,
    change_seconds=60,
    cluster_timeout=120,
    drain_seconds=120,
)
MOST_MACHINES = 3


def say(what: str, **fields: object) -> None:
    print(json.dumps({"at": time.time(), "what": what, **fields}), flush=True)


def say_published(report: BatchReport) -> None:
    if report.operator in ("rows", "counts"):
        say("published", sink=report.operator, batch=report.batch, rows=report.rows_in)


class Chance:
    """Plans by chance, each of them one that may be refused."""

    def __init__(self, run: Run, seed: int) -> None:
        self.run = run
        self.random = random.Random(seed)

    def plan(self) -> Plan:
        kinds = [self.instances, self.move, self.machine]
        return self.random.choice(kinds)()

    def instances(self) -> Plan:
        slots = self.random.sample(self.run.host.cluster.slots, k=min(2, len(self.run.host.cluster.slots)))
        operator = self.random.choice(["events", "tag", "count", "rows", "counts"])
        return plans.set_instances(self.run.placement, operator, {slot: self.random.randint(1, 2) for slot in slots})

    def move(self) -> Plan:
        slots = self.run.host.cluster.slots
        tasks = self.random.sample(range(len(self.run.placement.tasks["count"])), k=2)
        return plans.move_tasks("count", {task: self.random.choice(slots) for task in tasks})

    def machine(self) -> Plan:
        cluster = self.run.host.cluster
        if len(cluster.machines) < MOST_MACHINES and self.random.random() < 0.6:
            return plans.add_machines(self.run.host.provider.upcoming(1))
        return plans.remove_any(self.run.placement, cluster, 1)


def change_all_the_time(run: Run, seed: int, ending: threading.Event) -> None:
    chance, changes = Chance(run, seed), Changes(run)
    while not ending.wait(chance.random.uniform(0.5, 3)):
        try:
            plan = chance.plan()
            say("change", plan=[str(action) for action in plan.actions])
            outcome = changes.carry_out(plan)
            say("changed", status=outcome.status, reason=outcome.reason, seconds=outcome.seconds)
        except PenstockError as error:
            say("refused", error=error.name, message=error.message)


def main(folder: Path, seed: int, rate: float) -> None:
    state = StateFolder.hold(str(folder / "state"))
    provider = StandaloneCluster(2, 1, 1, 8, folder / "cluster")
    definition = steered(folder, rate).definition()
    host = SparkHost("faulty", provider, SETTINGS, folder / "logs", [str(Path(__file__).parent)])
    with host, Run(definition, host, state, SETTINGS) as run:
        run.listen(say_published)
        say("running", pid=os.getpid())
        ending = threading.Event()
        changer = threading.Thread(target=change_all_the_time, args=(run, seed, ending), daemon=True)
        changer.start()
        told = run.events.last
        while not (folder / "stop").exists():
            run.wait(0.2)
            for happening in run.events.since(told):
                told = happening.id
                say("happening", kind=happening.kind, text=happening.reason)
        ending.set()
        changer.join()
        drained = run.stop()
        say("finished", drained=drained, emitted=run.query("events").feeds[0].position)
    state.release()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
