"""The best that any assignment of new instances could give, by trying all of them: what a strategy is measured against.

There are C(n + V - 1, n) ways to give n instances to V operators: small graphs only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

from penstock.strategies.fluid import Pipes, flow


@dataclass(frozen=True)
class Best:
    #: Instances by operator, in topological order.
    instances: tuple[int, ...]
    throughput: float
    #: How many assignments were tried.
    tried: int


def best(
    pipes: Pipes,
    instances: Sequence[int],
    new: int,
    most: Sequence[float] | None = None,
) -> Best:
    """The assignment with the highest throughput; of equals, the one that helps the earlier operators.

    `most` bounds each operator's instances, as a strategy is bound; where not all new instances can be given, as many
    as can be are.
    """
    found: Best | None = None
    tried = 0
    bounds = list(most) if most is not None else [float("inf")] * len(instances)
    room = sum(max(0.0, bound - count) for bound, count in zip(bounds, instances, strict=True))
    for candidate in _assignments(instances, int(min(new, room)), bounds):
        tried += 1
        throughput = flow(pipes, candidate).throughput
        if found is None or throughput > found.throughput:
            found = Best(candidate, throughput, tried)
    if found is None:
        found = Best(tuple(instances), flow(pipes, instances).throughput, 0)
    return Best(found.instances, found.throughput, tried)


def _assignments(instances: Sequence[int], new: int, bounds: Sequence[float]) -> Iterator[tuple[int, ...]]:
    for chosen in combinations_with_replacement(range(len(instances)), new):
        counts = list(instances)
        for place in chosen:
            counts[place] += 1
        if all(counts[place] <= bounds[place] for place in chosen):
            yield tuple(counts)
