"""What a user wants of a topology that scales by itself, and what that asks for now. Pure: no clock, no Spark.

The two service levels are the future work of Stela's thesis: a throughput to be held with as few machines as possible,
and as much throughput as so many machines can give.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.errors import PenstockError
from penstock.monitor.snapshot import Snapshot
from penstock.settings import Settings
from penstock.strategies.scaling.congestion import congested
from penstock.strategies.scaling.load import Load
from penstock.strategies.scaling.rules import PAPER, Rules

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
            raise PenstockError("BAD_GOAL", f"a throughput of {self.throughput:g} is none.", "Give one above 0.")
        if self.machines_max is not None and self.machines_max < 1:
            raise PenstockError("BAD_GOAL", f"machines_max={self.machines_max}.", "Give at least 1.")
        if self.throughput is None and self.machines_max is None:
            raise PenstockError("BAD_GOAL", "nothing is wanted.", "Give a throughput, or the most machines.")

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


def settings_for(goal: Goal | None, settings: Settings) -> Settings:
    """Who scales operators one by one needs them apart: in a chain they all have the same instances."""
    return settings if goal is None else replace(settings, chaining="off")


def wish(goal: Goal, snapshot: Snapshot, load: Load, rules: Rules = PAPER) -> Wish:
    """One machine at a time: what the next one brings is measured before another is asked for."""
    machines = len(snapshot.cluster.machines)
    if goal.machines_max is not None and machines > goal.machines_max:
        return Shrink(machines - goal.machines_max, f"{machines} machines are more than {goal.machines_max}")
    if goal.throughput is None:
        return _most_throughput(load, rules)
    now, required = load.throughput, goal.throughput
    if now < required * (1 - TOLERANCE):
        return _more(load, rules, f"{now:,.0f} rows/s are below the {required:,.0f} that are required")
    return _fewer(snapshot, load, rules, f"{now:,.0f} rows/s are what is required")


def _most_throughput(load: Load, rules: Rules) -> Wish:
    return _more(load, rules, "more throughput is wanted")


def _more(load: Load, rules: Rules, why: str) -> Wish:
    slow = [one.name for one, full in zip(load.operators, congested(load, rules), strict=True) if full]
    if slow:
        return Grow(1, f"{why}; congested: {', '.join(slow)}")
    return Stay(f"{why}, but nothing is congested: the sources offer no more")


def _fewer(snapshot: Snapshot, load: Load, rules: Rules, why: str) -> Wish:
    if len(snapshot.cluster.machines) == 1:
        return Stay(f"{why}, on the one machine there is")
    if any(congested(load, rules)):
        return Stay(f"{why}, and operators are congested: no machine can go")
    used = _cores_used(snapshot)
    if used is None:
        return Stay(f"{why}; how much of the machines is used is not known, so none goes")
    cores = sum(slot.cores for slot in snapshot.cluster.slots)
    left = cores - max(sum(slot.cores for slot in machine.slots) for machine in snapshot.cluster.machines)
    if used > MOST_USED * left:
        return Stay(f"{why}; {used:.1f} cores are used, too many for {left}")
    return Shrink(1, f"{why}; {used:.1f} cores are used, which {left} can give")


def _cores_used(snapshot: Snapshot) -> float | None:
    """CPU time of all operators; where only their busy time is known, that, which is never less."""
    total = 0.0
    for one in snapshot.operators.values():
        share = one.cpu_utilisation if one.cpu_utilisation is not None else one.utilisation
        if share is None:
            return None
        total += share * one.instances
    return total
