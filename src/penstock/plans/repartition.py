"""Plans that cut the state of a keyed operator into another number of tasks: their rules, and how they are carried out.

A keyed operator with as many tasks as instances can get no more instances: its state must be cut into more tasks first,
and the operator stands still meanwhile. Such a plan has no other action, and it is not rolled back: the state is cut,
or it is left as it was.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.cluster.model import Placement
from penstock.errors import PenstockError
from penstock.plans.enacting import Enactor, Engine, Interruption, Outcome, Placed, PlanStep, Status
from penstock.plans.plan import Plan, SetTasks, Target
from penstock.topology.definition import Keyed, TopologyDefinition


@dataclass(frozen=True)
class Repartition:
    """How a repartition went: tasks before and after, seconds for rewriting the state, and seconds in which the
    operator stood still."""

    operator: str
    tasks_before: int
    tasks_after: int
    repartition_seconds: float
    stopped_seconds: float


def with_tasks(definition: TopologyDefinition, tasks: Mapping[str, int]) -> TopologyDefinition:
    """The topology with these numbers of tasks instead of the declared ones."""
    operators = tuple(
        dataclasses.replace(one, tasks=tasks[one.name]) if isinstance(one, Keyed) and one.name in tasks else one
        for one in definition.operators
    )
    return dataclasses.replace(definition, operators=operators)


def check_repartition(definition: TopologyDefinition, operator: str, tasks: int, instances: int) -> Keyed:
    """The operator. A number of tasks into which its state cannot be cut is refused: REPARTITION_FAILED."""
    known = {one.name: one for one in definition.operators}
    found = known.get(operator)
    if not isinstance(found, Keyed):
        keyed = ", ".join(one.name for one in definition.operators if isinstance(one, Keyed)) or "none"
        raise repartition_failed(
            f'"{operator}" is no keyed operator of this topology.', f"Its keyed operators are: {keyed}."
        )
    if tasks < instances:
        raise repartition_failed(
            f'"{operator}" has {instances} instances, too many for {tasks} tasks.',
            f"First: penstock set-instances {operator} {tasks}",
        )
    if tasks == found.tasks:
        raise repartition_failed(f'"{operator}" has {tasks} tasks already.', "Nothing was changed.")
    return found


def repartition_failed(message: str, hint: str) -> PenstockError:
    return PenstockError("REPARTITION_FAILED", message, hint)


class CuttingEngine(Engine, Protocol):
    """An engine that can also cut state anew."""

    def dealt_anew(self, operator: str, tasks: int) -> Placement:
        """The placement with so many tasks of an operator on the slots where its instances are."""

    def cut_anew(self, operator: str, tasks: int) -> Repartition:
        """Cut the state of a keyed operator into so many tasks; its instances stay on their slots."""


class CuttingEnactor(Enactor):
    """Carries out all plans: those that change placements and machines, and those that cut state anew."""

    def __init__(self, engine: CuttingEngine, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(engine, clock)
        self._cutting = engine

    def leads_to(self, plan: Plan) -> Target:
        match plan.actions:
            case (SetTasks(operator, tasks),):
                engine, placement = self._cutting, self._cutting.planned
                if self._tasks(operator) != tasks:
                    check_repartition(engine.definition, operator, tasks, placement.total(operator))
                    placement = engine.dealt_anew(operator, tasks)
                return Target(placement, engine.cluster)
        return super().leads_to(plan)

    def carry_out(self, plan: Plan) -> Outcome:
        match plan.actions:
            case (SetTasks(operator, tasks),):
                return self._cut_anew(plan, operator, tasks)
        return super().carry_out(plan)

    def repartition(self, operator: str, tasks: int) -> Repartition:
        """Cut the state of a keyed operator into another number of tasks. The operator stands still meanwhile, and its
        instances stay on their slots."""
        with self.exclusively(f'repartition "{operator}" into {tasks} tasks'):
            return self._cutting.cut_anew(operator, tasks)

    def _cut_anew(self, plan: Plan, operator: str, tasks: int) -> Outcome:
        if self._tasks(operator) == tasks:
            return Outcome(plan, Status.NOTHING, f"{operator} has {tasks} tasks already")
        began = self._clock()
        done = self.repartition(operator, tasks)
        tasks_now = f"{operator} has {tasks} tasks instead of {done.tasks_before}"
        reason = f"{tasks_now}; it stood still for {done.stopped_seconds:.1f} s"
        steps = (PlanStep(f"cut the state of {operator} into {tasks} tasks", done.repartition_seconds),)
        placed = Placed(interruptions=(Interruption(operator, done.stopped_seconds, None),))
        return Outcome(plan, Status.DONE, reason, steps, placed, self._clock() - began)

    def _tasks(self, operator: str) -> int | None:
        found = self._cutting.definition.operator(operator)
        return found.tasks if isinstance(found, Keyed) else None
