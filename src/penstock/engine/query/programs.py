"""The programs of one query: what the bundles on the executors read, do and write. A program knows nothing of batches
or of what starts them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.engine.executor.readers import ChannelReader
from penstock.engine.message.program import Program, Reader, Stage
from penstock.engine.query.context import RunContext
from penstock.topology.definition import OUTPUT_COLUMN, Keyed, Map, Operator, Sink, Stream


class Programs:
    """The programs of one operator, or of a chain of operators."""

    def __init__(self, chain: Sequence[Operator], context: RunContext) -> None:
        self._chain = chain
        #: The first operator of the chain is the one that reads.
        self._first = chain[0]
        self._context = context

    def whole(self, reader: Reader) -> Program:
        """The bundles read the rows, call the functions of all operators of the chain, and write what these return."""
        stages = [
            self._stage(operator, _function_of(operator), self._passed_on(index))
            for index, operator in enumerate(self._chain)
        ]
        return Program(tuple(stages), reader, self._context.store)

    def reading(self, reader: Reader) -> Program:
        """The bundles only read: Spark SQL gets the rows."""
        return Program((self._stage(self._first, None),), reader, self._context.store)

    def writing(self) -> Program:
        """The bundles only write: they get the rows from Spark SQL."""
        several = len(self._first.outputs) > 1
        stage = self._stage(self._first, None, output_column=OUTPUT_COLUMN if several else None)
        return Program((stage,), None, self._context.store)

    def channel_reader(self, streams: Sequence[Stream]) -> ChannelReader:
        """What reads the rows of these streams, interleaved, from the segments of their channels."""
        store, schema = self._context.store, self._context.definition.schema_of_all(streams)
        if isinstance(self._first, Keyed):
            return ChannelReader(store, schema, self._context.split_key(self._first.name), self._first.tasks)
        return ChannelReader(store, schema)

    def _passed_on(self, index: int) -> str | None:
        """The output that the next operator of the chain reads; None for the last operator."""
        if index + 1 == len(self._chain):
            return None
        return self._context.definition.inputs_of(self._chain[index + 1].name)[0].output

    def _stage(
        self,
        operator: Operator,
        function: Callable[..., Any] | None,
        passes_on: str | None = None,
        output_column: str | None = None,
    ) -> Stage:
        written = [one for one in self._context.output_channels(operator.name) if one.output != passes_on]
        return Stage(
            operator=operator.name,
            where=operator.where,
            function=function,
            outputs=dict(operator.outputs),
            channels={
                output: tuple(channel for channel in written if channel.output == output) for output in operator.outputs
            },
            on_error=operator.on_error,
            file_writer=self._context.file_writer(operator, self._first) if isinstance(operator, Sink) else None,
            passes_on=passes_on,
            gathers=isinstance(operator, Map) and operator.gathers,
            output_column=output_column,
        )


def _function_of(operator: Operator) -> Callable[..., Any] | None:
    if isinstance(operator, Map):
        return operator.function
    return operator.spec.bundle_function() if isinstance(operator, Sink) else None
