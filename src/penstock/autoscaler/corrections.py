"""The second step of a scale-out, for a strategy that corrects itself: once what it brought was measured, its new
instances are given out again if that promises clearly more (docs/design/0025).

The decisions to correct are those of the policy itself: its last scale-out, and the corrections of that since. They
must have been measured under the load that there is now.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.autoscaler.answers import answer_of
from penstock.autoscaler.policy import Decided, Fate, View
from penstock.autoscaler.proposals import Proposal, machines_more
from penstock.autoscaler.records import Figures, another_load
from penstock.autoscaler.steps import step_of
from penstock.autoscaler.strategies import Gain
from penstock.strategies.gain.correction import Trial
from penstock.strategies.load import Load
from penstock.strategies.memory import Memory
from penstock.strategies.rules import Rules
from penstock.strategies.stela.scale_out import instances_each


def correction(view: View, load: Load, strategy: Gain, rules: Rules, memory: Memory, why: str) -> Proposal | None:
    """The proposal that corrects the last scale-out; None if there is none to correct, or nothing to gain."""
    tried = _to_correct(view)
    trials = _trials(tried, view)
    if not trials or not any(trials[-1].new.values()):
        return None
    answer = answer_of(strategy.correct(load, trials, rules, memory), view, why, view.machines)
    if not isinstance(answer, Proposal) or not answer.plan:
        return None
    return replace(answer, corrects=tried[0].operation)


def _to_correct(view: View) -> list[Decided]:
    """The last scale-out and its corrections, the oldest first; empty if something else was done since."""
    found: list[Decided] = []
    for one in reversed(view.history):
        if one.fate is not Fate.DONE:
            continue
        found.append(one)
        if one.proposal.corrects is None:
            break
    found.reverse()
    first = found[0].proposal if found and not any(one.dropped for one in found) else None
    if first is None or not machines_more(first.plan) or first.reverts or first.before is None:
        return []
    return found


def _trials(tried: list[Decided], view: View) -> list[Trial]:
    """What was measured of each; empty if one was not, or not under this load, or if other instances are there now."""
    trials, now = list[Trial](), Figures.of(view.snapshot)
    for one in tried:
        measured = one.record.measured if one.record is not None and one.record.verdict.judged else None
        if measured is None or measured.balance.throughput is None or another_load(measured, now):
            return []
        before = tried[0].proposal.before
        assert before is not None
        after = step_of(one).after
        if one is tried[-1]:
            if any(after.total(name) != count for name, count in now.instances.items()):
                return []
            after = view.snapshot.placement  # a machine may have come under another name than planned
        trials.append(Trial.of(before, after, measured.balance.throughput, _at_hand(tried[0])))
    return trials


def _at_hand(scale_out: Decided) -> int:
    """How many instances the scale-out could have added: as many a machine as there were on average."""
    before, record = scale_out.proposal.before, scale_out.record
    assert before is not None
    assert record is not None
    return instances_each(before, record.before.machines) * machines_more(scale_out.proposal.plan)
