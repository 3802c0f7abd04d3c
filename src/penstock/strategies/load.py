"""The load of a running topology: the graph and the rates measured on it, all that a scaling strategy decides on.

Where the instances are is not repeated here: a strategy gets the placement beside the load.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from functools import cached_property

from penstock.errors import PenstockError


@dataclass(frozen=True)
class OperatorLoad:
    """One operator's rates, in rows a second, all its instances together."""

    name: str
    #: Rows executed a second; of a sink this is its throughput.
    processing: float
    #: How many rows a second the outside offers a source, whether it reads them or not; None if that is not known.
    external: float | None = None
    #: How much a row of this sink counts (Stela's footnote 1).
    weight: float = 1.0
    #: More instances than this could not share the work (groups of keys, partitions of a source); None is no bound.
    most_instances: int | None = None
    #: The user wants no fewer instances than this.
    least_instances: int = 1
    #: Rows a second that its instances could execute if rows always waited; None if that was not measured.
    capacity: float | None = None
    #: Rows a second by which its backlog grows, below 0 if it drains; None if that was not measured.
    backlog_growth: float | None = None
    #: Whether other operators wait for this one: its backlog is then at its bound and does not grow.
    holds_others: bool = False
    #: Rows executed a second as measured, where `processing` is what they would be without back-pressure; None if
    #: `processing` was measured.
    executed: float | None = None
    #: How many cores all its instances together use; None if that was not measured.
    cpu: float | None = None
    #: The bytes of state of each task of a keyed operator; None if the size of one of them is not known.
    state: tuple[int, ...] | None = None

    @property
    def measured(self) -> float:
        """Rows executed a second, as measured."""
        return self.processing if self.executed is None else self.executed


@dataclass(frozen=True)
class SlotLoad:
    """How many cores a slot has, and how many of them all operators together use."""

    name: str
    cores: float
    used: float


@dataclass(frozen=True)
class StreamLoad:
    """What a producer emits on one stream to one consumer, in rows a second."""

    producer: str
    consumer: str
    rate: float


@dataclass(frozen=True)
class Load:
    """Operators in topological order, and the streams between them. What is derived speaks of operators by position."""

    operators: tuple[OperatorLoad, ...]
    streams: tuple[StreamLoad, ...]
    #: The slots whose use of cores was measured; empty if none was.
    slots: tuple[SlotLoad, ...] = ()

    def __post_init__(self) -> None:
        if len(self.position) < len(self.operators):
            raise _bad("two operators have the same name.", "Every operator is measured once.")
        for operator in self.operators:
            self._check_operator(operator)
        for stream in self.streams:
            self._check_stream(stream)
        for operator, parents in zip(self.operators, self.parents, strict=True):
            if operator.external is not None and parents:
                raise _bad(
                    f'"{operator.name}" has an external rate and an input.', "Only sources are fed from outside."
                )

    def _check_operator(self, operator: OperatorLoad) -> None:
        given = (operator.external, operator.capacity, operator.cpu, abs(operator.backlog_growth or 0.0))
        rates = (operator.processing, operator.measured, operator.weight, *(rate or 0.0 for rate in given))
        if not all(math.isfinite(rate) and rate >= 0 for rate in rates):
            raise _bad(f'"{operator.name}" has a rate or weight that is no number of at least 0.', "Measure again.")
        if operator.most_instances is not None and operator.most_instances < 1:
            raise _bad(f'"{operator.name}" has most_instances below 1.', "Leave most_instances out, or give 1 or more.")

    def _check_stream(self, stream: StreamLoad) -> None:
        ends = (self.position.get(stream.producer), self.position.get(stream.consumer))
        name = f'"{stream.producer}->{stream.consumer}"'
        if ends[0] is None or ends[1] is None:
            raise _bad(f"{name} joins an operator that the load does not have.", "Measure all operators.")
        if ends[0] >= ends[1]:
            raise _bad(f"{name} leads back to an earlier operator.", "Give the operators in topological order.")
        if not (math.isfinite(stream.rate) and stream.rate >= 0):
            raise _bad(f"{name} has the rate {stream.rate!r}.", "Measure again.")

    def at(self, operators: tuple[OperatorLoad, ...], streams: tuple[StreamLoad, ...]) -> Load:
        """The same graph with other rates. Properties of the graph are not computed again."""
        other = copy(self)
        other.__dict__.pop("inputs", None)
        object.__setattr__(other, "operators", operators)
        object.__setattr__(other, "streams", streams)
        return other

    @cached_property
    def position(self) -> dict[str, int]:
        return {operator.name: place for place, operator in enumerate(self.operators)}

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Each operator's children, every one once, in topological order."""
        return self._neighbours([(self.position[s.producer], self.position[s.consumer]) for s in self.streams])

    @cached_property
    def parents(self) -> tuple[tuple[int, ...], ...]:
        return self._neighbours([(self.position[s.consumer], self.position[s.producer]) for s in self.streams])

    def _neighbours(self, pairs: list[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
        found: list[set[int]] = [set() for _ in self.operators]
        for one, other in pairs:
            found[one].add(other)
        return tuple(tuple(sorted(others)) for others in found)

    @cached_property
    def sources(self) -> tuple[int, ...]:
        return tuple(place for place, parents in enumerate(self.parents) if not parents)

    @cached_property
    def sinks(self) -> tuple[int, ...]:
        return tuple(place for place, children in enumerate(self.children) if not children)

    @cached_property
    def inputs(self) -> tuple[float, ...]:
        """Each operator's input rate: what its parents emit on the streams to it (Stela, section II-C).

        A source's input is its external arrival rate; where that is unknown, what it takes is all there is.
        """
        rates = [0.0] * len(self.operators)
        for stream in self.streams:
            rates[self.position[stream.consumer]] += stream.rate
        for place in self.sources:
            source = self.operators[place]
            rates[place] = source.processing if source.external is None else source.external
        return tuple(rates)

    @property
    def throughput(self) -> float:
        """The weighted sum of what the sinks execute."""
        return math.fsum(self.operators[place].weight * self.operators[place].processing for place in self.sinks)


def ratio(R_input: float, R_execute: float) -> float:
    """R_input / R_execute. The ratio of an operator that gets rows and executes none is infinite."""
    if R_execute > 0:
        return R_input / R_execute
    return math.inf if R_input > 0 else 0.0


def _bad(message: str, hint: str) -> PenstockError:
    return PenstockError("BAD_LOAD", message, hint)
