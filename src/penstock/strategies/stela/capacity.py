"""A second projection, ours: what the operators could do, and how far every row gets.

Stela's own (projection.py) knows what an operator executes. That is all it can do only while it is congested; an idle
one looks as if it were at its limit, and gets an instance as soon as its input grows. And where back-pressure slows the
sources, nothing inside looks congested at all. So here an operator's speed is its capacity (from busy time, less what
micro-batches cost), sources are taken to give what the outside offers, and after every new instance the rates are led
through the whole graph (fluid.py). Congestion, ETP and the choice stay the paper's. It costs a pass over the graph an
instance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.strategies.fluid import Pipes, flow, worth
from penstock.strategies.load import Load, ratio
from penstock.strategies.rules import Rules
from penstock.strategies.stela.etp import Floats, Places, reachable_sinks, sink_units, units_of


class CapacityProjection:
    instances: Floats
    input: Floats
    processing: Floats
    ratio: Floats
    congested: NDArray[np.bool_]

    def __init__(
        self, load: Load, instances: Sequence[int], rules: Rules, tasks: Sequence[int | None] | None = None
    ) -> None:
        parts = list(tasks) if tasks is not None else [None] * len(load.operators)
        rates = [
            one.processing / worth(count, part) if one.capacity is None else one.capacity / count
            for one, count, part in zip(load.operators, instances, parts, strict=True)
        ]
        self._pipes = Pipes.of(load, rates, parts)
        self._counts = list(instances)
        self._alpha = rules.capacity_alpha
        self._flow()

    def _flow(self) -> None:
        self._load = flow(self._pipes, self._counts)
        capacity = [self._pipes.speed(place, count) for place, count in enumerate(self._counts)]
        pairs = zip(self._load.inputs, capacity, strict=True)
        self.instances = np.array(self._counts, dtype=np.float64)
        self.input = np.array(self._load.inputs, dtype=np.float64)
        self.processing = np.array([one.processing for one in self._load.operators], dtype=np.float64)
        self.ratio = np.array([ratio(rate, limit) for rate, limit in pairs], dtype=np.float64)
        self.congested = self.ratio > self._alpha
        units = sink_units(self._load)
        self._values = units_of(reachable_sinks(self._load, self.congested.tolist()), units)
        self._total = float(units.sum())

    def values(self, places: Places) -> Floats:
        return self._values[places]

    def etp(self, place: int) -> float:
        return float(self._values[place]) / self._total if self._total else 0.0

    def give(self, place: int) -> None:
        self._counts[place] += 1
        self._flow()

    def load(self) -> Load:
        return self._load
