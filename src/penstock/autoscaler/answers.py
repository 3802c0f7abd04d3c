"""From what a strategy answers to what a policy answers: a proposal with its plan, its reasons and its predictions."""

from __future__ import annotations

from penstock.autoscaler.expectation import Expectation, Expected
from penstock.autoscaler.policy import View
from penstock.autoscaler.proposals import Answer, Nothing, Prediction, Proposal
from penstock.cluster.model import Placement
from penstock.plans.plan import AddMachine, Plan, RemoveMachine, diff
from penstock.strategies.decision import Decision, DoesNotFit, StrategyAnswer, answer_as_json
from penstock.strategies.load import Load


def answer_of(
    found: StrategyAnswer,
    view: View,
    wanted: str,
    machines: int,
    *,
    note: str = "",
    reverts: tuple[int, ...] = (),
) -> Answer:
    """`wanted` says why anything is to change; `machines` is how many there are without those that are added."""
    because = f"{found.strategy}: {found.reason}"
    if isinstance(found, DoesNotFit):
        hint = "Ask for more machines, or raise the setting slot_instances."
        return Nothing(f"{because} ({found.missing} too many).", "SLOT_FULL", hint, note)
    if not isinstance(found, Decision):
        return Nothing(because, note=note)
    actions = (
        *(AddMachine(machine) for machine in found.added),
        *diff(view.snapshot.placement, found.placement),
        *(RemoveMachine(name) for name in found.removed),
    )
    after = machines + len(found.added) - len(found.removed)
    predictions: tuple[Prediction, ...] = (Prediction("machines", float(after)),)
    if (expected := expected_of(view, found.placement)) is not None:
        predictions = expected.predictions(after)
    elif found.projected is not None:
        predictions = (*predictions, Prediction("throughput", found.projected.throughput))
    return Proposal(
        Plan(actions, because),
        tuple(reason for reason in (wanted, because) if reason),
        predictions,
        decision=answer_as_json(found),
        note=note,
        reverts=reverts,
        memory=found.memory,
    )


def expected_of(view: View, placement: Placement) -> Expected | None:
    """What is to be expected of a placement; None if capacities are not known."""
    if not isinstance(view.load, Load) or any(one.capacity is None for one in view.load.operators):
        return None
    return Expectation(view.snapshot, view.load, view.settings.chaining == "on").of(placement)


def last_machine(machines: int, names: tuple[str, ...]) -> Nothing:
    reason = f"{machines} of the machines ({', '.join(names)}) cannot be removed: no machine would be left."
    return Nothing(reason, "LAST_MACHINE", "Ask to remove fewer machines.")
