"""The live benchmark without state: how long the sink hears nothing while instances and machines come and go.

A source, a stateless operator and a sink, all of whose bundles stand, with Penstock's own settings: nothing makes rows
wait here as the keyed operator's micro-batches do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import live_gaps
from live_bars import ADD, DOWN, REMOVE, UP, USE
from live_gaps import Measured
from live_load import CORES, MACHINES, MEMORY_MB, SLOTS, TASK_THREADS, Load, Shape, row_numbers
from live_penstock import HERE, CarriedOut, PenstockStream, Recorder, Say

from penstock import Settings, Topology, sinks, sources
from penstock.cluster.standalone import StandaloneCluster
from penstock.engine.spark.host import SparkHost
from penstock.engine.state.folder import StateFolder
from penstock.engine.topology import SparkTopology
from penstock.plans import requests as plans

#: It is calm while less than so many seconds of rows wait.
CALM_SECONDS = 0.5


def topology(load: Load) -> Topology:
    made = Topology("stateless")
    rows = made.source("rows", sources.rate(load.rate, sources.generated(row_numbers, "id long")))
    shaped = made.map("shape", Shape(load.keys), inputs=[rows], schema="key long, text string", instances=2)
    made.sink("out", sinks.noop(), inputs=[shaped])
    return made


def measure(load: Load, folder: Path, say: Say) -> dict[str, Any]:
    settings = Settings()
    provider = StandaloneCluster(MACHINES, SLOTS, CORES, TASK_THREADS, folder / "cluster", MEMORY_MB)
    state = StateFolder.hold(str(folder / "state"))
    recorder = Recorder()
    try:
        say("starting a cluster")
        with SparkHost("stateless", provider, settings, folder / "logs", [HERE]) as host:
            run = SparkTopology(topology(load).definition(), host, state, settings)
            run.listen(recorder.add)
            with run:
                stream = PenstockStream(run, recorder, load.rate * CALM_SECONDS)
                live_gaps.until(stream, lambda: bool(recorder.outputs), 120, "the first rows")
                live_gaps.rest(stream, load.warm_up)
                found = Actions(run, stream, load, provider, say).all()
                say("draining")
                drained = run.stop()
            emitted, arrived = run.statistics.totals("rows")[1], run.statistics.totals("out")[0]
        if not drained or emitted != arrived:
            raise RuntimeError(f"{emitted} rows were emitted, and {arrived} have arrived")
        say(f"{emitted:,} rows, all of them arrived")
        return {"actions": [vars(one) for one in found], "state_bytes": [], "rows": emitted}
    finally:
        state.release()


class Actions(CarriedOut):
    """Each action once."""

    def all(self) -> list[Measured]:
        run = self._run
        here = sorted(run.host.cluster.slots)
        found = [self._instances(UP, here, 2), self._instances(DOWN, here, 1)]
        [machine] = self._provider.upcoming(1)
        found.append(self._plan(ADD, lambda: plans.add_machines([machine])))
        found.append(self._instances(USE, [*here, *machine.slots], 1))
        remove = self._plan(REMOVE, lambda: plans.remove_machines(run.placement, run.host.cluster, [machine.name]))
        return [*found, remove]

    def _instances(self, name: str, slots: list[Any], each: int) -> Measured:
        return self._plan(name, lambda: plans.set_instances(self._run.placement, "shape", dict.fromkeys(slots, each)))
