"""What became of a decision: a pure function from its record and a later view to a verdict.

A decision is judged by what was really applied, after the throughput has had time to settle, and never on incomplete
figures: what is missing is not zero. If something else has changed meanwhile, the verdict is that there is none.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.autoscaler.goals import Goal
from penstock.autoscaler.policy import Fate, View
from penstock.autoscaler.proposals import Nothing
from penstock.autoscaler.records import Figures, Record, Verdict, another_load
from penstock.plans.plan import AddMachine, RemoveMachine, apply

#: Measured throughputs that differ by less than this share are the same.
NOISE = 0.1
#: A decision that brought less than this share of the throughput brought nothing.
EFFECT = 0.03
#: A throughput of at least this share of the expected one is as expected.
MET = 0.9


def judged(record: Record, fate: Fate, why: str, view: View, ended: float | None = None) -> Record:
    """The record with its verdict; as it was if it is too early for one. `ended` is when the operation was over, in run
    time; None if that is not known. A machine may take many minutes to come, and nothing is measured before."""
    if record.verdict is not Verdict.PENDING or not fate.over:
        return record
    if fate is not Fate.DONE:
        return replace(record, verdict=Verdict.NOT_APPLIED, why=f"{fate}: {why}")
    snapshot, settings = view.snapshot, view.settings
    over = record.at + settings.change_seconds
    over = over if ended is None else max(ended, over)
    late = view.now > over + 2 * settings.window_samples * settings.sample_seconds
    settled = snapshot.since >= record.at and snapshot.samples >= max(
        settings.window_least_samples, settings.window_samples // 2
    )
    if isinstance(view.load, Nothing) or not settled or view.paused:
        text = "too little was measured after it"
        return replace(record, verdict=Verdict.UNCLEAR, why=text) if late else record
    now = Figures.of(snapshot)
    if now.balance.behind and snapshot.samples < settings.window_samples and not late:
        return record  # what piled up during the change is still being worked off
    if other := _not_comparable(record, now):
        return replace(record, measured=now, verdict=Verdict.UNCLEAR, why=other)
    verdict, text = _verdict(record, now, view.goal)
    return replace(record, measured=now, verdict=verdict, why=text)


def _not_comparable(record: Record, now: Figures) -> str:
    before, plan = record.proposal.before, record.proposal.plan
    if before is not None:
        after = apply(before, plan.actions)
        planned = {name: after.total(name) for name in after.instances}
        if planned != dict(now.instances):
            names = ", ".join(name for name, count in planned.items() if now.instances.get(name) != count)
            return f"{names} has other instances now than this decision gave it"
    came = sum(isinstance(action, AddMachine) for action in plan.actions)
    went = sum(isinstance(action, RemoveMachine) for action in plan.actions)
    if now.machines != record.before.machines + came - went:
        return f"there are {now.machines} machines, other than this decision wanted"
    if changed := another_load(record.before, now):
        return f"the load has changed meanwhile: {changed}"
    return ""


def _verdict(record: Record, now: Figures, goal: Goal | None) -> tuple[Verdict, str]:
    before, after = record.before.balance.throughput, now.balance.throughput
    if before is None or after is None:
        return Verdict.UNCLEAR, "it is not known what arrived at the sinks"
    text = f"{before:,.0f} rows/s before, {after:,.0f} after"
    required = goal.throughput if goal is not None and goal.throughput is not None else before
    lacking = now.balance.unmet or now.balance.behind
    if lacking and after < min(before, required) * (1 - NOISE):
        if record.before.balance.catches_up:
            return Verdict.UNCLEAR, f"{text}; a backlog was being worked off before"
        if not now.balance.grows:
            # Results of windows and timers come long after their rows: sinks still tell of an earlier load.
            return Verdict.UNCLEAR, f"{text}, but rows are worked off as fast as they come"
        return Verdict.HARMFUL, f"{text}, and rows wait"
    return _as_promised(record.expected("throughput"), before, after, lacking, text)


def _as_promised(expected: float | None, before: float, after: float, lacking: bool, text: str) -> tuple[Verdict, str]:
    """`lacking` is whether rows still wait: if none do, more could not be brought."""
    if expected is None:
        return Verdict.AS_EXPECTED, f"{text}; no throughput was predicted"
    text = f"{text}, {expected:,.0f} expected"
    if lacking and expected >= before * (1 + EFFECT) and after < before * (1 + EFFECT):
        return Verdict.NONE, text
    return (Verdict.LESS, text) if lacking and after < MET * expected else (Verdict.AS_EXPECTED, text)
