"""The rates that a scale-out is expected to lead to, instance by instance (Stela, section II-E).

An operator with k instances that gets one more executes and emits (k+1)/k of what it did; its children's input grows by
what it emits more. Their own speed, and all that comes after them, stays as it was until they get one themselves.
A source's input stays what it was, so that sources which tie take turns.

An operator by key is as fast as its fullest instance allows (fluid.worth): with 8 tasks, 5 to 7 instances do no more
than 4, because one of them still has two tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.strategies.fluid import worth
from penstock.strategies.load import Load
from penstock.strategies.rules import Rules
from penstock.strategies.stela.congestion import ratios
from penstock.strategies.stela.etp import Floats, Places, sink_units, unit
from penstock.strategies.stela.reach import Reach


class Projection(Protocol):
    """What a scale-out decides by, one array entry an operator; `give` projects one more instance."""

    instances: Floats
    input: Floats
    processing: Floats
    ratio: Floats
    congested: NDArray[np.bool_]

    def values(self, places: Places) -> Floats:
        """The ETP of these operators, in units that are the same for all."""
        ...

    def etp(self, place: int) -> float: ...

    def give(self, place: int) -> None: ...

    def load(self) -> Load: ...


class PaperProjection:
    def __init__(
        self, load: Load, instances: Sequence[int], rules: Rules, tasks: Sequence[int | None] | None = None
    ) -> None:
        """`tasks` has the tasks of each operator, None where it has none."""
        self._load = load
        self._tasks = list(tasks) if tasks is not None else [None] * len(load.operators)
        self._alpha = rules.alpha
        self._first = np.array(instances, dtype=np.float64)
        self.instances = self._first.copy()
        self.input = np.array(load.inputs, dtype=np.float64)
        self._start = np.array([operator.processing for operator in load.operators], dtype=np.float64)
        self.processing = self._start.copy()
        self.ratio = np.array(ratios(load), dtype=np.float64)
        self.congested = self.ratio > self._alpha
        self._sinks = set(load.sinks)
        self._emits = _emitted(load)
        self._reach = Reach(load, self.congested, sink_units(load))
        self._unit = unit(load)

    def values(self, places: Places) -> Floats:
        """The projected ETP of these operators, in units."""
        return self._reach.values(places)

    def etp(self, place: int) -> float:
        total = self._reach.total()
        return float(self.values(np.array([place]))[0] / total) if total else 0.0

    def give(self, place: int) -> None:
        """One more instance for this operator."""
        grown = self._grown(place)
        self.instances[place] += 1
        more = self._grown(place)
        self.processing[place] = self._start[place] * more
        children, rates = self._emits[place]
        self.input[children] += rates * (more - grown)
        touched = np.append(children, place)
        self.ratio[touched] = _ratio(self.input[touched], self.processing[touched])
        now = self.ratio[touched] > self._alpha
        flipped = touched[now != self.congested[touched]]
        self.congested[touched] = now
        if flipped.size:
            self._reach.changed(flipped.tolist())
        if place in self._sinks:
            rate = self._load.operators[place].weight * self.processing[place]
            self._reach.faster(place, float(np.round(rate * self._unit)))

    def _grown(self, place: int) -> float:
        """How many times as fast the operator is as at first."""
        now, first = int(self.instances[place]), int(self._first[place])
        return worth(now, self._tasks[place]) / worth(first, self._tasks[place])

    def load(self) -> Load:
        """The projected rates as a load of their own."""
        grown = [self._grown(place) for place in range(len(self.instances))]
        operators = list(self._load.operators)
        for place in np.flatnonzero(self.instances > self._first).tolist():
            one, processing = operators[place], float(self.processing[place])
            capacity = None if one.capacity is None else one.capacity * grown[place]
            operators[place] = replace(one, processing=processing, capacity=capacity)
        position = self._load.position
        streams = [
            replace(stream, rate=stream.rate * grown[place])
            if grown[place := position[stream.producer]] > 1
            else stream
            for stream in self._load.streams
        ]
        return self._load.at(tuple(operators), tuple(streams))


def _emitted(load: Load) -> list[tuple[Places, Floats]]:
    """Each operator's children and what it emits to each of them, all its outputs together."""
    rates: list[dict[int, float]] = [dict.fromkeys(children, 0.0) for children in load.children]
    for stream in load.streams:
        rates[load.position[stream.producer]][load.position[stream.consumer]] += stream.rate
    return [(np.array(list(one), dtype=np.intp), np.array(list(one.values()), dtype=np.float64)) for one in rates]


def _ratio(input_: Floats, processing: Floats) -> Floats:
    """congestion.ratio for many."""
    some = processing > 0
    stuck = np.where(input_ > 0, np.inf, 0.0)
    return np.where(some, input_ / np.where(some, processing, 1.0), stuck)
