"""What moves of tasks cost, by the gaps in the output: bench-stateful's parts `moves` and `sizes`. Each measurement is
a process of its own, with a cluster of its own.

    python benchmarks/stateful_moves.py moves LOAD FOLDER       (or penstock, or plain: of the part sizes)

`moves` has one topology with two keyed operators on the same rows, on lab machines: `count` with state, `few` with next
to none. Two tasks of the one move, then two tasks of the other. So a stateful move and a stateless one have the same
load, the same machines and the same minute.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import children
import live_gaps
import live_penstock
import live_plain
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from live_gaps import Measured
from live_load import MACHINES, MEMORY_MB, SLOTS, Load, Shape, check_counts, count, row_numbers
from live_penstock import CHANGE_SECONDS, FILE_SECONDS, HERE, LINGER, CarriedOut, PenstockStream, Recorder
from stateful_bars import BACK, FULL, RESTART, THERE, THIN

from penstock import Settings, Topology, sinks, sources
from penstock.cluster.choice import ClusterChoice
from penstock.cluster.lab.sizes import LabShape
from penstock.engine.spark.host import SparkHost
from penstock.engine.state.folder import StateFolder
from penstock.engine.state.sizes import state_bytes
from penstock.engine.topology import SparkTopology
from penstock.plans import requests as plans

#: Keys of the operator without state to speak of.
FEW = 64
#: How often two tasks go there and back.
TIMES = 2
Say = Callable[[str], None]


def thinned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The number of a row's group, and nothing of its text."""
    keys = batch.column("key").to_numpy()
    return pa.record_batch([pa.array(keys % FEW)], names=["part"])


def few(frame: Any) -> Any:
    return frame.groupBy("part").count()


def topology(load: Load, folder: Path) -> Topology:
    """That of bench-live, and beside its keyed operator another one on the same rows."""
    made = Topology("moves")
    schedule = sources.stepped([(load.filling, load.keys / load.filling), (1, load.rate)])
    rows = made.source("rows", sources.rate(schedule, sources.generated(row_numbers, "id long")))
    shaped = made.map("shape", Shape(load.keys, load.text), inputs=[rows], schema="key long, text string", instances=2)
    keyed: dict[str, Any] = {"tasks": load.tasks, "instances": 2}
    counted = made.keyed(FULL, count, inputs=[shaped], key="key", schema="key long, count long, size int", **keyed)
    made.sink("out", sinks.parquet(folder / "out"), inputs=[counted])
    thin = made.map("thin", thinned, inputs=[shaped], schema="part long", instances=2)
    fewer = made.keyed(THIN, few, inputs=[thin], key="part", schema="part long, count long", **keyed)
    made.sink("few_out", sinks.parquet(folder / "few"), inputs=[fewer])
    return made


class TaskMoves(CarriedOut):
    """Two tasks of an operator go there, and come back."""

    operator = FULL

    def of(self, operator: str) -> TaskMoves:
        self.operator = operator
        return self

    def all(self) -> list[Measured]:
        run, name = self._run, self.operator
        here, there = sorted(run.host.cluster.slots)[:2]
        held = [task for task, slot in enumerate(run.placement.tasks[name]) if slot == here]
        found = []
        for turn in range(TIMES):
            # Others each time: an executor keeps for a minute what it had of tasks that are gone.
            two = held[2 * turn : 2 * turn + 2] or held[:2]
            found.append(self._plan(THERE, lambda two=two: plans.move_tasks(name, dict.fromkeys(two, there))))
            found.append(self._plan(BACK, lambda two=two: plans.move_tasks(name, dict.fromkeys(two, here))))
        return found


