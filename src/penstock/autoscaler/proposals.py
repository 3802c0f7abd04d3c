"""What a policy answers: that nothing is to change, or a plan with its reasons and what is expected of it. Values only:
that something does not fit is an answer too, and becomes an error only where a person is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.cluster.model import Placement
from penstock.errors import PenstockError
from penstock.plans.plan import AddMachine, MoveTask, Plan, RemoveMachine, SetInstances, SetTasks


@dataclass(frozen=True)
class Nothing:
    """Nothing is to change, and why. Where that is because something cannot be done, `error` is the name of the error
    that a person who asked for it is told, with what to do instead."""

    reason: str
    error: str = ""
    hint: str = ""
    #: What the person who asked should know about it.
    note: str = ""

    @staticmethod
    def of(refusal: PenstockError) -> Nothing:
        return Nothing(refusal.message, refusal.name, refusal.hint)

    def as_error(self) -> PenstockError:
        """For where a person is told; only of one that has an error."""
        return PenstockError(self.error, self.reason, self.hint)


@dataclass(frozen=True)
class Prediction:
    """What is expected after a plan was carried out, so that it can be compared with what is measured then."""

    #: A name of monitor/metric.py, or "throughput" (rows a second at all sinks, weighted) or "machines".
    metric: str
    value: float
    #: An operator; empty for the topology.
    subject: str = ""


@dataclass(frozen=True)
class Proposal:
    """A plan and why it is that one. The plan may change machines, instances and tasks."""

    plan: Plan
    #: The first one is told first: what is lacking. Others say why it is this plan.
    reasons: tuple[str, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    #: The name of the policy that decided; empty where a person said what is to be done.
    strategy: str = ""
    #: The policy's steps with their figures, plain enough for JSON.
    decision: Mapping[str, Any] = field(default_factory=dict)
    #: What the person who asked should know about it.
    note: str = ""
    #: The placement that it was decided on; None if it leads to the same from everywhere.
    before: Placement | None = None


Answer = Nothing | Proposal


def machines_more(plan: Plan) -> int:
    return sum(isinstance(action, AddMachine) for action in plan.actions)


def machines_fewer(plan: Plan) -> int:
    return sum(isinstance(action, RemoveMachine) for action in plan.actions)


def action_of(plan: Plan) -> str:
    """What an operation is called that carries the plan out: as if a person had asked for it."""
    kinds = {type(action) for action in plan.actions}
    by_kind = ((AddMachine, "scale-out"), (RemoveMachine, "scale-in"), (SetTasks, "repartition"))
    found = next((name for kind, name in by_kind if kind in kinds), "")
    return found or ("set-instances" if SetInstances in kinds else "move")


def in_words(plan: Plan) -> str:
    """What a plan changes, in a few words."""
    parts = [_counted(machines_more(plan), "machine", "more"), _counted(machines_fewer(plan), "machine", "fewer")]
    parts += [str(action) for action in plan.actions if isinstance(action, SetTasks)]
    if not any(parts):
        resized = [action.operator for action in plan.actions if isinstance(action, SetInstances)]
        parts += [f"other instances of {', '.join(resized)}"] if resized else []
        moves = sum(isinstance(action, MoveTask) for action in plan.actions)
        parts += [_counted(moves, "task", "elsewhere")] if not resized else []
    return " and ".join(part for part in parts if part) or "nothing to change"


def _counted(count: int, what: str, how: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'} {how}" if count else ""
