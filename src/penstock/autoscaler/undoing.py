"""A decision that turned out to be harmful is undone: everything goes back to where it was before."""

from __future__ import annotations

from penstock.autoscaler.policy import Fate, View, why_not
from penstock.autoscaler.proposals import Nothing, Prediction, Proposal
from penstock.autoscaler.records import Verdict
from penstock.autoscaler.steps import step_of, way_back
from penstock.plans.plan import Plan


def undoing(view: View, strategy: str) -> Proposal | None:
    """The proposal that undoes the last decision that was carried out, if that was harmful."""
    done = [one for one in view.history if one.fate is Fate.DONE]
    if not done or done[-1].proposal.undo or done[-1].record is None or done[-1].proposal.before is None:
        return None
    if done[-1].dropped:  # what it did is not there any more
        return None
    last, record = done[-1], done[-1].record
    if record.verdict is not Verdict.HARMFUL:
        return None
    step = step_of(last)
    actions = way_back(view, step)
    if isinstance(actions, Nothing) or not actions:
        return None
    reason = f"operation {step.operation} was harmful and is undone: {record.why}"
    plan = Plan(actions, reason)
    if why_not(plan, view) is not None:
        return None
    before = record.before
    predictions = [Prediction("machines", float(before.machines))]
    if before.balance.throughput is not None:
        predictions.append(Prediction("throughput", before.balance.throughput))
    predictions += [Prediction("utilisation", share, name) for name, share in before.utilisation.items()]
    return Proposal(
        plan,
        (reason,),
        tuple(predictions),
        strategy=strategy,
        before=view.snapshot.placement,
        reverts=(step.operation,),
        undo=True,
    )
