"""What an instance of every operator can do, calibrated by what saturated operators were seen to do.

A capacity is an estimate from busy time, and the estimates of all operators are off in much the same way (batches,
waits, a busy machine). An operator that has more rows than it can handle shows what its instances really do. That is
remembered, and the estimates of the others are corrected by the median of what it shows (beta).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from penstock.cluster.model import Placement
from penstock.strategies.fluid import Pipes, worth
from penstock.strategies.load import Load, OperatorLoad
from penstock.strategies.memory import Memory

#: An operator whose input is higher than this many times what it executes has more rows than it can handle.
SATURATED = 1.02
#: A source that reads less than this share of what it could, and waits for nobody, reads all that there is.
IDLE = 0.9


def counts(load: Load, placement: Placement) -> list[int]:
    """Instances by operator."""
    return [placement.total(operator.name) for operator in load.operators]


def tasks_of(load: Load, placement: Placement) -> tuple[int | None, ...]:
    """Tasks by operator; None where it has none."""
    found = (placement.tasks.get(operator.name) for operator in load.operators)
    return tuple(len(tasks) if tasks else None for tasks in found)


def saturated(load: Load, place: int) -> bool:
    """Whether an operator was seen at its limit: its input is too high, and its backlog grows or others wait for it.
    Where the backlog was not measured, the input decides. An operator that waits itself was not seen at its limit."""
    one = load.operators[place]
    if not one.measured or load.inputs[place] <= SATURATED * one.measured:
        return False
    if one.executed is not None:
        return one.holds_others
    return one.holds_others or one.backlog_growth is None or one.backlog_growth > 0


def learned(load: Load, placement: Placement, memory: Memory) -> Memory:
    """The memory after this load. What a saturated operator does is what its instances can do; an operator that does
    more than was remembered can do at least that."""
    tasks = tasks_of(load, placement)
    seen: dict[str, float] = {}
    for place, one in enumerate(load.operators):
        rate = one.measured / worth(placement.total(one.name), tasks[place])
        known = memory.rates.get(one.name)
        if saturated(load, place) or (known is not None and rate > known):
            seen[one.name] = rate
    return memory.knowing(seen)


def beta(load: Load, instances: Sequence[int], memory: Memory) -> float:
    """How far the capacities are off, in common: the median of what is remembered over what was estimated."""
    ratios = [
        memory.rates[one.name] * count / one.capacity
        for one, count in zip(load.operators, instances, strict=True)
        if one.name in memory.rates and one.capacity
    ]
    return statistics.median(ratios) if ratios else 1.0


def calibrated(load: Load, placement: Placement, memory: Memory) -> Pipes:
    """The pipes that decisions are made on; `memory` has learned from this load already."""
    instances, tasks = counts(load, placement), tasks_of(load, placement)
    common = beta(load, instances, memory)
    rates = []
    for one, count, parts in zip(load.operators, instances, tasks, strict=True):
        known = memory.rates.get(one.name)
        estimated = common * (one.capacity or 0.0) / count
        rates.append(max(estimated, one.measured / worth(count, parts)) if known is None else known)
    operators = tuple(_with_offer(load, place, one) for place, one in enumerate(load.operators))
    return Pipes.of(load.at(operators, load.streams), rates, tasks)


def _with_offer(load: Load, place: int, one: OperatorLoad) -> OperatorLoad:
    """A source whose external rate is unknown, and that is idle for much of the time, is offered what it reads."""
    if load.parents[place] or one.external is not None or one.capacity is None or one.executed is not None:
        return one
    return replace(one, external=one.processing) if one.processing < IDLE * one.capacity else one
