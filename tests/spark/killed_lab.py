"""A topology on a lab, in a process that a test kills: `python killed_lab.py STATE`. It says `ready` when rows flow."""

from __future__ import annotations

import sys

from penstock import Settings, Topology, sinks, sources
from penstock.cluster import standalone
from penstock.cluster.choice import ClusterChoice
from penstock.cluster.lab.owners import Owner
from penstock.engine.launching import launch


def main(state: str) -> None:
    standalone.START_SECONDS = 240.0  # the tests run beside others
    topology = Topology("killed")
    events = topology.source("events", sources.rate(200), instances=1)
    topology.sink("out", sinks.noop(), inputs=[events], instances=1)
    settings = Settings(chaining="off", slot_memory_mb=512, cluster_timeout=600)
    with launch(topology.definition(), ClusterChoice("lab", machines=2), settings, state) as run:
        while run.statistics.batches("out") < 3:
            run.wait(0.1)
        print("ready", Owner.this_process().prefix, flush=True)
        run.wait(600)


if __name__ == "__main__":
    main(sys.argv[1])
