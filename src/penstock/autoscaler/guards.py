"""What may keep a wish from being carried out. A guard answers with its reason, or with nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.autoscaler.goals import Goal, Grow, Wish


@dataclass(frozen=True)
class Situation:
    """What guards look at."""

    now: float
    #: When the last operation ended; None if there was none.
    last_ended: float | None
    #: What is under way; empty if nothing is.
    under_way: str
    machines: int
    #: Whether the sources are paused: rows that are due at a paused source are no reason to add machines.
    paused: bool = False


Guard = Callable[[Wish, Situation], str]


def cooldown(seconds: float) -> Guard:
    """After an operation, what it brought has to show before the next."""

    def check(_: Wish, situation: Situation) -> str:
        if situation.last_ended is None or situation.now >= situation.last_ended + seconds:
            return ""
        return f"cooling down for another {situation.last_ended + seconds - situation.now:.0f} s"

    return check


def one_at_a_time(_: Wish, situation: Situation) -> str:
    return f"{situation.under_way} is under way" if situation.under_way else ""


def not_while_paused(_: Wish, situation: Situation) -> str:
    return "the sources are paused" if situation.paused else ""


def quota(goal: Goal) -> Guard:
    """Never more machines than the user allows."""

    def check(wish: Wish, situation: Situation) -> str:
        most = goal.machines_max
        if most is None or not isinstance(wish, Grow) or situation.machines + wish.machines <= most:
            return ""
        return f"{situation.machines} machines are there, and {most} are the most"

    return check


def first_veto(guards: Sequence[Guard], wish: Wish, situation: Situation) -> str:
    return next((reason for guard in guards if (reason := guard(wish, situation))), "")
