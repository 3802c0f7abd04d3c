"""The end of a script that runs a topology in a process of its own, to be killed."""

from __future__ import annotations

import time
from pathlib import Path

from penstock import Settings, Topology
from penstock.cluster.local import LocalCluster
from penstock.cluster.standalone import StandaloneCluster
from penstock.engine.spark.host import SparkHost
from penstock.engine.state.folder import StateFolder
from penstock.engine.topology import SparkTopology


def run_to_its_end(topology: Topology, sink: str, folder: Path, cluster: str, settings: Settings) -> None:
    """Run a topology with its state in a folder, where the one before was killed, if any. Says "published" once the
    first batch has reached the sink, and "finished" at the end."""
    state = StateFolder.hold(str(folder / "state"))
    provider = (
        LocalCluster(slots=2, cores=1, task_threads=24)
        if cluster == "local"
        else StandaloneCluster(2, 1, 1, 24, folder / f"cluster-{time.time_ns()}")
    )
    with SparkHost(topology.name, provider, settings, folder / "logs", [str(Path(__file__).parent)]) as host:
        with SparkTopology(topology.definition(), host, state, settings) as run:
            said = False
            while not run.wait(0.1):
                if not said and run.statistics.totals(sink)[0]:
                    said = True
                    print("published", flush=True)
        print("finished", flush=True)
