"""Which operators the topology-aware alternatives put first (Stela, section III-C; the thesis' table 2).

Each is a function from the load to one number an operator; the lowest comes first, ties in topological order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum

from penstock.strategies.load import Load

Priority = Callable[[Load], Sequence[float]]


def hops_from_source(load: Load) -> list[float]:
    """Source closeness: an operator that is slow early makes all later ones wait."""
    return _hops(load.parents, range(len(load.operators)))


def hops_to_sink(load: Load) -> list[float]:
    """Sink closeness: what is near the sink affects the throughput most."""
    return _hops(load.children, reversed(range(len(load.operators))))


def most_descendants(load: Load) -> list[float]:
    """Children, their children, and so on, each counted once; a set is an integer with one bit an operator."""
    sets = [0] * len(load.operators)
    for place in reversed(range(len(load.operators))):
        for child in load.children[place]:
            sets[place] |= sets[child] | 1 << child
    return [-float(one.bit_count()) for one in sets]


def most_streams(load: Load) -> list[float]:
    """Centrality: streams in and out, together."""
    counts = [0.0] * len(load.operators)
    for stream in load.streams:
        counts[load.position[stream.producer]] -= 1
        counts[load.position[stream.consumer]] -= 1
    return counts


def least_link_load(load: Load) -> list[float]:
    """The rates of all streams in and out, together: little traffic is taken for a bottleneck."""
    rates = [0.0] * len(load.operators)
    for stream in load.streams:
        rates[load.position[stream.producer]] += stream.rate
        rates[load.position[stream.consumer]] += stream.rate
    return rates


def most_link_load(load: Load) -> list[float]:
    """The reverse: much traffic is taken for congestion."""
    return [-rate for rate in least_link_load(load)]


def _hops(before: Sequence[Sequence[int]], order: Iterable[int]) -> list[float]:
    hops = [0.0] * len(before)
    for place in order:
        hops[place] = min((hops[other] + 1 for other in before[place]), default=0.0)
    return hops


class Neighbours(Enum):
    """What becomes of instances of adjacent operators."""

    #: Nobody looks at them.
    ANYWHERE = 0
    #: As many pairs of them as possible are on the same machine.
    TOGETHER = 1
    #: The reverse.
    APART = -1


#: Name, priority, and what becomes of neighbours.
PRIORITIES: Mapping[str, tuple[Priority, Neighbours]] = {
    "nearest_to_source": (hops_from_source, Neighbours.ANYWHERE),
    "nearest_to_sink": (hops_to_sink, Neighbours.ANYWHERE),
    "most_descendants": (most_descendants, Neighbours.ANYWHERE),
    "centrality": (most_streams, Neighbours.ANYWHERE),
    "least_link_load": (least_link_load, Neighbours.TOGETHER),
    "most_link_load": (most_link_load, Neighbours.APART),
}