def measure_moves(load: Load, folder: Path, say: Say) -> dict[str, Any]:
    settings = Settings(
        latency_spark=LINGER,
        file_seconds=FILE_SECONDS,
        change_seconds=CHANGE_SECONDS,
        slot_memory_mb=MEMORY_MB,
        cluster_timeout=600,
    )
    choice = ClusterChoice("lab", MACHINES, SLOTS, lab=LabShape.read(cores=1.0, memory="4g", link="1gbit"))
    provider = choice.provider(8, settings, folder / "cluster")
    state = StateFolder.hold(str(folder / "state"))
    full, thin = Recorder(), Recorder("few_out")
    try:
        say("starting a lab")
        with SparkHost("stateful-moves", provider, settings, folder / "logs", [HERE]) as host:
            run = SparkTopology(topology(load, folder).definition(), host, state, settings)
            run.listen(full.add)
            run.listen(thin.add)
            with run:
                streams = {
                    name: PenstockStream(run, recorder, live_penstock.CALM_SECONDS * load.rate, name)
                    for name, recorder in ((FULL, full), (THIN, thin))
                }
                say(f"filling the state: {load.keys:,} keys")
                counted = run.statistics.totals
                live_gaps.until(
                    streams[FULL], lambda: counted("out")[0] >= load.keys, 300 + 5 * load.filling, "the state"
                )
                live_gaps.rest(streams[FULL], load.warm_up)
                sizes = state_bytes(run.context.checkpoint(FULL), load.tasks)
                found = {
                    name: TaskMoves(run, stream, load, provider, say).of(name).all() for name, stream in streams.items()
                }
                say("draining")
                drained = run.stop()
            emitted = run.statistics.totals("rows")[1]
        if not drained:
            raise RuntimeError("it could not be drained")
        check_counts(pq.read_table(folder / "out", columns=["key", "count"]), emitted, load.keys)
        check_few(pq.read_table(folder / "few"), emitted)
        say(f"{emitted:,} rows, every count is exact")
        return {"moves": {name: [vars(one) for one in all_of_it] for name, all_of_it in found.items()}, "bytes": sizes}
    finally:
        state.release()


def check_few(counts: pa.Table, rows: int) -> None:
    last = counts.group_by("part").aggregate([("count", "max")])
    if (total := pc.sum(last["count_max"]).as_py()) != rows:
        raise RuntimeError(f"{rows} rows were emitted and {total} are counted without state to speak of")


# By size


class OneMove(CarriedOut):
    """One task goes there and comes back, and the state is cut in two."""

    def all(self) -> list[Measured]:
        run = self._run
        here, there = sorted(run.host.cluster.slots)[:2]
        task = run.placement.tasks[FULL].index(here)
        return [
            self._plan(THERE, lambda: plans.move_tasks(FULL, {task: there})),
            self._plan(BACK, lambda: plans.move_tasks(FULL, {task: here})),
            self._measure(self._load.cut, self._cut),
        ]

    def _cut(self) -> tuple[int, float]:
        self._changes.repartition(FULL, self._load.more_tasks)
        return self._load.more_tasks, 0.0


class StopAndStart(live_plain.Actions):
    """What a user of plain Structured Streaming has for both."""

    def all(self, repartition: bool) -> list[Measured]:
        return [
            self._measure(RESTART, self._restart),
            self._measure(self._load.plain_cut, self._repartition),
        ]


def measure_size(engine: str, load: Load, folder: Path, say: Say) -> dict[str, Any]:
    if engine == "plain":
        return live_plain.measure(load, folder, "", say, StopAndStart)
    return live_penstock.measure(load, folder, say, OneMove)


def in_a_process(what: str, load: Load, folder: Path, say: Say) -> dict[str, Any]:
    command = [sys.executable, __file__, what, json.dumps(asdict(load)), str(folder)]
    return children.answer_of(what, command, folder, say)


def main() -> int:
    what, given, folder = sys.argv[1:]
    children.end_with_parent()
    load = Load(**json.loads(given))
    measured = measure_moves if what == "moves" else lambda *rest: measure_size(what, *rest)
    children.answer(measured(load, Path(folder), children.tell))
    return 0


if __name__ == "__main__":
    sys.exit(main())
