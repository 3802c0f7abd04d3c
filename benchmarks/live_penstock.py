"""The live benchmark's Penstock side: one process that carries every action out once, under load."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import live_gaps
import pyarrow.parquet as pq
from live_bars import ADD, BACK, DOWN, REMOVE, THERE, UP, USE
from live_gaps import Measured, Output
from live_load import (
    CORES,
    MACHINES,
    MEMORY_MB,
    SLOTS,
    TASK_THREADS,
    Load,
    Shape,
    check_counts,
    count,
    row_numbers,
)

from penstock import Settings, Topology, sinks, sources
from penstock.cluster.model import Slot
from penstock.cluster.standalone import StandaloneCluster
from penstock.engine.spark.host import SparkHost
from penstock.engine.state.folder import StateFolder
from penstock.engine.state.sizes import state_bytes
from penstock.engine.topology import SparkTopology
from penstock.monitor.report import BatchReport
from penstock.plans import requests as plans
from penstock.plans.enacting import Status
from penstock.plans.plan import Plan

HERE = str(Path(__file__).parent)
#: Seconds between the starts of two batches of an operator: plain's rate source gives rows once a second.
LINGER = 1.0
#: The sink writes what a batch of the keyed operator gave, and does not wait for more.
FILE_SECONDS = 0.05
#: A large state takes long to be loaded elsewhere.
CHANGE_SECONDS = 600.0
#: It is calm while less than so many seconds of rows wait.
CALM_SECONDS = 3.0
Say = Callable[[str], None]


class Recorder:
    """Keeps every batch that came out of a sink."""

    def __init__(self, sink: str = "out") -> None:
        self.outputs: list[Output] = []
        self._sink = sink

    def add(self, report: BatchReport) -> None:
        if report.operator == self._sink:
            self.outputs.append(Output(report.finished, report.rows_in))


class PenstockStream:
    """A run as something to be watched."""

    def __init__(self, run: SparkTopology, recorder: Recorder, calm_rows: float, keyed: str = "") -> None:
        """It is calm while no more than so many rows wait in front of any operator. `keyed` is the keyed operator."""
        self._run = run
        self._recorder = recorder
        self._calm_rows = calm_rows
        self._keyed = keyed

    def outputs(self) -> list[Output]:
        return list(self._recorder.outputs)

    def times(self) -> list[float]:
        return [one.at for one in self.outputs()]

    def loads(self) -> list[tuple[float, float]]:
        query = self._run.query(self._keyed).query if self._keyed else None
        known = query.recentProgress if query is not None else []
        return [(datetime.fromisoformat(one["timestamp"]).timestamp(), live_gaps.load_of(one)) for one in known]

    @property
    def calm(self) -> bool:
        return all(self._run.backlog(one.name) <= self._calm_rows for one in self._run.definition.operators)

    def check(self) -> None:
        self._run.check()


def topology(load: Load, folder: Path) -> Topology:
    made = Topology("live")
    schedule = sources.stepped([(load.filling, load.keys / load.filling), (1, load.rate)])
    rows = made.source("rows", sources.rate(schedule, sources.generated(row_numbers, "id long")))
    shaped = made.map("shape", Shape(load.keys, load.text), inputs=[rows], schema="key long, text string", instances=2)
    schema = "key long, count long, size int"
    counted = made.keyed("count", count, inputs=[shaped], key="key", schema=schema, tasks=load.tasks, instances=2)
    made.sink("out", sinks.parquet(folder / "out"), inputs=[counted])
    return made


def measure(load: Load, folder: Path, say: Say, actions: type[CarriedOut] | None = None) -> dict[str, Any]:
    """With the actions of a benchmark of its own, or with all that there are."""
    settings = Settings(latency_spark=LINGER, file_seconds=FILE_SECONDS, change_seconds=CHANGE_SECONDS)
    provider = StandaloneCluster(MACHINES, SLOTS, CORES, TASK_THREADS, folder / "cluster", MEMORY_MB)
    state = StateFolder.hold(str(folder / "state"))
    recorder = Recorder()
    more = {"spark.sql.streaming.numRecentProgressUpdates": "200"}
    try:
        say("starting a cluster")
        with SparkHost("live", provider, settings, folder / "logs", [HERE], more) as host:
            run = SparkTopology(topology(load, folder).definition(), host, state, settings)
            run.listen(recorder.add)
            with run:
                stream = PenstockStream(run, recorder, CALM_SECONDS * load.rate, "count")
                say(f"filling the state: {load.keys:,} keys")
                counted = run.statistics.totals
                live_gaps.until(
                    stream, lambda: counted("out")[0] >= load.keys, 300 + 5 * load.filling, "the state to be filled"
                )
                live_gaps.rest(stream, load.warm_up)
                sizes = state_bytes(run.context.checkpoint("count"), load.tasks)
                found = (actions or Actions)(run, stream, load, provider, say).all()
                say("draining")
                drained = run.stop()
            emitted = run.statistics.totals("rows")[1]
        if not drained:
            raise RuntimeError("it could not be drained")
        check_counts(pq.read_table(folder / "out", columns=["key", "count"]), emitted, load.keys)
        say(f"{emitted:,} rows, every count is exact")
        return {"actions": [vars(one) for one in found], "state_bytes": sizes, "rows": emitted}
    finally:
        state.release()


class CarriedOut:
    """Changes of a run, carried out and measured one after the other."""

    def __init__(
        self, run: SparkTopology, stream: PenstockStream, load: Load, provider: StandaloneCluster, say: Say
    ) -> None:
        self._run = run
        self._stream = stream
        self._load = load
        self._provider = provider
        self._say = say
        self._changes = run.changes

    def all(self) -> list[Measured]:
        raise NotImplementedError

    def _plan(self, name: str, plan: Callable[[], Plan]) -> Measured:
        return self._measure(name, lambda: self._carry_out(plan()))

    def _carry_out(self, plan: Plan) -> tuple[int, float]:
        outcome = self._changes.carry_out(plan)
        if outcome.status is not Status.DONE:
            raise RuntimeError(f"{outcome.status}: {outcome.reason}")
        moves = outcome.placed.moves
        return len(moves), max((move.load_seconds or 0.0 for move in moves), default=0.0)

    def _measure(self, name: str, act: Callable[[], tuple[int, float]]) -> Measured:
        self._say(name)
        began = time.time()
        found = live_gaps.measure(self._stream, name, act, self._load.before, self._load.after)
        faults = [one.reason for one in self._run.events.since(0) if one.time > began and one.kind == "fault"]
        self._say(
            f"  longest gap {found.longest_gap:.2f} s, median before {found.median_gap:.2f} s, "
            f"load {found.load_of_slowest:.2f} s" + (f"; faults: {faults}" if faults else "")
        )
        return found


class Actions(CarriedOut):
    """Each action once."""

    def all(self) -> list[Measured]:
        run = self._run
        here = sorted(run.host.cluster.slots)
        found = [
            self._plan(UP, lambda: plans.set_instances(run.placement, "shape", dict.fromkeys(here, 2))),
            self._plan(DOWN, lambda: plans.set_instances(run.placement, "shape", dict.fromkeys(here, 1))),
        ]
        two = [task for task, slot in enumerate(run.placement.tasks["count"]) if slot == here[0]][:2]
        found.append(self._plan(THERE, lambda: plans.move_tasks("count", dict.fromkeys(two, here[1]))))
        found.append(self._plan(BACK, lambda: plans.move_tasks("count", dict.fromkeys(two, here[0]))))
        [machine] = self._provider.upcoming(1)
        found.append(self._plan(ADD, lambda: plans.add_machines([machine])))
        found.append(self._plan(USE, lambda: self._use([*here, *machine.slots])))
        found.append(self._plan(REMOVE, lambda: plans.remove_machines(run.placement, run.host.cluster, [machine.name])))
        found.append(self._measure(self._load.cut, self._repartition))
        return found

    def _use(self, slots: list[Slot]) -> Plan:
        placement = self._run.placement
        both = [plans.set_instances(placement, name, dict.fromkeys(slots, 1)) for name in ("shape", "count")]
        return Plan(tuple(action for plan in both for action in plan.actions), "the new machine was to take work")

    def _repartition(self) -> tuple[int, float]:
        self._changes.repartition("count", self._load.more_tasks)
        return self._load.more_tasks, 0.0
