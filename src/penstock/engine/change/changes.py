"""A running topology as the engine that plans are carried out on: what each step does with Spark."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice

from penstock.clock import run_time
from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.engine.change import repartition
from penstock.engine.change.crossings import Crossings
from penstock.engine.run import arrangement
from penstock.engine.run.any_query import rests
from penstock.engine.run.run import Run
from penstock.engine.spark.internals import SparkInternals
from penstock.engine.spark.warming import warm_state
from penstock.engine.standing.query import StandingQuery
from penstock.engine.state.sizes import cheapest_tasks, state_bytes
from penstock.engine.state.tasks import dealt_anew
from penstock.errors import PenstockError
from penstock.logs import LOGGER, traced
from penstock.monitor.publications import BatchTimes
from penstock.plans.enacting import GiveUp, Interruption, Move, Placed
from penstock.plans.migration import USUAL_GAPS
from penstock.plans.plan import MoveTask, SetInstances, diff
from penstock.plans.repair import repair
from penstock.plans.repartition import CuttingEnactor, Repartition
from penstock.running.placements import Observed
from penstock.topology.definition import Keyed, TopologyDefinition

#: Seconds between two looks at what a change waits for.
POLL = 0.05
#: A change waits so long for a batch of bundles that stand; then it is enough that they stand.
STAND_SECONDS = 1.0
#: A change does not wait for an operator that has had nothing to do for so long.
IDLE_SECONDS = 3.0
#: A state store that is not warm after so long is left to its first batch.
WARM_STATE_SECONDS = 60.0
#: What a task usually takes is the median of so many batches.
USUAL_BATCHES = 5


class RunChanges(CuttingEnactor):
    """Implements `penstock.running.Changes`: everything that can be changed about a run, one thing at a time."""

    def __init__(self, run: Run) -> None:
        super().__init__(RunningEngine(run))
        self._run = run

    def cheapest_tasks(self, operator: str, origin: Slot, slot: Slot, count: int) -> list[int]:
        """Which tasks of an operator to move from a slot to another: those that have been there, then the smallest."""
        placement, query = self._run.placement, self._run.query(operator)
        tasks = [task for task, held in enumerate(placement.tasks.get(operator, ())) if held == origin]
        executor = self._run.host.slots.executor(slot)
        been = query.state.been_on(executor) if query.state is not None and executor is not None else frozenset()
        sizes = state_bytes(self._run.context.checkpoint(operator), len(placement.tasks.get(operator, ())))
        return cheapest_tasks(tasks, sizes, count, been)


class RunningEngine:
    """Implements `plans.repartition.CuttingEngine` over a run."""

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

    # State

    def dealt_anew(self, operator: str, tasks: int) -> Placement:
        return dealt_anew(self._run.placement, operator, tasks)

    def cut_anew(self, operator: str, tasks: int) -> Repartition:
        return repartition.carry_out(self._run, operator, tasks)

    # Machines

    def slots_of(self, machine: Machine) -> Mapping[Slot, Slot] | None:
        return self._run.host.provider.arrived(machine)

    def add_machine(self, machine: Machine, give_up: GiveUp) -> Mapping[Slot, Slot]:
        host, began = self._run.host, time.monotonic()
        internals = self._internals()
        host.provider.add_machine(machine, internals, set(self.cluster.slots) - self.planned.slots)
        deadline = time.monotonic() + self._run.settings.cluster_timeout
        try:
            came = self._await_machine(machine, give_up, deadline)
            if any(isinstance(operator, Keyed) for operator in self.definition.operators):
                executors = [one for slot in came.values() if (one := host.slots.executor(slot)) is not None]
                # Warming spares the first batch some seconds. The change goes on without it: whether the machine is
                # there is looked at again below.
                with traced(f"the state stores of {machine.name} could not be warmed", Exception):
                    warm_state(internals, executors, self._run.context.checkpoints, WARM_STATE_SECONDS)
            came = self._await_machine(machine, give_up, deadline)
        except BaseException:
            with traced(f"machine {machine.name}, which was not wanted any more, could not be removed", Exception):
                self.remove_machine(machine.name)
            raise
        slots = ", ".join(str(slot) for slot in sorted(came.values()))
        self._run.happened(
            "action", f"the machine is there as {slots}, after {time.monotonic() - began:.1f} s", machine.name
        )
        return came

    def _await_machine(self, machine: Machine, give_up: GiveUp, deadline: float) -> Mapping[Slot, Slot]:
        """Wait until all executors of a machine are there and warm: `Slots` warms them. An executor that is lost on the
        way may come back in time."""
        while True:
            came = self._run.host.provider.arrived(machine)
            if came is not None and set(came.values()) <= self._run.host.slots.usable():
                return came
            _stop_if(give_up)
            if time.monotonic() > deadline:
                seconds = self._run.settings.cluster_timeout
                raise PenstockError(
                    "CLUSTER_FAILED",
                    f"machine {machine.name} did not come up within {seconds:g} s.",
                    "See its worker's log in the state folder, or the cluster manager's.",
                )
            time.sleep(POLL)

    def remove_machine(self, name: str) -> None:
        host = self._run.host
        with host.slots.without(host.provider.slots_of(name)):
            host.provider.remove_machine(name, self._internals())
        self._run.happened("action", "the machine is gone, as planned", name)

    def _internals(self) -> SparkInternals:
        internals = self._run.host.streams.internals
        if internals is None:
            raise PenstockError(
                "FIXED_MACHINES",
                f"Spark chooses where bundles run, because {self._run.host.unplaced_because}.",
                "Penstock can add and remove machines only where it places bundles.",
            )
        return internals

    # The placement

    def restore(self, placement: Placement) -> None:
        """Run a placement again that ran before. Every step is tried, whatever becomes of the others. A query that does
        not start is known to have failed: the run starts it again, or ends. Any other problem becomes an event."""
        run = self._run
        with self._or_told("a chain could not be taken apart to restore the placement before the change"):
            run.chaining.split(placement)
        run.arrangement.plan(placement)
        run.placed_anew(run_time())
        with self._or_told("the restored placement could not be recorded, so the next start may use another one"):
            arrangement.record(run.catalog, run.definition, placement)
        with self._or_told("operators that ran as one chain before the change stay apart"):
            run.chaining.join()

    @contextmanager
    def _or_told(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as problem:
            LOGGER.warning(what, exc_info=True)
            self._run.happened("notice", f"{what}: {problem}")

    def place(self, placement: Placement, give_up: GiveUp) -> Placed:
        run, before = self._run, self.planned
        changes = diff(before, placement)
        moved = [action for action in changes if isinstance(action, MoveTask)]
        sizes = {name: self._state_bytes(name) for name in {move.operator for move in moved}}
        usual = {name: self._task_seconds(name) for name in sizes}
        operators = {action.operator for action in changes if isinstance(action, MoveTask | SetInstances)}
        tasks = {name: [one.task for one in moved if one.operator == name] for name in sorted(sizes)}
        crossings = Crossings(run, tasks, operators, run_time(), self._task_seconds)
        run.chaining.split(placement)
        at = crossings.placed_at = run_time()
        run.arrangement.plan(placement)
        run.placed_anew(at)
        self._await_seen(operators, at, placement.slots - before.slots, give_up, crossings)
        over_at = run_time()
        arrangement.record(run.catalog, run.definition, placement)
        interruptions = {name: self._interruption(name, at) for name in sorted(operators)}
        loads = {name: _longer(usual[name], seconds) for name, seconds in crossings.task_seconds.items()}
        moves = tuple(
            Move(
                move.operator,
                move.task,
                before.tasks[move.operator][move.task],
                move.slot,
                sizes[move.operator][move.task],
                loads.get(move.operator, {}).get(move.task),
                interruptions[move.operator],
            )
            for move in moved
        )
        migrations = crossings.reports(moves, sizes, over_at)
        run.chaining.join()
        return Placed(moves, tuple(interruptions.values()), migrations)

    def _await_seen(
        self, operators: set[str], at: float, new: set[Slot], give_up: GiveUp, crossings: Crossings
    ) -> None:
        """Wait until a batch of every operator ran where it is now to run, and was published if tasks of the operator
        moved; one that has nothing to do, or is paused, runs nowhere. A slot that this change brings into use may be
        lost and come back in time: nothing counts until it has."""
        run, seconds = self._run, self._run.settings.change_seconds
        deadline = time.monotonic() + seconds
        looked_at: dict[str, BatchTimes] = {}
        idle_since: dict[str, float] = {}
        seen: dict[str, Observed] = {}
        waiting = {name for name in operators if run.query(name).feeds}
        #: Since when no slot of the change is lost.
        whole_since = at
        while waiting:
            run.check()
            _stop_if(give_up)
            lost = self._lost(new)
            whole_since = run_time() if lost else whole_since
            for name in sorted(waiting) if not lost else ():
                newest = run.publications.newest(name)
                # Bundles that stand can be seen without a batch: a sink may take minutes to fill a file.
                stands = isinstance(run.query(name), StandingQuery) and run_time() > at + STAND_SECONDS
                if name not in seen and (stands or (newest is not None and newest != looked_at.get(name))):
                    if newest is not None:
                        looked_at[name] = newest
                    placed = self._seen(name, at)
                    if placed is not None and placed.agrees(name, run.arrangement.requested):
                        seen[name] = placed
                # Spark has finished a batch some moments before Penstock has published it.
                if name in seen and (
                    crossings.crossed(name, min(whole_since, seen[name].began))
                    or crossings.is_replay(name, seen[name].batch)
                ):
                    waiting.discard(name)
                if not rests(run.query(name)):
                    idle_since[name] = time.monotonic()
                elif time.monotonic() > idle_since.setdefault(name, time.monotonic()) + IDLE_SECONDS:
                    waiting.discard(name)
            if waiting and time.monotonic() > deadline:
                if lost:
                    names = ", ".join(str(slot) for slot in sorted(lost))
                    raise PenstockError(
                        "CLUSTER_FAILED",
                        f"the change needs {names}, which was lost and did not come back within {seconds:g} s.",
                        "See the cluster's logs for the cause.",
                    )
                raise PenstockError(
                    "NOT_OBSERVED",
                    f"no batch of {', '.join(sorted(waiting))} ran on the planned slots within {seconds:g} s.",
                    "The usual cause is a batch that takes longer than the setting change_seconds: raise it.",
                )
            time.sleep(POLL)

    def _seen(self, operator: str, at: float) -> Observed | None:
        """Where the newest batch of an operator ran, if that batch began after this time."""
        if self._run.host.streams.internals is None:
            newest = self._run.publications.newest(operator)
            return Observed(0, at, {}) if newest is not None and newest.started > at else None
        seen = self._run.placements.observed(operator)
        return seen if seen is not None and seen.began > at else None

    def _lost(self, slots: set[Slot]) -> set[Slot]:
        """Which of these slots cannot be used now; an error if they cannot come back."""
        lost = slots - self._run.host.slots.usable()
        for machine in self.cluster.machines if lost else ():
            if not lost.isdisjoint(machine.slots):
                self._run.host.provider.arrived(machine)
        return lost

    # What it cost

    def _state_bytes(self, operator: str) -> list[int]:
        return state_bytes(self._run.context.checkpoint(operator), len(self.planned.tasks[operator]))

    def _interruption(self, operator: str, at: float) -> Interruption:
        gaps = self._run.publications.gaps(operator)
        usual = [gap for published, gap in gaps if published <= at][-USUAL_GAPS:]
        around = [gap for published, gap in gaps if published > at]
        return Interruption(operator, max(around, default=0.0), statistics.median(usual) if usual else None)

    def _task_seconds(self, operator: str, batch: int | None = None) -> dict[int, list[float]]:
        """How long each task of a keyed operator took in one batch, or in its newest ones, by Spark's records: in the
        last stage of a batch, partition n is task n."""
        query, internals = self._run.query(operator).query, self._run.host.streams.internals
        found: dict[int, list[float]] = {}
        if query is not None and internals is not None:
            newest = islice(internals.recent(query), USUAL_BATCHES)
            for ran in newest if batch is None else (one for one in newest if one.batch == batch):
                last = max((task.stage for task in ran.tasks), default=0)
                for task in ran.tasks:
                    if task.stage == last:
                        found.setdefault(task.partition, []).append(task.seconds)
        return found


def _longer(usual: Mapping[int, list[float]], now: Mapping[int, list[float]]) -> dict[int, float]:
    """By how much each task took longer than usual. For one that was moved, that is what it took to have its state
    there: Spark's own figure for loading (rocksdbLoadLatencyMs) was seen not to count the first load of a new store."""
    return {
        task: max(seconds[0] - statistics.median(usual[task]), 0.0) for task, seconds in now.items() if task in usual
    }


def _stop_if(give_up: Callable[[], str]) -> None:
    if why := give_up():
        raise PenstockError("CANCELLED", f"{why}.", "The topology runs again as it did before.")
