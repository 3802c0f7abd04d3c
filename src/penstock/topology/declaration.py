"""How a user declares a topology: one call for each operator. A call returns the output of the operator.

    topology = Topology("word-count")
    lines = topology.source("lines", sources.rate(1000, sources.sentences()))
    words = topology.map("split", split, inputs=[lines], schema="word string")
    counts = topology.keyed("count", count, inputs=[words], key="word", schema="word string, n long")
    topology.sink("out", sinks.console(), inputs=[counts])

A call checks only its own arguments; `topology.definition()` checks the topology as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from penstock.aggregates import Aggregate, checked
from penstock.errors import Location, PenstockError
from penstock.kinds import SinkKind, SourceKind
from penstock.schema import Schema, common_schema, parse_schema, same_schema
from penstock.topology.definition import (
    DEAD_LETTER,
    DEAD_LETTER_SCHEMA,
    DEFAULT_TASKS,
    MAIN_OUTPUT,
    OUTPUT_COLUMN,
    Broadcast,
    ByKey,
    Grouping,
    Keyed,
    Map,
    OnError,
    Operator,
    Shuffle,
    Sink,
    Source,
    Stream,
    TopologyDefinition,
)
from penstock.topology.state.processing import Processing
from penstock.topology.state.processing import checked as checked_processor
from penstock.topology.state.processor import Processor
from penstock.topology.validation import validate


@dataclass(frozen=True)
class Output:
    """One output of an operator. Another operator names it in its `inputs`."""

    operator: str
    name: str = MAIN_OUTPUT
    grouping: Grouping = field(default_factory=Shuffle)
    #: Without this, Python would take an object with __getitem__ for an endless sequence: `[*lines]`.
    __iter__: ClassVar[None] = None

    def __getitem__(self, output: str) -> Output:
        """Another output of the same operator: `parsed["late"]`."""
        return Output(self.operator, output, self.grouping)

    @property
    def dead_letter(self) -> Output:
        """The rows that the operator could not handle; it must be declared with on_error="dead_letter"."""
        return self[DEAD_LETTER]

    def by_key(self, *columns: str) -> Output:
        """The same rows, with all rows of one key sent to one instance."""
        return Output(self.operator, self.name, ByKey(columns))

    def broadcast(self) -> Output:
        """The same rows, each sent to every instance."""
        return Output(self.operator, self.name, Broadcast())


#: An input is an output of an operator, or the name of an operator (which may be declared further down).
Input = Output | str


class Topology:
    """Collects declarations; `definition()` checks them and gives the frozen result."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.where = Location.of_caller()
        self._operators: list[Operator] = []
        self._streams: list[Stream] = []

    def source(
        self,
        name: str,
        spec: SourceKind,
        *,
        instances: int = 1,
        on_error: str = OnError.FAIL,
        chained: bool = True,
    ) -> Output:
        """Declare a source, where rows enter. `spec` is made by a function of penstock.sources. `chained=False` keeps
        the source in a query of its own."""
        where = Location.of_caller()
        if not isinstance(spec, SourceKind):
            raise PenstockError(
                "BAD_SOURCE",
                f'source "{name}" is given a {type(spec).__name__}, which is no source.',
                "Give what a function of penstock.sources returns, or an object of your class derived from SourceKind.",
                where,
            )
        chosen = _on_error(name, on_error, where)
        outputs = _with_dead_letter({MAIN_OUTPUT: spec.schema}, chosen)
        return self._add(
            Source(
                name=name,
                spec=spec,
                outputs=outputs,
                instances=instances,
                on_error=chosen,
                chained=chained,
                where=where,
            ),
            (),
        )

    def map(  # noqa: PLR0913 - keyword arguments are the words of the declaration
        self,
        name: str,
        function: Callable[..., Any],
        *,
        inputs: Sequence[Input] | Input,
        schema: Schema | None = None,
        outputs: Mapping[str, Schema] | None = None,
        instances: int = 1,
        min_instances: int = 1,
        tasks: int = DEFAULT_TASKS,
        on_error: str = OnError.FAIL,
        chained: bool = True,
        gather: bool = False,
    ) -> Output:
        """Declare a stateless operator with an Arrow function. The function takes a RecordBatch and returns a
        RecordBatch or an iterable of them. With several `outputs` it returns a dict of these by the name of the output.
        Rows stay in Arrow from end to end. With `gather`, Penstock calls the function once for all rows that an
        instance has in a batch. `chained=False` keeps the operator in a query of its own."""
        where = Location.of_caller()
        chosen = _on_error(name, on_error, where)
        declared = _outputs(name, schema, outputs, where)
        operator = Map(
            name=name,
            function=function,
            outputs=_with_dead_letter(declared, chosen),
            instances=instances,
            min_instances=min_instances,
            tasks=tasks,
            on_error=chosen,
            chained=chained,
            gathers=gather,
            where=where,
        )
        return self._add(operator, _as_sequence(inputs), main=next(iter(declared)))

    def map_dataframe(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        inputs: Sequence[Input] | Input,
        schema: Schema | None = None,
        outputs: Mapping[str, Schema] | None = None,
        instances: int = 1,
        min_instances: int = 1,
        tasks: int = DEFAULT_TASKS,
    ) -> Output:
        """Declare a stateless operator with a DataFrame function, which takes a DataFrame and returns a DataFrame.

        With several `outputs` of one schema, the returned DataFrame has one more string column, `output`, that
        names the output of each row."""
        where = Location.of_caller()
        declared = _outputs(name, schema, outputs, where)
        operator = Map(
            name=name,
            function=function,
            takes_dataframes=True,
            outputs=declared,
            instances=instances,
            min_instances=min_instances,
            tasks=tasks,
            where=where,
        )
        return self._add(operator, _as_sequence(inputs), main=next(iter(declared)))

    def keyed(  # noqa: PLR0913
        self,
        name: str,
        function: Callable[..., Any],
        *,
        inputs: Sequence[Input] | Input,
        key: str | Sequence[str],
        schema: Schema | None = None,
        outputs: Mapping[str, Schema] | None = None,
        tasks: int = DEFAULT_TASKS,
        instances: int = 1,
        min_instances: int = 1,
        output_mode: str = "update",
        takes_updates: bool = False,
    ) -> Output:
        """Declare a stateful operator: a DataFrame function over Spark's stateful operators (aggregations, windows,
        deduplication, stream-stream joins, transformWithState). The function takes one DataFrame with the rows of all
        inputs, or one DataFrame for each input. The state is split by `key` into `tasks` shares.

        With output_mode="append" the operator emits every result once. Otherwise its rows are updates. Another keyed
        operator may read updates only if `takes_updates` says that its function is written for them."""
        where = Location.of_caller()
        keys = tuple(key) if isinstance(key, Sequence) and not isinstance(key, str) else (key,)
        declared = _outputs(name, schema, outputs, where)
        operator = Keyed(
            name=name,
            function=function,
            outputs=declared,
            key=keys,
            tasks=tasks,
            instances=instances,
            min_instances=min_instances,
            output_mode=output_mode,
            takes_updates=takes_updates,
            where=where,
        )
        return self._add(operator, _as_sequence(inputs), main=next(iter(declared)), default=ByKey(keys))

    def stateful(  # noqa: PLR0913
        self,
        name: str,
        processor: Processor | type[Processor],
        *,
        inputs: Sequence[Input] | Input,
        key: str | Sequence[str],
        schema: Schema | None = None,
        outputs: Mapping[str, Schema] | None = None,
        tasks: int = DEFAULT_TASKS,
        instances: int = 1,
        min_instances: int = 1,
        event_time: str | None = None,
        lateness: float = 0.0,
        output_mode: str = "append",
        takes_updates: bool = False,
    ) -> Output:
        """Declare a keyed operator with state of its own: `processor` is a class derived from penstock.state.Processor,
        or an object of one. It gets the rows of one key at a time, with the states of that key.

        Timers go by the time at which rows are worked on. With `event_time`, the name of a timestamp column, they go by
        the watermark, which stays `lateness` seconds behind the newest row. Rows that come later than that are dropped.

        With several `outputs` of one schema, a row has one more column, `output`, that names its output."""
        where = Location.of_caller()
        keys = tuple(key) if isinstance(key, Sequence) and not isinstance(key, str) else (key,)
        made, event_time, lateness = checked_processor(name, processor, event_time, lateness, where)
        declared = _outputs(name, schema, outputs, where)
        yielded = next(iter(declared.values()))
        if len(declared) > 1:
            yielded = yielded.append(pa.field(OUTPUT_COLUMN, pa.string()))
        return self.keyed(
            name,
            Processing(name, made, keys, yielded, event_time, lateness, output_mode, where),
            inputs=inputs,
            key=keys,
            schema=schema,
            outputs=outputs,
            tasks=tasks,
            instances=instances,
            min_instances=min_instances,
            output_mode=output_mode,
            takes_updates=takes_updates,
        )

    def aggregate(
        self,
        name: str,
        aggregates: Mapping[str, Aggregate],
        *,
        inputs: Sequence[Input] | Input,
        key: str | Sequence[str],
        tasks: int = DEFAULT_TASKS,
        instances: int = 1,
        min_instances: int = 1,
    ) -> Output:
        """Declare a keyed operator without a function: `aggregates` maps the name of each column of the result to an
        aggregate of penstock.aggregates. The operator emits the key and these columns whenever they change. A map
        "<name>-combine" combines rows before they go to the state. The map has as many instances as the operator
        before it, so that the two can run as one chain."""
        where = Location.of_caller()
        keys = tuple(key) if isinstance(key, Sequence) and not isinstance(key, str) else (key,)
        given = _as_sequence(inputs)
        before = [self._declared(name, item, where) for item in given]
        schema = _interleaved([operator.outputs[output] for operator, output in before])
        combine, merge = checked(name, keys, aggregates, schema, where)
        combined = self.map(
            f"{name}-combine",
            combine,
            inputs=given,
            schema=combine.schema,
            instances=max(operator.instances for operator, _ in before),
            gather=True,
        )
        return self.keyed(
            name,
            merge,
            inputs=combined,
            key=keys,
            schema=merge.schema,
            tasks=tasks,
            instances=instances,
            min_instances=min_instances,
        )

    def _declared(self, name: str, item: Input, where: Location) -> tuple[Operator, str]:
        """The operator of an input, and which of its outputs."""
        output = Output(item) if isinstance(item, str) else item
        for operator in self._operators:
            if isinstance(output, Output) and operator.name == output.operator and output.name in operator.outputs:
                return operator, output.name
        raise PenstockError(
            "NO_INPUT",
            f'"{name}" aggregates {item!r}, which is not declared yet.',
            "Declare the operator that it reads further up in the file: Penstock needs its columns here.",
            where,
        )

    def sink(
        self,
        name: str,
        spec: SinkKind,
        *,
        inputs: Sequence[Input] | Input,
        instances: int = 1,
        min_instances: int = 1,
        weight: float = 1.0,
        chained: bool = True,
    ) -> None:
        """Declare a sink, where rows leave. `spec` is made by a function of penstock.sinks. `weight` says how much a
        row of this sink counts in the throughput of the topology, compared with rows of other sinks."""
        where = Location.of_caller()
        if not isinstance(spec, SinkKind):
            raise PenstockError(
                "BAD_SINK",
                f'sink "{name}" is given a {type(spec).__name__}, which is no sink.',
                "Give what a function of penstock.sinks returns, or an object of your class derived from SinkKind.",
                where,
            )
        self._add(
            Sink(
                name=name,
                spec=spec,
                outputs={},
                instances=instances,
                min_instances=min_instances,
                weight=weight,
                chained=chained,
                where=where,
            ),
            _as_sequence(inputs),
        )

    def definition(self) -> TopologyDefinition:
        """The topology, checked and frozen. The first mistake is raised as a named error."""
        return validate(self.name, tuple(self._operators), tuple(self._streams), self.where)

    def _add(
        self, operator: Operator, inputs: Sequence[Input], main: str = MAIN_OUTPUT, default: Grouping | None = None
    ) -> Output:
        self._operators.append(operator)
        for item in inputs:
            if not isinstance(item, Output | str):
                raise PenstockError(
                    "NO_INPUT",
                    f'an input of "{operator.name}" is a {type(item).__name__}.',
                    "Give what the declaration of the other operator returned, or the name of that operator.",
                    operator.where,
                )
            output = Output(item) if isinstance(item, str) else item
            grouping = default if default is not None and output.grouping == Shuffle() else output.grouping
            self._streams.append(Stream(output.operator, output.name, operator.name, grouping, operator.where))
        return Output(operator.name, main)


