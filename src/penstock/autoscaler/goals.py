"""The goal of a topology that scales by itself, and which change the goal asks for now. Pure: no clock, no Spark.

Stela's thesis names two service levels as future work: hold a throughput with as few machines as possible, or reach as
much throughput as a number of machines can give. A goal is compared with what the sinks measured; the projected load
only says which operators are too slow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from penstock.autoscaler.balance import PILES_UP, Balance, balance_of
from penstock.errors import PenstockError
from penstock.monitor.snapshot import Snapshot
from penstock.strategies.fluid import Pipes, flow
from penstock.strategies.load import Load
from penstock.strategies.rules import PAPER, Rules
from penstock.strategies.stela.congestion import congested

#: A throughput that is below the required one by at most this share counts as reached: measured rates fluctuate.
TOLERANCE = 0.05
#: Where a backlog of minutes still grows, an operator is congested if its input is above this many times its rate. Less
#: than that counts as no growth (PILES_UP), and as no effect of a decision.
LEAST_LACK = 1 + PILES_UP
#: A machine is removed only if the cores of the others would then be used by at most this share.
MOST_USED = 0.85
#: A chain whose operators together take this share of the time of its instances is busy.
BUSY_CHAIN = 0.85
#: Rows a second that no operator reaches.
FAST = 1e15


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
    """More throughput is wanted: by other instances where cores are idle, or else by so many machines."""

    machines: int
    reason: str


@dataclass(frozen=True)
class Shrink:
    machines: int
    reason: str


Wish = Stay | Grow | Shrink


def rules_for(rules: Rules, now: Balance) -> Rules:
    """The rules for a goal. An operator must count as congested as soon as it is slower than TOLERANCE allows: with the
    papers' alpha of 1.2, an operator that is a sixth too slow would not count. A throughput would then not be held, and
    of a number of machines less would be had than they can give, while the backlog grows. Once a backlog of minutes has
    piled up, a lack below TOLERANCE counts as well."""
    most = LEAST_LACK if now.falls_behind else 1 / (1 - TOLERANCE)
    return replace(rules, alpha=min(rules.alpha, most), capacity_alpha=min(rules.capacity_alpha, most))


def too_slow(snapshot: Snapshot, load: Load, rules: Rules = PAPER) -> tuple[str, ...]:
    """The operators that hold the throughput back: those that are congested, and the first of a chain that is busy all
    the time although each of its operators by itself would be fast enough."""
    slow = {one.name for one, full in zip(load.operators, congested(load, rules), strict=True) if full}
    for chain in snapshot.chains:
        shares = [snapshot.operators[name].utilisation for name in chain]
        busy = math.fsum(share for share in shares if share is not None)
        first = snapshot.operators[chain[0]]
        waits = (first.input_rate or 0.0) > rules.alpha * (first.rate or 0.0)
        if busy >= BUSY_CHAIN and waits and not slow.intersection(chain):
            slow.add(chain[0])
    return tuple(one.name for one in load.operators if one.name in slow)


def wish(goal: Goal, snapshot: Snapshot, load: Load, rules: Rules = PAPER) -> Wish:
    """The change that the goal asks for now."""
    machines, now = len(snapshot.cluster.machines), balance_of(snapshot)
    if goal.machines_max is not None and machines > goal.machines_max:
        return Shrink(
            machines - goal.machines_max,
            f"the topology has {machines} machines, more than the {goal.machines_max} that the goal allows",
        )
    slow = too_slow(snapshot, load, rules) if now.lacking else ()
    if goal.throughput is not None:
        return _hold(goal, snapshot, now, slow, demand(load))
    if slow:
        return Grow(1, f"the goal is more throughput; these operators are congested: {', '.join(slow)}")
    return Stay("the goal is more throughput, but no operator is congested: the sources offer no more rows")


def demand(load: Load) -> float:
    """What would arrive at the sinks if every operator were fast enough; infinite if nobody knows what is offered."""
    if any(load.operators[place].external is None for place in load.sources):
        return math.inf
    return flow(Pipes.of(load, [FAST] * len(load.operators)), [1] * len(load.operators)).throughput


def _hold(goal: Goal, snapshot: Snapshot, now: Balance, slow: tuple[str, ...], wanted: float) -> Wish:
    required = goal.throughput or 0.0
    if now.throughput is None:
        return Stay("Penstock does not know yet how many rows arrive at the sinks")
    short = now.falls_behind and bool(slow) and now.throughput < required
    if now.throughput >= required * (1 - TOLERANCE) and not short:
        return _fewer(snapshot, now, slow, f"the throughput of {now.throughput:,.0f} rows/s reaches the goal")
    why = f"the throughput of {now.throughput:,.0f} rows/s is below the goal of {required:,.0f}"
    if slow:
        machines, most = len(snapshot.cluster.machines), goal.machines_max
        more = _machines_needed(snapshot, min(required, wanted) / max(now.throughput, 1e-9))
        room = machines if most is None else most - machines
        return Grow(max(min(more, room), 1), f"{why}; these operators are congested: {', '.join(slow)}")
    return _fewer(snapshot, now, slow, f"{why}, but no operator is congested: the sources offer no more rows")


def _machines_needed(snapshot: Snapshot, times: float) -> int:
    """How many machines more have the cores for so many times the work; never more than there are, because what
    is measured then is a better guess."""
    used, machines = cores_used(snapshot), len(snapshot.cluster.machines)
    if used is None:
        return 1
    each = sum(slot.cores for slot in snapshot.cluster.slots) / machines
    return min(math.ceil(min(used * times / (MOST_USED * each), 2.0 * machines)) - machines, machines)


def _fewer(snapshot: Snapshot, now: Balance, slow: tuple[str, ...], why: str) -> Wish:
    if len(snapshot.cluster.machines) == 1:
        return Stay(f"{why}, and the cluster has only one machine")
    if now.behind:
        return Stay(f"{why}, but {now.backlog:,} rows wait: while they are worked off, no machine can be removed")
    if slow:
        return Stay(f"{why}, and operators are congested: no machine can be removed")
    used = cores_used(snapshot)
    if used is None:
        return Stay(f"{why}; Penstock does not know how busy the machines are, so it removes none")
    cores = sum(slot.cores for slot in snapshot.cluster.slots)
    left = cores - max(sum(slot.cores for slot in machine.slots) for machine in snapshot.cluster.machines)
    if used > MOST_USED * left:
        return Stay(f"{why}; {used:.1f} cores are busy, too many to remove a machine and leave {left} cores")
    return Shrink(1, f"{why}; {used:.1f} cores are busy, so {left} cores are enough")


def cores_used(snapshot: Snapshot) -> float | None:
    """How many cores all operators use, by their CPU time, or by their busy time where no CPU time is known. None if
    neither is known of an operator."""
    shares = [
        one.cpu_utilisation if one.cpu_utilisation is not None else one.utilisation
        for one in snapshot.operators.values()
    ]
    if any(share is None for share in shares):
        return None
    return math.fsum(
        share * one.instances
        for share, one in zip(shares, snapshot.operators.values(), strict=True)
        if share is not None
    )
