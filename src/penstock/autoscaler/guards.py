"""Guards look at a proposal before it is carried out. A guard is a function that answers with its reason against the
proposal, with an empty text if it has none, or with another proposal that is to take its place.

A controller has a list of guards, which can be read and extended: `controller.guards.append(not_at_night)`. What guards
learn from earlier decisions is in `lessons.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from penstock.autoscaler.goals import Goal
from penstock.autoscaler.lessons import Capped, Failures, Harmful, Patience, Regret, not_judged_yet
from penstock.autoscaler.policy import Fate, View, why_not
from penstock.autoscaler.proposals import Proposal, machines_fewer, machines_more
from penstock.errors import PenstockError
from penstock.freeze import FreezeWindow, freeze_windows
from penstock.logs import LOGGER
from penstock.settings import Settings

Guard = Callable[[Proposal, View], "str | Proposal"]
HOUR = 3600.0
#: A proposal that guards change more often than this is not carried out: they do not agree.
MOST_CHANGES = 5
#: A change is wanted for so many windows before it is made.
PATIENCE = 1.25


def not_while_paused(_: Proposal, view: View) -> str:
    return "the sources are paused" if view.paused else ""


def one_at_a_time(_: Proposal, view: View) -> str:
    return f"the operation {view.under_way} is under way" if view.under_way else ""


@dataclass(frozen=True)
class Cooldown:
    """After an operation, so many seconds pass before the next one, so that the effect of the first can be measured."""

    seconds: float

    def __call__(self, proposal: Proposal, view: View) -> str:
        left = 0.0 if view.last_ended is None else view.last_ended + self.seconds - view.now
        if left <= 0 or proposal.undo:
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
class Budget:
    """At most so many changes within an hour, whatever they are. What undoes a harmful change may always be done."""

    changes: int

    def __call__(self, proposal: Proposal, view: View) -> str:
        lately = [one for one in view.history if one.at > view.now - HOUR and one.fate is not Fate.REFUSED]
        if len(lately) < self.changes or proposal.undo:
            return ""
        left = lately[-self.changes].at + HOUR - view.now
        return f"{len(lately)} changes were made within an hour, and more are not allowed for {left:.0f} s"


@dataclass(frozen=True)
class Freeze:
    """Nothing changes within these windows of the week, by the clock of the driver's time zone."""

    windows: tuple[FreezeWindow, ...]

    def __call__(self, _: Proposal, view: View) -> str:
        at = datetime.fromtimestamp(view.now if view.wall is None else view.wall)
        found = next((window for window in self.windows if window.covers(at)), None)
        return f"nothing may change within {found}" if found is not None else ""


def guards_for(goal: Goal, settings: Settings) -> list[Guard]:
    """The guards of a controller, in the order in which it asks them."""
    seconds = settings.cooldown_seconds
    return [
        Patience(PATIENCE),
        not_while_paused,
        one_at_a_time,
        Freeze(freeze_windows(settings.freeze)),
        Cooldown(seconds),
        not_judged_yet,
        Quota(goal.machines_max),
        Budget(settings.changes_per_hour),
        Failures(seconds),
        Harmful(),
        Capped(),
        Regret(seconds),
    ]


@dataclass(frozen=True)
class Reviewed:
    """What the guards made of a proposal."""

    proposal: Proposal
    #: The first reason against it; empty if it may be carried out.
    veto: str = ""


def reviewed(guards: Sequence[Guard], proposal: Proposal, view: View) -> Reviewed:
    """Ask all guards. A proposal that a guard has changed is shown to all of them again, and must be one that can be
    carried out."""
    first = proposal
    for _ in range(MOST_CHANGES):
        other: Proposal | None = None
        for guard in guards:
            answer = _asked(guard, proposal, view)
            if isinstance(answer, str):
                if answer:
                    return Reviewed(proposal, answer)
            elif answer != proposal:
                other = answer
                break
        if other is None:
            unfit = None if proposal == first else why_not(proposal.plan, view)
            return Reviewed(proposal, "" if unfit is None else f"a guard changed it, and now {unfit.reason}")
        proposal = other
        if not proposal.plan:
            return Reviewed(proposal, proposal.plan.reason or "a guard has removed all actions from the plan")
    return Reviewed(proposal, f"the guards have changed the proposal {MOST_CHANGES} times and do not agree")


def _asked(guard: Guard, proposal: Proposal, view: View) -> str | Proposal:
    name = getattr(guard, "__name__", type(guard).__name__)
    try:
        answer = guard(proposal, view)
    except Exception as problem:
        LOGGER.exception("the guard %s failed", name)
        raise _failed(name, f"it raised {type(problem).__name__}: {problem}") from problem
    if isinstance(answer, str | Proposal):
        return answer
    raise _failed(name, f"it answered with {type(answer).__name__}, and not with a text or a Proposal")


def _failed(name: str, how: str) -> PenstockError:
    hint = 'Nothing was changed. Let it return "" where it has no objection.'
    return PenstockError("GUARD_FAILED", f'the guard "{name}" failed: {" ".join(how.split())[:300]}.', hint)
