"""What a user wants of a topology that scales by itself, and what that asks for now. Pure: no clock, no Spark.

The two service levels are the future work of Stela's thesis: a throughput to be held with as few machines as possible,
and as much throughput as so many machines can give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.errors import PenstockError
from penstock.monitor.snapshot import Snapshot
from penstock.settings import Settings
from penstock.strategies.load import Load
from penstock.strategies.rules import PAPER, Rules
from penstock.strategies.stela.congestion import congested

#: A throughput that is this little below what is required counts as met: rates are measured, and fluctuate.
TOLERANCE = 0.05
#: A machine goes only if the others' cores would then be used no more than this.
MOST_USED = 0.8


@dataclass(frozen=True)
class Goal:
    """At least one of the two is given."""

    #: Rows a second at the sinks, weighted, to be held with as few machines as possible.
    throughput: float | None = None
    #: The most machines; without a throughput, all of them are to be used as long as that helps.
    machines_max: int | None = None

    def __post_init__(self) -> None:
        if self.throughput is not None and not self.throughput > 0:
            raise PenstockError("BAD_GOAL", f"the throughput is {self.throughput:g} rows/s.", "Give a number above 0.")
        if self.machines_max is not None and self.machines_max < 1:
            raise PenstockError("BAD_GOAL", f"machines_max is {self.machines_max}.", "Allow at least 1 machine.")
        if self.throughput is None and self.machines_max is None:
            raise PenstockError("BAD_GOAL", "the goal is empty.", "Give a throughput, or the most machines.")

    def __str__(self) -> str:
        parts = [f"{self.throughput:,.0f} rows/s"] if self.throughput is not None else ["as many rows/s as possible"]
        parts += [f"with at most {self.machines_max} machines"] if self.machines_max is not None else []
        return " ".join(parts)


@dataclass(frozen=True)
class Stay:
    reason: str


@dataclass(frozen=True)
class Grow:
    machines: int
    reason: str


@dataclass(frozen=True)
class Shrink:
    machines: int
    reason: str


Wish = Stay | Grow | Shrink


def require_machines(goal: Goal | None, cluster_kind: str) -> None:
    """Refuse a goal where there are no machines to be had."""
    if goal is not None and cluster_kind == "local":
        raise PenstockError(
            "BAD_GOAL", "a local cluster is one machine, so it cannot scale.", "Choose --cluster standalone."
        )


def settings_for(goal: Goal | None, settings: Settings) -> Settings:
    """Who scales operators one by one needs them apart: in a chain they all have the same instances."""
    return settings if goal is None else replace(settings, chaining="off")


def rules_for(goal: Goal, rules: Rules) -> Rules:
    """Where a throughput is to be held, an operator is too slow as soon as it lacks what may not be lacking: with the
    papers' alpha, one that gives a sixth too little would pass for fast enough."""
    if goal.throughput is None:
        return rules
    return replace(rules, alpha=min(rules.alpha, 1 / (1 - TOLERANCE)))


def wish(goal: Goal, snapshot: Snapshot, load: Load, rules: Rules = PAPER) -> Wish:
    """One machine at a time: what the next one brings is measured before another is asked for."""
    machines = len(snapshot.cluster.machines)
    if goal.machines_max is not None and machines > goal.machines_max:
        return Shrink(machines - goal.machines_max, f"{machines} machines are more than {goal.machines_max}")
    slow = [one.name for one, full in zip(load.operators, congested(load, rules), strict=True) if full]
    if goal.throughput is None:
        if slow:
            return Grow(1, f"more throughput is wanted; congested: {', '.join(slow)}")
        return Stay("more throughput is wanted, but nothing is congested: the sources offer no more")
    now, required = load.throughput, goal.throughput
    if now >= required * (1 - TOLERANCE):
        return _fewer(snapshot, slow, f"{now:,.0f} rows/s are what is required")
    why = f"{now:,.0f} rows/s are below the {required:,.0f} that are required"
    if slow:
        return Grow(1, f"{why}; congested: {', '.join(slow)}")
    return _fewer(snapshot, slow, f"{why}, but nothing is congested: the sources offer no more")


def _fewer(snapshot: Snapshot, slow: Sequence[str], why: str) -> Wish:
    if len(snapshot.cluster.machines) == 1:
        return Stay(f"{why}, and the cluster has one machine only")
    if slow:
        return Stay(f"{why}, and operators are congested: no machine can be removed")
    used = _cores_used(snapshot)
    if used is None:
        return Stay(f"{why}; the use of the machines is not known, so none is removed")
    cores = sum(slot.cores for slot in snapshot.cluster.slots)
    left = cores - max(sum(slot.cores for slot in machine.slots) for machine in snapshot.cluster.machines)
    if used > MOST_USED * left:
        return Stay(f"{why}; {used:.1f} cores are used, too many for the {left} that would be left")
    return Shrink(1, f"{why}; {used:.1f} cores are used, and {left} would be left")


def _cores_used(snapshot: Snapshot) -> float | None:
    """CPU time of all operators; where only their busy time is known, that."""
    total = 0.0
    for one in snapshot.operators.values():
        share = one.cpu_utilisation if one.cpu_utilisation is not None else one.utilisation
        if share is None:
            return None
        total += share * one.instances
    return total
