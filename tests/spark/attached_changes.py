"""Attaches to a cluster someone else runs, and changes its machines: `python attached_changes.py FOLDER URL`.

Somebody adds a machine (it says when, and reads a line once that is done), and it is taken in. One machine goes, and
its work with it; then an executor is asked for again while another is being replaced, and takes work. It ends with what
it saw, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
from steered import steered
from written_rows import WAIT

from penstock import Settings
from penstock.api.steering import Steering
from penstock.cluster.attached import AttachedCluster
from penstock.cluster.model import Machine, Slot
from penstock.cluster.provider import Executors
from penstock.engine.spark.host import SparkHost
from penstock.engine.state.folder import StateFolder
from penstock.engine.topology import SparkTopology
from penstock.plans import requests as plans
from penstock.plans.plan import AddMachine, Plan, SetInstances

SETTINGS = Settings(latency_under_load=0.5, latency_spark=0.05, retention_seconds=1, drain_seconds=120)


def flowing(run: SparkTopology) -> None:
    seen = run.statistics.batches("counts")
    while run.statistics.batches("counts") < seen + 2:
        run.wait(0.05)


def until(run: SparkTopology, condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, f"it took too long until {what}"
        run.wait(0.05)


def take_in_what_came(run: SparkTopology) -> object:
    """Somebody adds a machine; `scale-out` then asks for no other one."""
    print("add a machine", flush=True)
    sys.stdin.readline()
    until(run, lambda: len(run.host.slots.usable()) == 3, "its executor has come by itself")
    steering = Steering(run, "attached", lambda drain: None)
    try:
        asked = steering.scale_out(1, "storm")
        done = steering.operation(asked["id"], WAIT)
    finally:
        steering.close()
    used = sorted({slot.name for slot in run.placement.slots})
    return [done["state"], done["reason"], len(run.host.slots.executors()), used]


def java_with(*words: str) -> Iterator[psutil.Process]:
    """The Java processes whose command lines have all these words."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.name() == "java" and set(words) <= set(process.cmdline()):
                yield process


def lose_one(run: SparkTopology, machine: str, provider: AttachedCluster) -> None:
    """An executor is killed, and replaced only once the next machine has been asked for: its worker cannot sooner."""
    driver = (
        f"spark://CoarseGrainedScheduler@127.0.0.1:{run.host.spark.sparkContext.getConf().get('spark.driver.port')}"
    )
    [executor] = list(java_with(driver, machine))
    worker = executor.parent()
    worker.suspend()
    executor.kill()
    until(run, lambda: len(run.host.slots.executors()) == 1, "the loss is noticed")
    add_machine = provider.add_machine

    def then_replace(new: Machine, spark: Executors, idle: Collection[Slot] = ()) -> None:
        add_machine(new, spark, idle)
        worker.resume()

    provider.add_machine = then_replace


def main(folder: Path, master: str) -> None:
    state = StateFolder.hold(str(folder / "state"))
    provider = AttachedCluster(master, cores=1)
    conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", "spark.executor.cores": "8"}
    host = SparkHost("attached", provider, SETTINGS, folder / "logs", [str(Path(__file__).parent)], conf)
    saw: dict[str, object] = {}
    with host, SparkTopology(steered(folder, 300).definition(), host, state, SETTINGS) as run:
        changes = run.changes
        flowing(run)
        saw["taken in"] = take_in_what_came(run)
        flowing(run)
        before = host.cluster.names
        leaving = before[0]
        outcome = changes.carry_out(plans.remove_machines(run.placement, host.cluster, [leaving]))
        saw["removed"] = [outcome.status, outcome.reason, list(before), list(host.cluster.names)]
        flowing(run)
        lose_one(run, before[1], provider)
        [machine] = provider.upcoming(1)
        plan = Plan((AddMachine(machine), SetInstances("tag", {machine.slots[0]: 1, host.cluster.slots[0]: 1})))
        outcome = changes.carry_out(plan)
        saw["added"] = [outcome.status, outcome.reason, machine.name, list(host.cluster.names)]
        until(run, lambda: len(host.slots.executors()) == 3, "the lost one is replaced as well")
        saw["executors"] = sorted(executor.host for executor in host.slots.executors())
        saw["twice"] = changes.carry_out(plan).status
        saw["tag"] = sorted(slot.name for slot in run.placement.of("tag"))
        flowing(run)
        time.sleep(0.2)
        saw["drained"] = run.stop()
        saw["emitted"] = run.query("events").feeds[0].position
    state.release()
    print(json.dumps(saw))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
