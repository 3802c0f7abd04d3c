"""Runs of bench-stateful, made up: what they are told, what the control interface says of them, what was seen."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import stateful_topology
from stateful_bars import PhasesSeen
from stateful_schedule import LOOK, TASKS, Phases
from stateful_seen import Migration, Seen

from penstock import Settings
from penstock.api.reads import Reads
from penstock.autoscaler.operations import Operation, Operations
from penstock.autoscaler.policy import Fate
from penstock.autoscaler.proposals import Proposal
from penstock.cluster.model import Cluster, Slot
from penstock.plans.enacting import Interruption, Move, Outcome, Placed, Status
from penstock.plans.migration import Barrier, Barriers, Flow
from penstock.plans.migration import Migration as TaskMigration
from penstock.plans.plan import MoveTask, Plan, SetInstances
from penstock.testing import RecordingTopology

MACHINES = [f"10.0.0.{number}" for number in range(1, 6)]
A, B = Slot("a", 0), Slot("b", 0)
#: What was told of how far something is.
told: list[str] = []


def given(folder: Path, phases: Phases = LOOK) -> stateful_topology.Given:
    return stateful_topology.Given(phases.steps, phases.rows, str(folder), str(folder / "out"), 1_000.0, 6.0)


def status_of_a_run(tmp_path: Path) -> dict[str, Any]:
    """The real shape: a recording double in the place of the run."""
    definition = stateful_topology.declared(given(tmp_path)).definition()
    run = RecordingTopology(definition, Cluster.of(MACHINES, 1, 4), Settings())
    operations = Operations(lambda _: None, lambda: False, lambda: "")
    return Reads(run, "lab", operations).status()


def operation(number: int, added: dict[str, int], moves: int = 0, status: Status = Status.DONE) -> dict[str, Any]:
    """As the control interface tells it."""
    gap = Interruption("detector", 4.0, 2.5)
    moved = tuple(Move("detector", task, A, B, 100, 0.3, gap) for task in range(moves))
    plan = Plan((SetInstances("detector", {A: 1}), *(MoveTask("detector", task, B) for task in range(moves))), "why")
    made = Operation(number, "carry-out", {}, lambda: None, asked_at=10.0, state=Fate.DONE)
    made.began_at, made.ended_at = 11.0, 13.0
    made.proposal = Proposal(plan, ("why",), decision={"outcome": "decision", "added_instances": added})
    barriers = Barriers(Barrier(6, 100.1), Barrier(7, 100.5))
    others = (Flow("input", 2.6, 2.5, 350.0, 344.0), Flow("reporter", 4.5, None, 12.0, 0.0, behind=True))
    what = ("detector", tuple(range(moves)), TASKS, moves * 100, TASKS * 80)
    reports = (TaskMigration(*what, 100.0, barriers, 0.2, others=others),)
    made.outcome = Outcome(plan, status, seconds=2.0, placed=Placed(moved, (gap,), reports if moves else ()))
    return dict(json.loads(json.dumps(made.as_json())))


def sample(at: float, detectors: int = 5, latency: float | None = 8.0, **more: Any) -> Seen:
    fields: dict[str, Any] = {"tweets": 0, "waiting": 0, "instances": detectors + 4, "used": {}}
    return Seen(at=at, detectors=detectors, latency=latency, **fields | more)


def through(phases: Phases, instances: list[int], slopes: list[float]) -> PhasesSeen:
    samples = []
    for (start, stop), count, slope in zip(phases.spans, instances, slopes, strict=True):
        samples += [
            sample(at, count, 8.0 + slope * (at - start), used={"a": 0.2, "b": 0.6})
            for at in range(int(start), int(stop), 2)
        ]
    return PhasesSeen(phases, samples)


def migration(kind: str, moved: int) -> Migration:
    return Migration(kind, moved, TASKS, moved * 100, TASKS * 100, 2.0, 3.0, 1.0)