def _as_sequence(inputs: Sequence[Input] | Input) -> Sequence[Input]:
    # What is neither one input nor several of them is named by the check of each input.
    return (inputs,) if isinstance(inputs, str) or not isinstance(inputs, Sequence) else inputs


def _interleaved(schemas: Sequence[pa.Schema]) -> pa.Schema:
    # Inputs that do not agree are the validation's to refuse.
    agree = all(same_schema(schemas[0], other) for other in schemas)
    return common_schema(schemas) if agree else schemas[0]


def _on_error(name: str, on_error: str, where: Location) -> OnError:
    try:
        return OnError(on_error)
    except ValueError:
        choices = ", ".join(OnError)
        raise PenstockError(
            "BAD_ON_ERROR", f'"{name}" has on_error="{on_error}", which is unknown.', f"Use one of: {choices}.", where
        ) from None


def _outputs(
    name: str, schema: Schema | None, outputs: Mapping[str, Schema] | None, where: Location
) -> dict[str, pa.Schema]:
    if (schema is None) == (not outputs):
        raise PenstockError(
            "BAD_SCHEMA",
            f'"{name}" needs either a schema (for one output) or outputs (for several), and not both.',
            'For example schema="word string", or outputs={"good": "id long", "bad": "line string"}.',
            where,
        )
    if outputs is not None and not isinstance(outputs, Mapping):
        raise PenstockError(
            "BAD_SCHEMA",
            f'the outputs of "{name}" are a {type(outputs).__name__}.',
            'Give a dict of schemas by name, like {"good": "id long", "bad": "line string"}.',
            where,
        )
    declared = {MAIN_OUTPUT: schema} if schema is not None else dict(outputs or {})
    return {output: parse_schema(text, where) for output, text in declared.items()}


def _with_dead_letter(outputs: dict[str, pa.Schema], chosen: OnError) -> dict[str, pa.Schema]:
    # An output of that name that the user declared is kept here, for the validation to refuse.
    reserved = {DEAD_LETTER: outputs.get(DEAD_LETTER, DEAD_LETTER_SCHEMA)}
    return outputs | reserved if chosen is OnError.DEAD_LETTER else outputs
