"""Plans are carried out step by step: machines are added, then the placement changes, then machines are removed.

A plan is checked as a whole before anything changes. If a step cannot be done, the plan is rolled back as a whole, to
the placement that ran before. The outcome tells what happened.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.errors import PenstockError
from penstock.logs import LOGGER
from penstock.plans.migration import Migration
from penstock.plans.migration_log import MigrationLog
from penstock.plans.plan import Action, AddMachine, MoveTask, Plan, RemoveMachine, SetInstances, Target, diff, target
from penstock.topology.definition import TopologyDefinition

#: Called again and again while a step waits for something: returns a reason to give up, or an empty text.
GiveUp = Callable[[], str]


@dataclass(frozen=True)
class Interruption:
    """How a change interrupted an operator: the longest time between two published batches around the change, and the
    median of the times before it."""

    operator: str
    gap_seconds: float
    usual_gap_seconds: float | None


@dataclass(frozen=True)
class Move:
    """A task that was moved: its state in bytes, and how long its operator stood still. Tasks of an operator that move
    together share one interruption; `load_seconds` is by how much the task took longer than usual in its first
    batch."""

    operator: str
    task: int
    origin: Slot
    slot: Slot
    state_bytes: int
    load_seconds: float | None
    interruption: Interruption


@dataclass(frozen=True)
class Placed:
    """What it took to reach a placement: the tasks that moved, the interruptions, and a migration for every operator
    whose tasks moved."""

    moves: tuple[Move, ...] = ()
    interruptions: tuple[Interruption, ...] = ()
    migrations: tuple[Migration, ...] = ()


class Engine(Protocol):
    """What plans are carried out on: a running topology, or its recording double in penstock.testing."""

    @property
    def definition(self) -> TopologyDefinition: ...
    @property
    def cluster(self) -> Cluster: ...
    @property
    def planned(self) -> Placement: ...
    @property
    def slot_instances(self) -> int: ...

    def slots_of(self, machine: Machine) -> Mapping[Slot, Slot] | None:
        """The slots of a machine that was added: as planned, and as they came; None if it was not added."""

    def add_machine(self, machine: Machine, give_up: GiveUp) -> Mapping[Slot, Slot]:
        """Start a machine, wait for its executors and warm them. If that fails, nothing is left behind."""

    def remove_machine(self, name: str) -> None:
        """Decommission a machine on which nothing is placed, and stop it. A machine that was added may be named as in
        its plan; only its own slots are removed then."""

    def place(self, placement: Placement, give_up: GiveUp) -> Placed:
        """Ask for a placement and wait until it is observed."""

    def restore(self, placement: Placement) -> None:
        """Ask for a placement that ran before, and wait for nothing."""

    def note(self, change: str) -> None:
        """Write down what is being changed, so that the next start knows it if this process dies. Empty: the change is
        over."""


class Status(StrEnum):
    DONE = "done"
    #: The topology was already as the plan wants it.
    NOTHING = "nothing to do"
    ROLLED_BACK = "rolled back"


@dataclass(frozen=True)
class PlanStep:
    """One step of carrying out a plan, and how many seconds it took."""

    what: str
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """What became of a plan, and how long each step took."""

    plan: Plan
    status: Status
    reason: str = ""
    steps: tuple[PlanStep, ...] = ()
    placed: Placed = field(default_factory=Placed)
    seconds: float = 0.0
    #: The name of the error, if the plan was rolled back.
    error: str = ""


class Enactor:
    """Carries plans out on an engine, one at a time."""

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._busy = threading.Lock()
        self._cancelled = threading.Event()
        #: Machines that a plan has removed: to remove one of them again changes nothing.
        self._removed: set[str] = set()
        #: The changes that moved state lately.
        self.migrations = MigrationLog()
        #: The plan that is being carried out, and its present step.
        self.current: Plan | None = None
        self.step = ""

    @property
    def planned(self) -> Placement:
        """The planned placement."""
        return self._engine.planned

    def leads_to(self, plan: Plan) -> Target:
        """Where the plan leads from here. A plan that could not run is refused with a named error. Nothing changes."""
        engine = self._engine
        return target(self._actions(plan), engine.planned, engine.cluster, engine.definition, engine.slot_instances)

    def carry_out(self, plan: Plan) -> Outcome:
        """Carry a plan out; the outcome says what became of it. A plan that could not run is refused with a named
        error, and nothing has changed then."""
        with self.exclusively("check the plan"):
            self.current = plan
            return self._carry_out(plan)

    @contextmanager
    def exclusively(self, step: str) -> Iterator[None]:
        """Let no other change begin until the block is left. If one is under way, this is refused: BUSY."""
        if not self._busy.acquire(blocking=False):
            now = self.step or "the change has just begun"
            raise PenstockError("BUSY", f"another change is under way: {now}.", "Wait for its end, or cancel it.")
        try:
            self._cancelled.clear()
            self.step = step
            yield
        finally:
            self.current, self.step = None, ""
            self._busy.release()

    def cancel(self) -> bool:
        """Have the change that is under way rolled back; False if there is none."""
        if self.current is None:
            return False
        self._cancelled.set()
        return True

    def _carry_out(self, plan: Plan) -> Outcome:
        engine = self._engine
        leads_to = self.leads_to(plan)  # refuses a plan that could not run
        before = engine.planned
        if leads_to.placement == before and set(leads_to.cluster.names) == set(engine.cluster.names):
            return Outcome(plan, Status.NOTHING, "the topology is already as the plan wants it")
        began, steps = self._clock(), _Steps(self._clock, self)
        engine.note("; ".join(str(action) for action in plan.actions))
        added: list[str] = []
        try:
            for machine in leads_to.cluster.machines:
                if machine.name not in engine.cluster.names and engine.slots_of(machine) is None:
                    with steps.of(f"add machine {machine.name}"):
                        engine.add_machine(machine, self._give_up)
                        added.append(machine.name)
            # Instances that were planned for a machine by its expected slots go to the slots that really came.
            placement = self.leads_to(plan).placement
            what = _summary(diff(before, placement))
            with steps.of(what):
                placed = engine.place(placement, self._give_up)
            # State that has moved has moved, also if a machine then cannot be removed and the change is rolled back.
            # Only a change of which the engine could not say what it took is not entered.
            self.migrations.enter(what, plan.reason, placed.migrations)
        except Exception as problem:
            return self._roll_back(plan, before, added, _named(problem), steps)
        try:
            for name in sorted(set(engine.cluster.names) - self._kept(plan)):
                with steps.of(f"remove machine {name}"):
                    engine.remove_machine(name)
                self._removed.add(name)
        except Exception as problem:
            return self._roll_back(plan, before, added, _named(problem), steps)
        why = "; ".join(one for one in (plan.reason, self._end_note()) if one)
        return Outcome(plan, Status.DONE, why, steps.done, placed, self._clock() - began)

    def _kept(self, plan: Plan) -> set[str]:
        removed = {action.name for action in plan.actions if isinstance(action, RemoveMachine)}
        return set(self._engine.cluster.names) - removed

    def _give_up(self) -> str:
        return "the operation was cancelled" if self._cancelled.is_set() else ""

    def _roll_back(
        self, plan: Plan, before: Placement, added: list[str], because: PenstockError, steps: _Steps
    ) -> Outcome:
        """Go back to the placement that ran before. A machine that this plan added is removed again. If a machine that
        was to be removed is gone already, its instances are placed on the machines that are left (see
        Arrangement.requested). Every step is tried, and the outcome names the steps that failed too."""
        engine, why = self._engine, [f"{because.name}: {because.message}"]
        with steps.of("roll back"):
            try:
                engine.restore(before)
            except Exception as problem:
                why.append(f"the placement that ran before could not be restored: {_named(problem).message}")
            for name in added:
                try:
                    engine.remove_machine(name)
                except Exception as problem:
                    why.append(f"machine {name} could not be removed again: {_named(problem).message}")
        why += filter(None, [self._end_note()])
        return Outcome(plan, Status.ROLLED_BACK, "; ".join(why), steps.done, seconds=steps.seconds, error=because.name)

    def _end_note(self) -> str:
        """Clear the note of the change, which is over. If that fails, the reason is returned and the outcome stays: the
        next change or the next start clears the note."""
        try:
            self._engine.note("")
        except Exception as problem:
            return f"the note of this change could not be cleared: {_named(problem).message}"
        return ""

    def _actions(self, plan: Plan) -> tuple[Action, ...]:
        """The actions of a plan with the real slots of machines that were added already, and without machines that were
        removed already."""
        engine = self._engine
        slots: dict[Slot, Slot] = {}
        for action in plan.actions:
            if isinstance(action, AddMachine):
                slots |= engine.slots_of(action.machine) or {}
        return tuple(_translated(action, slots) for action in plan.actions if not self._is_done(action, slots))

    def _is_done(self, action: Action, slots: Mapping[Slot, Slot]) -> bool:
        if isinstance(action, RemoveMachine):
            return action.name in self._removed and action.name not in self._engine.cluster.names
        return isinstance(action, AddMachine) and set(action.machine.slots) <= slots.keys()


class _Steps:
    """The steps that were done so far, and how long each took."""

    def __init__(self, clock: Callable[[], float], enactor: Enactor) -> None:
        self._clock = clock
        self._enactor = enactor
        self._done: list[PlanStep] = []
        self._what, self._began = "", 0.0

    def of(self, what: str) -> _Steps:
        self._what = what
        return self

    def __enter__(self) -> None:
        self._enactor.step, self._began = self._what, self._clock()

    def __exit__(self, *_: object) -> None:
        self._done.append(PlanStep(self._what, self._clock() - self._began))

    @property
    def done(self) -> tuple[PlanStep, ...]:
        return tuple(self._done)

    @property
    def seconds(self) -> float:
        return sum(step.seconds for step in self._done)


def _named(problem: Exception) -> PenstockError:
    """Any error in the middle of a change as a named one: the change is rolled back for all of them."""
    if isinstance(problem, PenstockError):
        return problem
    LOGGER.error("a step of a plan failed", exc_info=problem)
    return PenstockError(
        "INTERNAL", f"{type(problem).__name__}: {problem}.", "Try again; the topology runs again as it did before."
    )


def _translated(action: Action, slots: Mapping[Slot, Slot]) -> Action:
    if isinstance(action, SetInstances):
        placed: Counter[Slot] = Counter()
        for slot, count in action.slots.items():  # two planned slots may have come as one
            placed[slots.get(slot, slot)] += count
        return SetInstances(action.operator, dict(placed))
    if isinstance(action, MoveTask):
        return MoveTask(action.operator, action.task, slots.get(action.slot, action.slot))
    return action


def _summary(actions: Sequence[Action]) -> str:
    instances = sum(isinstance(action, SetInstances) for action in actions)
    moves = sum(isinstance(action, MoveTask) for action in actions)
    parts = [f"instances of {instances} operator{'s' if instances > 1 else ''}"] if instances else []
    parts += [f"{moves} task{'s' if moves > 1 else ''}"] if moves else []
    return f"place {' and '.join(parts)}" if parts else "keep the placement"
