"""Throughput as water in pipes: what the sinks get when every operator has a given number of instances.

An operator with k instances executes at most k * rate rows a second, and emits on each stream selectivity rows a row:
every reader of an output gets all of it. Used to find the best that an assignment could give, not to decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.strategies.scaling.congestion import ratio
from penstock.strategies.scaling.load import Load, OperatorLoad, StreamLoad


@dataclass(frozen=True)
class Pipes:
    """A load's graph with service rates: by operator, rows a second of one instance; by stream, rows out a row in."""

    load: Load
    rates: tuple[float, ...]
    selectivity: tuple[float, ...]

    @staticmethod
    def of(load: Load, rates: Sequence[float]) -> Pipes:
        """Selectivity as measured: what a stream carried, over what its producer executed."""
        position = load.position
        executed = [load.operators[position[stream.producer]].processing for stream in load.streams]
        pairs = zip(load.streams, executed, strict=True)
        return Pipes(load, tuple(rates), tuple(stream.rate / rate if rate else 0.0 for stream, rate in pairs))


def flow(pipes: Pipes, instances: Sequence[int]) -> Load:
    """The rates if rows pile up before an operator that is too slow, as in the papers: nobody waits for it.

    A source whose external rate is unknown gives all that its instances can read.
    """
    capacity = [count * rate for count, rate in zip(instances, pipes.rates, strict=True)]
    return _flow(pipes, capacity, [1.0] * len(capacity), bounded=True)


def throttled_flow(pipes: Pipes, instances: Sequence[int]) -> Load:
    """The rates if an operator that is too slow makes those before it wait, up to the sources: no queue grows.

    Every source that leads to the operator that is furthest above its capacity is slowed down until that one keeps up;
    and again, until all do. With one source that is exact; with several it is a fair share, not the best one.
    """
    capacity = [count * rate for count, rate in zip(instances, pipes.rates, strict=True)]
    open_ = [1.0] * len(capacity)
    sources = _sources_above(pipes.load)
    while True:
        load = _flow(pipes, capacity, open_, bounded=False)
        over = [ratio(rate, limit) for rate, limit in zip(load.inputs, capacity, strict=True)]
        later = [place for place, parents in enumerate(load.parents) if parents]
        worst = max(later, key=lambda place: over[place], default=None)
        if worst is None or over[worst] <= 1 + 1e-9:
            return load
        for source in sources[worst]:
            open_[source] /= over[worst]


def _flow(pipes: Pipes, capacity: Sequence[float], open_: Sequence[float], bounded: bool) -> Load:
    load = pipes.load
    outputs: list[list[int]] = [[] for _ in load.operators]
    for number, stream in enumerate(load.streams):
        outputs[load.position[stream.producer]].append(number)
    arriving, rates = [0.0] * len(load.operators), [0.0] * len(load.streams)
    operators: list[OperatorLoad] = []
    for place, operator in enumerate(load.operators):
        if load.parents[place]:
            executed = min(arriving[place], capacity[place]) if bounded else arriving[place]
        else:
            offered = capacity[place] if operator.external is None else operator.external
            executed = min(offered, capacity[place]) * open_[place]
        operators.append(_at(operator, executed, capacity[place]))
        for number in outputs[place]:
            rates[number] = executed * pipes.selectivity[number]
            arriving[load.position[load.streams[number].consumer]] += rates[number]
    streams = zip(load.streams, rates, strict=True)
    return load.at(tuple(operators), tuple(StreamLoad(one.producer, one.consumer, rate) for one, rate in streams))


def _at(operator: OperatorLoad, executed: float, capacity: float) -> OperatorLoad:
    return OperatorLoad(operator.name, executed, operator.external, operator.weight, operator.most_instances, capacity)


def _sources_above(load: Load) -> list[set[int]]:
    above: list[set[int]] = []
    for place, parents in enumerate(load.parents):
        above.append(set().union(*(above[parent] for parent in parents)) if parents else {place})
    return above
