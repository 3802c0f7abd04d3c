"""What may keep a proposal from being carried out. A guard is a function that answers with its reason, or with an empty
text. A controller has a list of them, which can be read and extended: `controller.guards.append(not_at_night)`."""

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
    return f"{view.under_way} is under way" if view.under_way else ""


@dataclass(frozen=True)
class Cooldown:
    """After an operation, its effect has to show before the next one."""

    seconds: float

    def __call__(self, _: Proposal, view: View) -> str:
        if view.last_ended is None or view.now >= view.last_ended + self.seconds:
            return ""
        return f"cooling down for another {view.last_ended + self.seconds - view.now:.0f} s"


@dataclass(frozen=True)
class Quota:
    """Never more machines than the user allows; None is as many as one likes."""

    machines_max: int | None

    def __call__(self, proposal: Proposal, view: View) -> str:
        more = machines_more(proposal.plan) - machines_fewer(proposal.plan)
        if self.machines_max is None or more <= 0 or view.machines + more <= self.machines_max:
            return ""
        return f"{view.machines} machines are there, and {self.machines_max} are the most"


@dataclass(frozen=True)
class RefusedLately:
    """After a proposal was refused, no other one is asked for at once: it would be refused again."""

    seconds: float

    def __call__(self, _: Proposal, view: View) -> str:
        refused = [one.at for one in view.history if one.fate is Fate.REFUSED]
        return "it was refused a moment ago" if refused and view.now < refused[-1] + self.seconds else ""


@dataclass(frozen=True)
class Regret:
    """A machine that was missed as soon as it was gone is not given back for so long, twice as long each time."""

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
        return "it was missed when it was given back the last time" if regretted else ""


def guards_for(goal: Goal, settings: Settings) -> list[Guard]:
    """Those of a controller, in the order in which they are asked."""
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
