"""What a policy answers: `Nothing`, or a `Proposal` with a plan, its reasons and its predictions. These are values:
that a plan does not fit is an answer too, and becomes an error only for a person who asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.cluster.model import Placement
from penstock.errors import PenstockError, Refusal
from penstock.plans.plan import AddMachine, MoveTask, Plan, RemoveMachine, SetInstances, SetTasks
from penstock.strategies.memory import Memory


@dataclass(frozen=True)
class Nothing:
    """Nothing is to change, and why. If the reason is that something cannot be done, `error` is the name of the error
    for a person who asked for it, and `hint` says what to do instead."""

    reason: str
    error: str = ""
    hint: str = ""
    #: What a person who asked should know about the answer.
    note: str = ""

    @staticmethod
    def of(refusal: PenstockError | Refusal) -> Nothing:
        return Nothing(refusal.message, refusal.name, refusal.hint)

    def as_error(self) -> PenstockError:
        """The error for a person who asked; only if `error` has a name."""
        return PenstockError(self.error, self.reason, self.hint)


@dataclass(frozen=True)
class Prediction:
    """What a proposal expects of a metric after its plan was carried out, to be compared with the measurement then."""

    #: A name of monitor/metric.py, or "throughput" (rows a second at all sinks, weighted) or "machines".
    metric: str
    value: float
    #: An operator; empty for the topology.
    subject: str = ""


@dataclass(frozen=True)
class Proposal:
    """A plan with the reasons for it. The plan may change machines, instances and tasks."""

    plan: Plan
    #: The first reason says why anything is to change; the others say why it is this plan.
    reasons: tuple[str, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    #: The name of the policy that decided; empty if a person asked for this very plan.
    strategy: str = ""
    #: The policy's steps with their figures, plain enough for JSON.
    decision: Mapping[str, Any] = field(default_factory=dict)
    #: What a person who asked should know about the answer.
    note: str = ""
    #: The placement that the policy decided on; None if the plan is right for every placement.
    before: Placement | None = None
    #: The operations of earlier decisions that the plan takes back.
    reverts: tuple[int, ...] = ()
    #: The operation of the scale-out whose new instances the plan gives out again; None if it corrects none.
    corrects: int | None = None
    #: What the strategy wants to be handed at its next decision, once this one was carried out; None if nothing.
    memory: Memory | None = field(default=None, repr=False)
    #: Whether the plan undoes a harmful decision. Guards that only keep changes apart let such a plan pass.
    undo: bool = False


Answer = Nothing | Proposal


def machines_more(plan: Plan) -> int:
    """How many machines the plan adds."""
    return sum(isinstance(action, AddMachine) for action in plan.actions)


def machines_fewer(plan: Plan) -> int:
    """How many machines the plan removes."""
    return sum(isinstance(action, RemoveMachine) for action in plan.actions)


def direction(proposal: Proposal) -> str:
    """Whether a proposal wants more or fewer machines or instances; "other" if as many of both."""
    machines = machines_more(proposal.plan) - machines_fewer(proposal.plan)
    change = machines or _more_instances(proposal)
    return "more" if change > 0 else "fewer" if change < 0 else "other"


def _more_instances(proposal: Proposal) -> int:
    before = proposal.before
    resized = [action for action in proposal.plan.actions if isinstance(action, SetInstances)]
    if before is None:
        return 0
    return sum(sum(one.slots.values()) - before.total(one.operator) for one in resized)


def action_of(plan: Plan) -> str:
    """The name of the operation that carries the plan out: the command that a person would give."""
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
