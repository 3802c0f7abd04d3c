"""Throughput as water in pipes: what the sinks get when every operator has a given number of instances.

An operator with k instances executes at most k * rate rows a second, and emits on each stream selectivity rows a row:
every reader of an output gets all of it. `stela_capacity` projects with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.strategies.load import Load, OperatorLoad, StreamLoad


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
    """The rates if rows pile up in front of a slow operator, as in the papers: no other operator waits for it.

    A source whose external rate is unknown gives all that its instances can read.
    """
    capacity = [count * rate for count, rate in zip(instances, pipes.rates, strict=True)]
    load = pipes.load
    outputs: list[list[int]] = [[] for _ in load.operators]
    for number, stream in enumerate(load.streams):
        outputs[load.position[stream.producer]].append(number)
    arriving, rates = [0.0] * len(load.operators), [0.0] * len(load.streams)
    operators: list[OperatorLoad] = []
    for place, operator in enumerate(load.operators):
        if load.parents[place]:
            executed = min(arriving[place], capacity[place])
        else:
            offered = capacity[place] if operator.external is None else operator.external
            executed = min(offered, capacity[place])
        operators.append(_at(operator, executed, capacity[place]))
        for number in outputs[place]:
            rates[number] = executed * pipes.selectivity[number]
            arriving[load.position[load.streams[number].consumer]] += rates[number]
    streams = zip(load.streams, rates, strict=True)
    return load.at(tuple(operators), tuple(StreamLoad(one.producer, one.consumer, rate) for one, rate in streams))


def _at(operator: OperatorLoad, executed: float, capacity: float) -> OperatorLoad:
    return OperatorLoad(operator.name, executed, operator.external, operator.weight, operator.most_instances, capacity)
