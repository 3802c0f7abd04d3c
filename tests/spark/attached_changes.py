"""Attaches to a cluster someone else runs, and changes its machines: `python attached_changes.py FOLDER URL`.

One machine goes, and its work with it; then an executor is asked for again, and takes work. It ends with what it saw,
as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from steered import steered

from penstock import Settings
from penstock.cluster.attached import AttachedCluster
from penstock.cluster.plan import AddMachine, Plan, SetInstances
from penstock.controller import plans
from penstock.engine.changing import Changes
from penstock.engine.host import SparkHost
from penstock.engine.runtime import Run
from penstock.engine.state_folder import StateFolder

SETTINGS = Settings(batch_interval=0.5, batch_linger=0.05, retention_seconds=1, drain_seconds=120)


def flowing(run: Run) -> None:
    seen = run.statistics.batches("counts")
    while run.statistics.batches("counts") < seen + 2:
        run.wait(0.05)


def main(folder: Path, master: str) -> None:
    state = StateFolder.hold(str(folder / "state"))
    provider = AttachedCluster(master, cores=1)
    conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", "spark.executor.cores": "8"}
    host = SparkHost("attached", provider, SETTINGS, folder / "logs", [str(Path(__file__).parent)], conf)
    saw: dict[str, object] = {}
    with host, Run(steered(folder, 300).definition(), host, state, SETTINGS) as run:
        changes = Changes(run)
        flowing(run)
        before = host.cluster.names
        leaving = before[0]
        outcome = changes.carry_out(plans.remove_machines(run.placement, host.cluster, [leaving]))
        saw["removed"] = [outcome.status, outcome.reason, list(before), list(host.cluster.names)]
        flowing(run)
        [machine] = provider.upcoming(1)
        plan = Plan((AddMachine(machine), SetInstances("tag", {machine.slots[0]: 1, host.cluster.slots[0]: 1})))
        outcome = changes.carry_out(plan)
        saw["added"] = [outcome.status, outcome.reason, machine.name, list(host.cluster.names)]
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
