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
from typing import Any

import pyarrow as pa

from penstock.aggregates import Aggregate, checked
from penstock.errors import Location, PenstockError
from penstock.kinds import SinkKind, SourceKind
from penstock.schema import Schema
from penstock.topology.arguments import (
    as_sequence,
    chosen_on_error,
    declared_outputs,
    interleaved,
    key_columns,
    with_dead_letter,
)
from penstock.topology.definition import (
    DEFAULT_TASKS,
    MAIN_OUTPUT,
    OUTPUT_COLUMN,
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
from penstock.topology.output import Input, Output
from penstock.topology.state.processing import Processing
from penstock.topology.state.processing import checked as checked_processor
from penstock.topology.state.processor import Processor
from penstock.topology.validation import validate

__all__ = ["Input", "Output", "Topology"]


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
        chosen = chosen_on_error(name, on_error, where)
        outputs = with_dead_letter({MAIN_OUTPUT: spec.schema}, chosen)
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
        chosen = chosen_on_error(name, on_error, where)
        declared = declared_outputs(name, schema, outputs, where)
        operator = Map(
            name=name,
            function=function,
            outputs=with_dead_letter(declared, chosen),
            instances=instances,
            min_instances=min_instances,
            tasks=tasks,
            on_error=chosen,
            chained=chained,
            gathers=gather,
            where=where,
        )
        return self._add(operator, as_sequence(inputs), main=next(iter(declared)))

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
        declared = declared_outputs(name, schema, outputs, where)
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
        return self._add(operator, as_sequence(inputs), main=next(iter(declared)))

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
        keys = key_columns(key)
        declared = declared_outputs(name, schema, outputs, where)
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
        return self._add(operator, as_sequence(inputs), main=next(iter(declared)), default=ByKey(keys))

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
        keys = key_columns(key)
        made, event_time, lateness = checked_processor(name, processor, event_time, lateness, where)
        declared = declared_outputs(name, schema, outputs, where)
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
        keys = key_columns(key)
        given = as_sequence(inputs)
        before = [self._declared(name, item, where) for item in given]
        schema = interleaved([operator.outputs[output] for operator, output in before])
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
            as_sequence(inputs),
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
