"""Guards may veto a proposal. A guard is a function that answers with its reason against the proposal, or with an empty
text. A controller has a list of guards, which can be read and extended: `controller.guards.append(not_at_night)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.autoscaler.goals import Goal
from penstock.autoscaler.policy import Fate, View
from penstock.autoscaler.proposals import Proposal, machines_fewer, machines_more
from penstock.settings import Settings

Guard = Callable[[Proposal, View], str]


def not_while_paused(_: Proposal, view: View) -> str:
    return "the sources are paused" if view.paused else ""


def one_at_a_time(_: Proposal, view: View) -> str:
    return f"the operation {view.under_way} is under way" if view.under_way else ""


@dataclass(frozen=True)
class Cooldown:
    """After an operation, so many seconds pass before the next one, so that the effect of the first can be measured."""

    seconds: float

    def __call__(self, _: Proposal, view: View) -> str:
        left = 0.0 if view.last_ended is None else view.last_ended + self.seconds - view.now
        if left <= 0:
            return ""
        return f"the last operation ended a moment ago; the next one may begin in {left:.0f} s"


@dataclass(frozen=True)
class Quota:
    """The topology never gets more machines than the goal allows; None is no bound."""

    machines_max: int | None

    def __call__(self, proposal: Proposal, view: View) -> str:
        more = machines_more(proposal.plan) - machines_fewer(proposal.plan)
        if self.machines_max is None or more <= 0 or view.machines + more <= self.machines_max:
            return ""
        return f"the topology has {view.machines} machines, and the goal allows {self.machines_max}"


@dataclass(frozen=True)
class RefusedLately:
    """After a proposal was refused, no other one is asked for within so many seconds: it would be refused again."""

    seconds: float

    def __call__(self, _: Proposal, view: View) -> str:
        refused = [one.at for one in view.history if one.fate is Fate.REFUSED]
        return "the last proposal was refused a moment ago" if refused and view.now < refused[-1] + self.seconds else ""


@dataclass(frozen=True)
class Regret:
    """If the topology needed another machine right after one was removed, no machine is removed for so many seconds.
    Each time this happens again, the time doubles."""

    seconds: float

    def __call__(self, proposal: Proposal, view: View) -> str:
        if not machines_fewer(proposal.plan):
            return ""
        gave_back, regretted_at, seconds = False, None, self.seconds
        for one in view.history:
            if one.fate is Fate.REFUSED:
                continue
            if gave_back and machines_more(one.proposal.plan):
                seconds *= 2 if regretted_at is not None else 1
                regretted_at = one.at
            gave_back = machines_fewer(one.proposal.plan) > 0
        regretted = regretted_at is not None and view.now < regretted_at + seconds
        return "the topology needed another machine right after one was removed the last time" if regretted else ""


def guards_for(goal: Goal, settings: Settings) -> list[Guard]:
    """The guards of a controller, in the order in which it asks them."""
    seconds = settings.cooldown_seconds
    return [
        not_while_paused,
        one_at_a_time,
        Cooldown(seconds),
        Quota(goal.machines_max),
        RefusedLately(seconds),
        Regret(seconds),
    ]


def first_veto(guards: Sequence[Guard], proposal: Proposal, view: View) -> str:
    return next((reason for guard in guards if (reason := guard(proposal, view))), "")
