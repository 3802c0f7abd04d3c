"""What a strategy answers: a decision, or that there is nothing to do, or that the instances do not fit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from penstock.cluster.model import Machine, Placement, Slot
from penstock.strategies.load import Load
from penstock.strategies.memory import Memory


@dataclass(frozen=True)
class DecisionStep:
    """One step of a decision: the slot that an instance goes to, and why. An instance without an origin is new; an
    instance that goes to no slot is taken away."""

    operator: str
    to: Slot | None
    reason: str
    origin: Slot | None = None
    #: The figures that decided it: the operator's rates, ratio and ETP, or the machines' ETPSum.
    figures: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        if self.to is None:
            way = f"taken away from {self.origin}"
        else:
            way = f"{self.origin} -> {self.to}" if self.origin else f"new on {self.to}"
        return f"{self.operator}: {way}: {self.reason}"


@dataclass(frozen=True)
class Decision:
    """The placement that the strategy wants, the machines that it adds or removes, and the steps that led to it."""

    strategy: str
    placement: Placement
    steps: tuple[DecisionStep, ...]
    reason: str
    added: tuple[Machine, ...] = ()
    removed: tuple[str, ...] = ()
    #: The rates that the strategy expects; None where it makes no projection.
    projected: Load | None = None
    #: What the strategy wants to be handed at its next decision, once this one was carried out; None if it has no
    #: memory.
    memory: Memory | None = None


@dataclass(frozen=True)
class NothingToDo:
    strategy: str
    reason: str


@dataclass(frozen=True)
class DoesNotFit:
    strategy: str
    reason: str
    #: How many instances have no place.
    missing: int


StrategyAnswer = Decision | NothingToDo | DoesNotFit


def answer_as_json(answer: StrategyAnswer) -> dict[str, Any]:
    """The answer as JSON: the decision step by step, or why there is none."""
    if not isinstance(answer, Decision):
        missing = {"missing": answer.missing} if isinstance(answer, DoesNotFit) else {}
        kind = "does_not_fit" if isinstance(answer, DoesNotFit) else "nothing_to_do"
        return {"outcome": kind, "strategy": answer.strategy, "reason": answer.reason, **missing}
    return {
        "outcome": "decision",
        "strategy": answer.strategy,
        "reason": answer.reason,
        "added": [machine.name for machine in answer.added],
        "removed": list(answer.removed),
        "steps": [_step_as_json(number, step) for number, step in enumerate(answer.steps, start=1)],
        "instances": {
            operator: {slot.name: count for slot, count in sorted(slots.items())}
            for operator, slots in answer.placement.instances.items()
        },
        "tasks": {operator: [slot.name for slot in slots] for operator, slots in answer.placement.tasks.items()},
        "projected_throughput": answer.projected.throughput if answer.projected else None,
    }


def _step_as_json(number: int, step: DecisionStep) -> dict[str, Any]:
    return {
        "step": number,
        "operator": step.operator,
        "to": step.to.name if step.to else None,
        "from": step.origin.name if step.origin else None,
        "reason": step.reason,
        **{name: finite(figure) for name, figure in step.figures},
    }


def finite(value: float) -> float | None:
    """JSON has no infinity: an operator that executes nothing has no ratio."""
    return value if math.isfinite(value) else None
