"""Which instances are missed least."""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock.strategies.fluid import Pipes, rates_at
from penstock.strategies.gain.allocation import HAIR, throughput


def missed_least(pipes: Pipes, instances: Sequence[int]) -> int | None:
    """The operator whose last instance adds least to the throughput; of equals, the one that stays least busy. None if
    every operator has as few as it may have."""
    now, busy = throughput(pipes, instances), rates_at(pipes, instances)
    found: tuple[float, float, int] | None = None
    for place, count in enumerate(instances):
        if count <= max(pipes.load.operators[place].least_instances, 1):
            continue
        fewer = [*instances[:place], count - 1, *instances[place + 1 :]]
        lost = now - throughput(pipes, fewer)
        speed = pipes.speed(place, count - 1)
        share = min(busy.arriving[place], busy.speed[place]) / speed if speed else math.inf
        key = (0.0 if lost <= HAIR * now else lost, share, place)
        found = key if found is None else min(found, key)
    return None if found is None else found[2]


def fewer_by(pipes: Pipes, instances: Sequence[int], total: int) -> list[int]:
    """Instances with only so many left in all, or as few of each operator as it may have: those that are missed least
    go, one by one."""
    left = list(instances)
    while sum(left) > total and (place := missed_least(pipes, left)) is not None:
        left[place] -= 1
    return left
