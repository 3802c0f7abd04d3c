"""Carrying a plan out, step by step: machines come first, then the placement changes, then machines go.

It is checked as a whole before anything changes, and rolled back as a whole, to the placement that ran before, when a
step cannot be done. Whatever happens is told in the outcome.
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
from penstock.plans.plan import Action, AddMachine, MoveTask, Plan, RemoveMachine, SetInstances, Target, diff, target
from penstock.topology.definition import TopologyDefinition

#: Asked again and again while something is waited for: a reason to give up, or nothing.
GiveUp = Callable[[], str]


@dataclass(frozen=True)
class Interruption:
    """What a change did to the output of an operator: the longest time between two published batches around it, and
    the median of that before."""

    operator: str
    gap_seconds: float
    usual_gap_seconds: float | None


@dataclass(frozen=True)
class Move:
    """A task that was moved: its state in bytes, and how long its operator stood still. Tasks of an operator that move
    at once share one standstill; `load_seconds` is by how much this task took longer than usual in its first batch."""

    operator: str
    task: int
    origin: Slot
    slot: Slot
    state_bytes: int
    load_seconds: float | None
    interruption: Interruption


@dataclass(frozen=True)
class Placed:
    """What came of asking for a placement."""

    moves: tuple[Move, ...] = ()
    interruptions: tuple[Interruption, ...] = ()


class Engine(Protocol):
    """What the plan is carried out on: a running topology, or its recording double in penstock.testing."""

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
        """Start it, wait for its executors and warm them. Leaves nothing behind if that fails."""

    def remove_machine(self, name: str) -> None:
        """Decommission a machine on which nothing is placed, and stop it. One that was added may go by the name under
        which it was planned, and nothing else goes then."""

    def place(self, placement: Placement, give_up: GiveUp) -> Placed:
        """Ask for a placement and wait until it is observed."""

    def restore(self, placement: Placement) -> None:
        """Ask for a placement that ran before, and wait for nothing."""

    def note(self, change: str) -> None:
        """Remember what is being changed, over the death of this process; empty when it is over."""


class Status(StrEnum):
    DONE = "done"
    #: The plan leads to what there is already.
    NOTHING = "nothing to do"
    ROLLED_BACK = "rolled back"


@dataclass(frozen=True)
class PlanStep:
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
    #: Of one that was rolled back: the name of the error.
    error: str = ""


class Enactor:
    """Carries plans out on an engine, one at a time."""

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._busy = threading.Lock()
        self._cancelled = threading.Event()
        #: Machines that were removed by a plan: to remove one of them again is nothing to do.
        self._removed: set[str] = set()
        #: The plan that is being carried out, and its present step.
        self.current: Plan | None = None
        self.step = ""

    @property
    def planned(self) -> Placement:
        """What was decided, on the slots there are."""
        return self._engine.planned

    def leads_to(self, plan: Plan) -> Target:
        """Where the plan leads from here; refused with a named error if that could not run. Nothing changes."""
        engine = self._engine
        return target(self._actions(plan), engine.planned, engine.cluster, engine.definition, engine.slot_instances)

    def carry_out(self, plan: Plan) -> Outcome:
        """Refused plans raise, with nothing changed. Otherwise the outcome says what became of it."""
        with self.exclusively("check the plan"):
            self.current = plan
            return self._carry_out(plan)

    @contextmanager
    def exclusively(self, step: str) -> Iterator[None]:
        """While this goes on, nothing else may be changed."""
        if not self._busy.acquire(blocking=False):
            now = self.step or "it has just begun"
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
        leads_to = self.leads_to(plan)  # refuses what cannot be
        before = engine.planned
        if leads_to.placement == before and set(leads_to.cluster.names) == set(engine.cluster.names):
            return Outcome(plan, Status.NOTHING, "everything is as the plan wants it")
        began, steps = self._clock(), _Steps(self._clock, self)
        engine.note("; ".join(str(action) for action in plan.actions))
        added: list[str] = []
        try:
            for machine in leads_to.cluster.machines:
                if machine.name not in engine.cluster.names and engine.slots_of(machine) is None:
                    with steps.of(f"add machine {machine.name}"):
                        engine.add_machine(machine, self._give_up)
                        added.append(machine.name)
            # What was planned for a machine to come is now for the one that came.
            placement = self.leads_to(plan).placement
            with steps.of(_summary(diff(before, placement))):
                placed = engine.place(placement, self._give_up)
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
        return "it was cancelled" if self._cancelled.is_set() else ""

    def _roll_back(
        self, plan: Plan, before: Placement, added: list[str], because: PenstockError, steps: _Steps
    ) -> Outcome:
        """Back to what ran before. A machine that this plan added goes again; where one was to be removed and is gone,
        what was there is placed on those that are left (see Arrangement.requested). Every step of it is tried: the
        outcome names those that failed too."""
        engine, why = self._engine, [f"{because.name}: {because.message}"]
        with steps.of("roll back"):
            try:
                engine.restore(before)
            except Exception as problem:
                why.append(f"the placement before could not be restored: {_named(problem).message}")
            for name in added:
                try:
                    engine.remove_machine(name)
                except Exception as problem:
                    why.append(f"{name} could not be removed again: {_named(problem).message}")
        why += filter(None, [self._end_note()])
        return Outcome(plan, Status.ROLLED_BACK, "; ".join(why), steps.done, seconds=steps.seconds, error=because.name)

    def _end_note(self) -> str:
        """Note that the change is over. That it cannot be noted is a reason of its own and changes no outcome: the next
        change clears the note, or the next start."""
        try:
            self._engine.note("")
        except Exception as problem:
            return f"the note of this change could not be cleared: {_named(problem).message}"
        return ""

    def _actions(self, plan: Plan) -> tuple[Action, ...]:
        """The plan's actions in terms of what there is: machines that were added by their real slots, and without
        those that were removed already."""
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
    """What was done so far, and how long it took."""

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
    """Whatever goes wrong in the middle of a change, the change is rolled back."""
    if isinstance(problem, PenstockError):
        return problem
    LOGGER.error("a step of a plan failed", exc_info=problem)
    return PenstockError(
        "INTERNAL", f"{type(problem).__name__}: {problem}.", "Try again; the topology runs again as it did before."
    )


def _translated(action: Action, slots: Mapping[Slot, Slot]) -> Action:
    if isinstance(action, SetInstances):
        placed: Counter[Slot] = Counter()
        for slot, count in action.slots.items():  # two that were planned apart may have come as one
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
    return f"place {' and '.join(parts)}" if parts else "place nothing anew"
