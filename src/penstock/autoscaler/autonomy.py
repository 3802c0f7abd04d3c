"""Policies that need no goal: they say themselves how often they look, and which guards go with their rule."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from penstock.autoscaler.goals import Goal
from penstock.autoscaler.guards import Guard, guards_for
from penstock.autoscaler.policy import Policy, policy
from penstock.errors import PenstockError
from penstock.settings import Settings


@runtime_checkable
class Autonomous(Policy, Protocol):
    """A policy that scales a topology by a rule of its own, and not towards a goal. A controller is started for it
    whenever the setting `strategy` names it."""

    def period(self, settings: Settings) -> float:
        """Seconds from one round to the next."""

    def guards(self, settings: Settings) -> list[Guard]:
        """The guards of its controller, in the order in which they are asked."""


def needs_no_goal(strategy: str) -> bool:
    """Whether the policy of this name scales without a goal. A policy that cannot be made is refused when it is asked,
    and not here: a topology that does not scale by itself never asks it."""
    try:
        return isinstance(policy(strategy), Autonomous)
    except PenstockError:
        return False


def check_goal(strategy: str, goal: Goal | None, settings: Settings) -> None:
    """Refuse a goal that nobody would look at, and scaling without anything to decide on: BAD_GOAL."""
    if goal is not None and needs_no_goal(strategy):
        raise PenstockError(
            "BAD_GOAL",
            f'the strategy "{strategy}" scales by a rule of its own, and not to reach {goal}.',
            "Leave --throughput and --machines-max out, or choose another strategy.",
        )
    if settings.monitoring == "off" and (goal is not None or needs_no_goal(strategy)):
        raise PenstockError(
            "BAD_GOAL",
            "a topology cannot scale by itself while nothing is measured: the setting monitoring is off.",
            "Set monitoring to on. Or leave --throughput and --machines-max out, with a strategy that needs a goal.",
        )


def check_forgetting(strategy: str, goal: Goal | None) -> None:
    """Refuse to forget decisions where nobody has made any, and nobody would forget them: BAD_GOAL."""
    if goal is None and not needs_no_goal(strategy):
        raise PenstockError(
            "BAD_GOAL",
            "there are no decisions to forget: the topology does not scale by itself.",
            "Leave --forget-decisions out, or give --throughput or --machines-max as well.",
        )


def rounds_of(strategy: str, decider: Policy, goal: Goal | None, settings: Settings) -> tuple[float, list[Guard]]:
    """How often the controller of a policy looks, and its guards."""
    check_goal(strategy, goal, settings)
    if isinstance(decider, Autonomous):
        return decider.period(settings), decider.guards(settings)
    if goal is None:
        raise PenstockError(
            "BAD_GOAL", f'the strategy "{strategy}" has no goal.', "Give a throughput, or the most machines."
        )
    return settings.sample_seconds, guards_for(goal, settings)
