"""The goal of a topology that scales by itself, and which change the goal asks for now. Pure: no clock, no Spark.

Stela's thesis names two service levels as future work: hold a throughput with as few machines as possible, or reach as
much throughput as a number of machines can give.
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

#: A throughput that is below the required one by at most this share counts as reached: measured rates fluctuate.
TOLERANCE = 0.05
#: A machine is removed only if the cores of the others would then be used by at most this share.
MOST_USED = 0.8


@dataclass(frozen=True)
class Goal:
    """A throughput to hold, the most machines to use, or both."""

    #: Rows a second at all sinks, weighted. The topology holds them with as few machines as possible.
    throughput: float | None = None
    #: The most machines. Without a throughput, the topology uses all of them as long as that helps.
    machines_max: int | None = None

    def __post_init__(self) -> None:
        if self.throughput is not None and not self.throughput > 0:
            raise PenstockError("BAD_GOAL", f"the throughput is {self.throughput:g} rows/s.", "Give a number above 0.")
        if self.machines_max is not None and self.machines_max < 1:
            raise PenstockError("BAD_GOAL", f"machines_max is {self.machines_max}.", "Allow at least 1 machine.")
        if self.throughput is None and self.machines_max is None:
            raise PenstockError("BAD_GOAL", "the goal is empty.", "Give a throughput, or the most machines, or both.")

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
    """Refuse a goal on a cluster that cannot get other machines."""
    if goal is not None and cluster_kind == "local":
        raise PenstockError(
            "BAD_GOAL", "a local cluster is one machine, so it cannot scale.", "Choose --cluster standalone."
        )


def settings_for(goal: Goal | None, settings: Settings) -> Settings:
    """The settings of a run with this goal. Chaining is off, because all operators of a chain have the same instances
    and could not be scaled one by one."""
    return settings if goal is None else replace(settings, chaining="off")


def rules_for(goal: Goal, rules: Rules) -> Rules:
    """The rules for this goal. To hold a throughput, an operator must count as congested as soon as it is slower than
    TOLERANCE allows; with the papers' alpha of 1.2, an operator that is a sixth too slow would not count."""
    if goal.throughput is None:
        return rules
    return replace(rules, alpha=min(rules.alpha, 1 / (1 - TOLERANCE)))


def wish(goal: Goal, snapshot: Snapshot, load: Load, rules: Rules = PAPER) -> Wish:
    """The change that the goal asks for now. Machines are added one at a time: the effect of one is measured before the
    next one is asked for."""
    machines = len(snapshot.cluster.machines)
    if goal.machines_max is not None and machines > goal.machines_max:
        return Shrink(
            machines - goal.machines_max,
            f"the topology has {machines} machines, more than the {goal.machines_max} that the goal allows",
        )
    slow = [one.name for one, full in zip(load.operators, congested(load, rules), strict=True) if full]
    if goal.throughput is None:
        if slow:
            return Grow(1, f"the goal is more throughput; these operators are congested: {', '.join(slow)}")
        return Stay("the goal is more throughput, but no operator is congested: the sources offer no more rows")
    now, required = load.throughput, goal.throughput
    if now >= required * (1 - TOLERANCE):
        return _fewer(snapshot, slow, f"the throughput of {now:,.0f} rows/s reaches the goal")
    why = f"the throughput of {now:,.0f} rows/s is below the goal of {required:,.0f}"
    if slow:
        return Grow(1, f"{why}; these operators are congested: {', '.join(slow)}")
    return _fewer(snapshot, slow, f"{why}, but no operator is congested: the sources offer no more rows")


def _fewer(snapshot: Snapshot, slow: Sequence[str], why: str) -> Wish:
    if len(snapshot.cluster.machines) == 1:
        return Stay(f"{why}, and the cluster has only one machine")
    if slow:
        return Stay(f"{why}, and operators are congested: no machine can be removed")
    used = _cores_used(snapshot)
    if used is None:
        return Stay(f"{why}; it is not known how busy the machines are, so none is removed")
    cores = sum(slot.cores for slot in snapshot.cluster.slots)
    left = cores - max(sum(slot.cores for slot in machine.slots) for machine in snapshot.cluster.machines)
    if used > MOST_USED * left:
        return Stay(f"{why}; {used:.1f} cores are busy, too many to remove a machine and leave {left} cores")
    return Shrink(1, f"{why}; {used:.1f} cores are busy, so {left} cores are enough")


def _cores_used(snapshot: Snapshot) -> float | None:
    """How many cores all operators use, by their CPU time, or by their busy time where no CPU time is known. None if
    neither is known of an operator."""
    total = 0.0
    for one in snapshot.operators.values():
        share = one.cpu_utilisation if one.cpu_utilisation is not None else one.utilisation
        if share is None:
            return None
        total += share * one.instances
    return total
