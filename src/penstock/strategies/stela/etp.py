"""Effective Throughput Percentage: the share of the topology's throughput that an operator's speed affects.

ETP_o = Throughput_EffectiveReachableSinks / Throughput_workflow (Stela, section II-D). A sink is effectively reachable
from o if at least one path leads there on which every operator after o, the sink included, is uncongested. The paper's
algorithm 1 adds a sink once a path; its definition counts it once, and so do we. A sink's own ETP is its share.

One pass over the graph, children before parents, gives all operators: each one's set of sinks is the union of its
uncongested children's. A set is a Python integer with one bit a sink, so the pass costs O((V + E) * S / 64) for V
operators, E streams and S sinks: linear as long as the sinks fit in a few machine words. (Sums instead of sets would be
linear always, and wrong: a sink reached over two paths must count once.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.strategies.load import Load

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

#: Throughput is counted in whole units, this many for all sinks together at the start, so that a sum is the same in
#: whatever order it is made, and two operators that reach the same sinks tie. Whole floats add without error up to
#: 2**53: a decision may multiply the throughput by 2**17.
UNITS = float(2**36)


def unit(load: Load) -> float:
    """How many units a row a second is."""
    return UNITS / load.throughput if load.throughput > 0 else 0.0


def sink_units(load: Load) -> Floats:
    """Each sink's weighted throughput in units."""
    rates = [load.operators[place].weight * load.operators[place].processing for place in load.sinks]
    return np.round(np.array(rates, dtype=np.float64) * unit(load))


def reachable_sinks(load: Load, congested: Sequence[bool]) -> tuple[int, ...]:
    """Each operator's effectively reachable sinks: bit i is the i-th sink. A sink reaches itself, congested or not."""
    sets = [0] * len(load.operators)
    for bit, place in enumerate(load.sinks):
        sets[place] = 1 << bit
    for place in reversed(range(len(load.operators))):
        for child in load.children[place]:
            if not congested[child]:
                sets[place] |= sets[child]
    return tuple(sets)


def bits(sets: Sequence[int], sinks: int) -> NDArray[np.uint8]:
    """One row a set, one column a sink, 0 or 1."""
    return np.unpackbits(packed(sets, sinks), axis=1, count=sinks, bitorder="little")


def packed(sets: Sequence[int], sinks: int) -> NDArray[np.uint8]:
    """The same in eighths: one row a set, one column for every eight sinks."""
    width = (sinks + 7) // 8
    data = b"".join(one.to_bytes(width, "little") for one in sets)
    return np.frombuffer(data, dtype=np.uint8).reshape(len(sets), width)


def units_of(sets: Sequence[int], units: Floats) -> Floats:
    """The units of each set's sinks together; exact, because units are whole."""
    rows = max(1, (1 << 20) // max(1, len(units)))
    parts = [bits(sets[first : first + rows], len(units)) @ units for first in range(0, len(sets), rows)]
    return np.concatenate(parts) if parts else np.zeros(0)


def etp(load: Load, congested: Sequence[bool]) -> tuple[float, ...]:
    """ETP_o of every operator; all are 0 while nothing arrives at the sinks."""
    units = sink_units(load)
    total = units.sum()
    if total == 0:
        return (0.0,) * len(load.operators)
    return tuple((units_of(reachable_sinks(load, congested), units) / total).tolist())
