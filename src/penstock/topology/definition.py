"""What a topology is once declared: frozen operators and streams that know the user's line they come from.

Nothing here imports Spark: strategies, the simulator and the validation read these values too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from penstock.errors import Location, PenstockError
from penstock.kinds import SinkKind, SourceKind
from penstock.schema import common_schema

MAIN_OUTPUT = "out"
DEAD_LETTER = "dead_letter"
#: What a row that a function could not handle looks like in the dead-letter output.
DEAD_LETTER_SCHEMA = pa.schema([("operator", pa.string()), ("error", pa.string()), ("row", pa.string())])
#: The column that a channel adds to rows that are split by key: no user's column may have its name.
GROUP_COLUMN = "__group"
#: With several outputs, a DataFrame function names the output of each row in this column.
OUTPUT_COLUMN = "output"
#: A by-key stream into a map operator is split into this many groups of keys when it does not say otherwise.
DEFAULT_TASKS = 8


class OnError(StrEnum):
    """Where a row goes that an operator's function cannot handle."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True)
class Shuffle:
    """Any instance may get a row."""

    def __str__(self) -> str:
        return "shuffle"


@dataclass(frozen=True)
class ByKey:
    """Rows of one key go to one instance."""

    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"by {', '.join(map(str, self.columns))}"


@dataclass(frozen=True)
class Broadcast:
    """Every instance gets every row."""

    def __str__(self) -> str:
        return "broadcast"


Grouping = Shuffle | ByKey | Broadcast


@dataclass(frozen=True)
class Stream:
    """An edge: what one operator emits on one output, on its way to another operator."""

    producer: str
    output: str
    consumer: str
    grouping: Grouping
    where: Location = field(compare=False)

    @property
    def name(self) -> str:
        """A name for tables and drawings; the output is left out where it is the main one."""
        output = "" if self.output == MAIN_OUTPUT else f".{self.output}"
        return f"{self.producer}{output}->{self.consumer}"


@dataclass(frozen=True, kw_only=True)
class Operator:
    """A vertex. `outputs` maps the name of each output to its schema; a sink has none."""

    name: str
    outputs: Mapping[str, pa.Schema]
    instances: int = 1
    min_instances: int = 1
    on_error: OnError = OnError.FAIL
    #: Whether it may run in one chain with its neighbours.
    chained: bool = True
    where: Location = field(compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputs", MappingProxyType(dict(self.outputs)))

    @property
    def kind(self) -> str:
        return type(self).__name__.lower()


@dataclass(frozen=True, kw_only=True)
class Source(Operator):
    spec: SourceKind


@dataclass(frozen=True, kw_only=True)
class Map(Operator):
    """Stateless. An Arrow function takes a RecordBatch, a DataFrame function one DataFrame or one per input."""

    function: Callable[..., Any]
    takes_dataframes: bool = False
    #: Into how many groups of keys its by-key inputs are split: the most instances that can share them.
    tasks: int = DEFAULT_TASKS
    #: Whether an Arrow function is called once for an instance's rows of a micro-batch, and not batch by batch.
    gathers: bool = False


@dataclass(frozen=True, kw_only=True)
class Keyed(Operator):
    """Stateful: a DataFrame function over Spark's stateful operators, its state in `tasks` fixed shares."""

    function: Callable[..., Any]
    key: tuple[str, ...]
    tasks: int = DEFAULT_TASKS
    output_mode: str = "update"
    #: Whether its function is written for rows that take the place of earlier ones (see updates.py).
    takes_updates: bool = False


@dataclass(frozen=True, kw_only=True)
class Sink(Operator):
    spec: SinkKind
    #: How much a row of this sink counts in the throughput of the topology, compared with rows of other sinks.
    weight: float = 1.0


@dataclass(frozen=True)
class TopologyDefinition:
    """A validated directed acyclic graph; operators are in topological order, ties in the order of declaration."""

    name: str
    operators: tuple[Operator, ...]
    streams: tuple[Stream, ...]
    where: Location = field(compare=False)

    @cached_property
    def _by_name(self) -> Mapping[str, Operator]:
        return {operator.name: operator for operator in self.operators}

    def operator(self, name: str) -> Operator:
        try:
            return self._by_name[name]
        except KeyError:
            known = ", ".join(self._by_name)
            raise PenstockError(
                "UNKNOWN_OPERATOR", f'"{self.name}" has no operator "{name}".', f"It has: {known}.", self.where
            ) from None

    def inputs_of(self, name: str) -> tuple[Stream, ...]:
        """The streams into an operator, in the order in which its `inputs` named them."""
        return tuple(stream for stream in self.streams if stream.consumer == name)

    def schema_of(self, stream: Stream) -> pa.Schema:
        return self.operator(stream.producer).outputs[stream.output]

    def schema_of_all(self, streams: Sequence[Stream]) -> pa.Schema:
        """What the rows of several streams are when they are interleaved."""
        return common_schema([self.schema_of(stream) for stream in streams])

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(operator for operator in self.operators if isinstance(operator, Source))

    @property
    def sinks(self) -> tuple[Sink, ...]:
        return tuple(operator for operator in self.operators if isinstance(operator, Sink))
