"""The best that any assignment of new instances could give, by trying all of them: what a strategy is measured against.

There are C(n + V - 1, n) ways to give n instances to V operators: small graphs only. Keyed operators are as fast as
their fullest instance allows (`Pipes.tasks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from penstock.strategies.fluid import Pipes, flow, throughputs


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
    bounds = np.array(most if most is not None else [np.inf] * len(instances))
    first = np.array(instances, dtype=np.intp)
    room = np.maximum(0.0, bounds - first).sum()
    chosen = np.array(list(combinations_with_replacement(range(len(first)), int(min(new, room)))), dtype=np.intp)
    counts = np.tile(first, (len(chosen), 1))
    for column in chosen.T:
        counts[np.arange(len(chosen)), column] += 1
    counts = counts[(counts <= np.maximum(bounds, first)).all(axis=1)]
    # Rates are sums of floating-point numbers: what differs by a hair is equal.
    found = throughputs(pipes, counts)
    place = int(np.flatnonzero(found >= found.max() * (1 - 1e-12))[0])
    chosen_counts = tuple(int(count) for count in counts[place])
    return Best(chosen_counts, flow(pipes, chosen_counts).throughput, len(counts))
