"""A running topology as the engine that plans are carried out on: what each step does with Spark."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.cluster.plan import MoveTask, SetInstances, diff
from penstock.cluster.repair import repair
from penstock.engine import arrangement, repartition
from penstock.engine.enact import Enactor, GiveUp, Interruption, Move, Placed
from penstock.engine.observing import Seen
from penstock.engine.repartition import Repartition
from penstock.engine.runtime import Run
from penstock.engine.spark_internals import SparkInternals
from penstock.engine.state_sizes import state_bytes
from penstock.engine.warming import warm_state
from penstock.errors import PenstockError
from penstock.topology.definition import Keyed, TopologyDefinition

POLL = 0.05
#: An operator that has had nothing to do for so long is not waited for.
IDLE_SECONDS = 3.0
#: The usual gap between two batches is the median of so many.
USUAL_GAPS = 20
#: A state store that is not warm after so long is left to its first batch.
WARM_STATE_SECONDS = 60.0
_LOAD = "rocksdbLoadLatencyMs"


class Changes(Enactor):
    """Everything that can be changed about a running topology, one thing at a time."""

    def __init__(self, run: Run) -> None:
        super().__init__(RunningEngine(run))
        self._run = run

    def repartition(self, operator: str, tasks: int) -> Repartition:
        """Cut the state of a keyed operator into another number of tasks: for more instances than it has tasks. The
        operator is stopped meanwhile, and the instances stay what and where they are."""
        with self.exclusively(f'repartition "{operator}" into {tasks} tasks'):
            return repartition.carry_out(self._run, operator, tasks)


class RunningEngine:
    """Implements `enact.Engine` over a run."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def definition(self) -> TopologyDefinition:
        return self._run.definition

    @property
    def cluster(self) -> Cluster:
        return self._run.host.cluster

    @property
    def planned(self) -> Placement:
        """What was decided, on the slots that the cluster has: those of an attached cluster may be gone for good."""
        return repair(self._run.arrangement.planned, self.cluster.slots)

    @property
    def slot_instances(self) -> int:
        return self._run.settings.slot_instances

    def note(self, change: str) -> None:
        arrangement.note_change(self._run.catalog, change)

    # Machines

    def slots_of(self, machine: Machine) -> Mapping[Slot, Slot] | None:
        return self._run.host.provider.arrived(machine)

    def add_machine(self, machine: Machine, give_up: GiveUp) -> Mapping[Slot, Slot]:
        host, began = self._run.host, time.monotonic()
        internals = self._internals()
        host.provider.add_machine(machine, internals)
        try:
            came = self._await_machine(machine, give_up)
            if any(isinstance(operator, Keyed) for operator in self.definition.operators):
                executors = [one for slot in came.values() if (one := host.slots.executor(slot)) is not None]
                with suppress(Exception):  # a favour to the first batch; what matters is looked at again below
                    warm_state(internals, executors, self._run.environment.checkpoints, WARM_STATE_SECONDS)
            self._require(set(came.values()))
        except PenstockError:
            with suppress(PenstockError), host.slots.without(machine.name):
                host.provider.remove_machine(machine.name, internals)
            raise
        self._run.happened("change", f"machine {machine.name} is there, after {time.monotonic() - began:.1f} s")
        return came

    def _await_machine(self, machine: Machine, give_up: GiveUp) -> Mapping[Slot, Slot]:
        """Its executors are there and warm: Slots sees to that."""
        seconds = self._run.settings.cluster_timeout
        deadline = time.monotonic() + seconds
        while True:
            came = self._run.host.provider.arrived(machine)
            if came is not None and set(came.values()) <= self._run.host.slots.usable():
                return came
            _stop_if(give_up)
            if time.monotonic() > deadline:
                raise PenstockError(
                    "CLUSTER_FAILED",
                    f"machine {machine.name} did not come up within {seconds:g} s.",
                    "See its worker's log in the state folder, or the cluster manager's.",
                )
            time.sleep(POLL)

    def remove_machine(self, name: str) -> None:
        host = self._run.host
        with host.slots.without(name):
            host.provider.remove_machine(name, self._internals())
        self._run.happened("change", f"machine {name} is gone")

    def _internals(self) -> SparkInternals:
        internals = self._run.host.streams.internals
        if internals is None:
            raise PenstockError(
                "FIXED_MACHINES",
                f"bundles are not placed here: {self._run.host.unplaced_because}.",
                "Machines can be changed where bundles are placed.",
            )
        return internals

    # The placement

    def restore(self, placement: Placement) -> None:
        self._run.arrangement.plan(placement)
        self._run.statistics.placement_changed(time.time())

    def place(self, placement: Placement, give_up: GiveUp) -> Placed:
        run, before = self._run, self.planned
        changes = diff(before, placement)
        moved = [action for action in changes if isinstance(action, MoveTask)]
        sizes = {name: self._state_bytes(name) for name in {move.operator for move in moved}}
        at = time.time()
        run.arrangement.plan(placement)
        run.statistics.placement_changed(at)
        operators = {action.operator for action in changes if isinstance(action, MoveTask | SetInstances)}
        seen = self._await_seen(operators, at, placement.slots - before.slots, give_up)
        arrangement.record(run.catalog, run.definition, placement)
        interruptions = {name: self._interruption(name, at) for name in sorted(operators)}
        loads = {name: self._load_seconds(name, seen.get(name)) for name in sizes}
        moves = tuple(
            Move(
                move.operator,
                move.task,
                before.tasks[move.operator][move.task],
                move.slot,
                sizes[move.operator][move.task],
                loads[move.operator],
                interruptions[move.operator],
            )
            for move in moved
        )
        return Placed(moves, tuple(interruptions.values()))

    def _await_seen(self, operators: set[str], at: float, new: set[Slot], give_up: GiveUp) -> dict[str, Seen]:
        """Wait until a batch of every operator ran where it is now to run; one that has nothing to do runs nowhere."""
        run, seconds = self._run, self._run.settings.change_seconds
        deadline = time.monotonic() + seconds
        counted: dict[str, int] = {}
        idle_since: dict[str, float] = {}
        seen: dict[str, Seen] = {}
        waiting = {name for name in operators if run.query(name).feeds}
        while waiting:
            run.check()
            _stop_if(give_up)
            self._require(new)
            for name in sorted(waiting):
                published = run.statistics.batches(name)
                if published != counted.get(name):
                    counted[name] = published
                    placed = self._seen(name, at)
                    if placed is not None and placed.agrees(name, run.arrangement.requested):
                        seen[name] = placed
                        waiting.discard(name)
                if not run.query(name).intake.idle:
                    idle_since[name] = time.monotonic()
                elif time.monotonic() > idle_since.setdefault(name, time.monotonic()) + IDLE_SECONDS:
                    waiting.discard(name)
            if waiting and time.monotonic() > deadline:
                raise PenstockError(
                    "NOT_OBSERVED",
                    f"{', '.join(sorted(waiting))} did not run where it was to run within {seconds:g} s.",
                    "Look at its batches: one that takes longer than the setting change_seconds is the usual cause.",
                )
            time.sleep(POLL)
        return seen

    def _seen(self, operator: str, at: float) -> Seen | None:
        """Where its newest batch ran, if that began after this time."""
        if self._run.host.streams.internals is None:
            return Seen(0, at, {}) if self._run.statistics.last_started(operator) > at else None
        seen = self._run.observed(operator)
        return seen if seen is not None and seen.began > at else None

    def _require(self, slots: set[Slot]) -> None:
        """Raise if a slot that this change brings into use is not usable (any more)."""
        if lost := slots - self._run.host.slots.usable():
            names = ", ".join(str(slot) for slot in sorted(lost))
            raise PenstockError("CLUSTER_FAILED", f"{names} was lost.", "See the cluster's logs for the cause.")

    # What it cost

    def _state_bytes(self, operator: str) -> list[int]:
        return state_bytes(self._run.environment.checkpoint(operator), len(self.planned.tasks[operator]))

    def _interruption(self, operator: str, at: float) -> Interruption:
        gaps = self._run.statistics.gaps(operator)
        usual = [gap for published, gap in gaps if published <= at][-USUAL_GAPS:]
        around = [gap for published, gap in gaps if published > at]
        return Interruption(operator, max(around, default=0.0), statistics.median(usual) if usual else None)

    def _load_seconds(self, operator: str, seen: Seen | None) -> float | None:
        """What Spark counted for loading state in the first batch after the move."""
        query = self._run.query(operator).query
        if seen is None or query is None:
            return None
        for progress in query.recentProgress:
            if progress["batchId"] == seen.batch:
                return _load_of(progress)
        return None


def _load_of(progress: Any) -> float | None:
    found = [one["customMetrics"].get(_LOAD) for one in progress["stateOperators"]]
    known = [one for one in found if one is not None]
    return sum(known) / 1000 if known else None


def _stop_if(give_up: Callable[[], str]) -> None:
    if why := give_up():
        raise PenstockError("CANCELLED", f"{why}.", "What ran before runs again.")
