"""Throughput as water in pipes: what the sinks get when every operator has a given number of instances.

An operator with k instances executes at most k * rate rows a second, and emits on each stream selectivity rows a row:
every reader of an output gets all of it. The tasks of a keyed operator are dealt to its instances, and the instance
with the most tasks sets the speed: k instances are worth tasks / ceil(tasks / k) of them (`worth`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from penstock.strategies.load import Load, OperatorLoad, StreamLoad


def worth(instances: int, tasks: int | None) -> float:
    """How many instances with an equal share of the work are as fast as these."""
    if tasks is None or not instances:
        return float(instances)
    return tasks / math.ceil(tasks / instances)


@dataclass(frozen=True)
class Pipes:
    """A load's graph with service rates: by operator, rows a second of one instance; by stream, rows out a row in."""

    load: Load
    rates: tuple[float, ...]
    selectivity: tuple[float, ...]
    #: By operator, the number of its tasks, None where it has none; empty if no operator has tasks.
    tasks: tuple[int | None, ...] = ()

    @staticmethod
    def of(load: Load, rates: Sequence[float], tasks: Sequence[int | None] = ()) -> Pipes:
        """Selectivity as measured: what a stream carried, over what its producer executed."""
        position = load.position
        executed = [load.operators[position[stream.producer]].processing for stream in load.streams]
        pairs = zip(load.streams, executed, strict=True)
        selectivity = tuple(stream.rate / rate if rate else 0.0 for stream, rate in pairs)
        return Pipes(load, tuple(rates), selectivity, tuple(tasks))

    def speed(self, place: int, instances: int) -> float:
        """Rows a second that so many instances of an operator execute if rows always wait."""
        return self.rates[place] * worth(instances, self.tasks[place] if self.tasks else None)

    @cached_property
    def emits(self) -> tuple[tuple[tuple[int, float], ...], ...]:
        """By operator: who reads what it emits, and the rows for each row in, stream by stream."""
        found: list[list[tuple[int, float]]] = [[] for _ in self.load.operators]
        for stream, rows in zip(self.load.streams, self.selectivity, strict=True):
            found[self.load.position[stream.producer]].append((self.load.position[stream.consumer], rows))
        return tuple(tuple(one) for one in found)

    @cached_property
    def offered(self) -> tuple[float, ...]:
        """By operator, the rows a second that come from outside; a source whose external rate is unknown never lacks
        rows."""
        sources = set(self.load.sources)
        return tuple(
            (math.inf if one.external is None else one.external) if place in sources else 0.0
            for place, one in enumerate(self.load.operators)
        )


@dataclass(frozen=True)
class Rates:
    """The rates of one assignment, by operator: what arrives, what could be executed, what is executed."""

    arriving: list[float]
    speed: list[float]
    executed: list[float]

    def overfull(self, place: int) -> float:
        """Input over speed; above 1 the operator is too slow."""
        if self.speed[place] > 0:
            return self.arriving[place] / self.speed[place]
        return math.inf if self.arriving[place] > 0 else 0.0


def rates_at(pipes: Pipes, instances: Sequence[int]) -> Rates:
    """The rates if rows pile up in front of a slow operator, as in the papers: no other operator waits for it."""
    arriving = list(pipes.offered)
    speed = [pipes.speed(place, count) for place, count in enumerate(instances)]
    executed = [0.0] * len(speed)
    for place, emits in enumerate(pipes.emits):
        executed[place] = rate = min(arriving[place], speed[place])
        for consumer, rows in emits:
            arriving[consumer] += rate * rows
    return Rates(arriving, speed, executed)


def throughput_at(pipes: Pipes, rates: Rates) -> float:
    """The weighted sum of what the sinks execute."""
    return sum(pipes.load.operators[place].weight * rates.executed[place] for place in pipes.load.sinks)


def throughputs(pipes: Pipes, assignments: NDArray[np.intp]) -> NDArray[np.float64]:
    """The throughput of many assignments at once: one row of `assignments` each, one column an operator."""
    rows, count = assignments.shape
    arriving = np.tile(np.array(pipes.offered), (rows, 1))
    executed = np.zeros((rows, count))
    for place, emits in enumerate(pipes.emits):
        most = int(assignments[:, place].max(initial=0))
        speeds = np.array([pipes.speed(place, number) for number in range(most + 1)])
        executed[:, place] = np.minimum(arriving[:, place], speeds[assignments[:, place]])
        for consumer, share in emits:
            arriving[:, consumer] += executed[:, place] * share
    weights = np.array([pipes.load.operators[place].weight for place in pipes.load.sinks])
    total: NDArray[np.float64] = executed[:, list(pipes.load.sinks)] @ weights
    return total


def flow(pipes: Pipes, instances: Sequence[int]) -> Load:
    """The rates of an assignment (`rates_at`) as a load."""
    load, found = pipes.load, rates_at(pipes, instances)
    operators = tuple(
        _at(one, executed, speed)
        for one, executed, speed in zip(load.operators, found.executed, found.speed, strict=True)
    )
    position = load.position
    pairs = zip(load.streams, pipes.selectivity, strict=True)
    streams = tuple(
        StreamLoad(stream.producer, stream.consumer, found.executed[position[stream.producer]] * rows)
        for stream, rows in pairs
    )
    return load.at(operators, streams)


def _at(operator: OperatorLoad, executed: float, capacity: float) -> OperatorLoad:
    return replace(
        operator, processing=executed, capacity=capacity, backlog_growth=None, holds_others=False, executed=None
    )
