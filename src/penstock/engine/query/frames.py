"""The streaming DataFrame that Spark runs as one query. It is built once, before any row is read.

There are three paths. On the Arrow path descriptors go in and reports come out, and the rows stay in the Python
workers; only this path can run a chain. On the DataFrame path bundles read the rows, Spark SQL does the work of the
operator, and bundles write the segments. On the batch path a sink gets every micro-batch as a DataFrame.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.channels.layout import channel_name
from penstock.engine.executor import bundle
from penstock.engine.executor.readers import SourceReader
from penstock.engine.message.program import Reader
from penstock.engine.message.shares import Spread
from penstock.engine.query.context import RunContext
from penstock.engine.query.feeds import AnyFeed, ChannelFeed, ChannelInput, SourceFeed
from penstock.engine.query.intake import Intake
from penstock.engine.query.keyed_feed import KeyedFeed
from penstock.engine.query.programs import Programs
from penstock.engine.query.rehearsal import frame_of, input_groups
from penstock.engine.query.seats import Seats
from penstock.engine.spark.split_streams import SplitRows
from penstock.kinds import BatchWriter
from penstock.topology.definition import Broadcast, Keyed, Map, Operator, Sink, Source, Stream


@dataclass(frozen=True)
class OperatorFrame:
    """What a query is started from."""

    frame: DataFrame
    #: The inputs of the query. A source that Spark itself drives has none.
    feeds: list[AnyFeed]
    output_mode: str = "append"
    #: Whether the bundles do the work, and not Spark SQL.
    arrow: bool = False
    #: What writes every micro-batch of a sink that gets it as a DataFrame; None for all other operators.
    batch_writer: BatchWriter | None = None


class FrameBuilder:
    """Builds the frame of one operator, or of a chain of operators, in a session of its own."""

    def __init__(
        self,
        chain: Sequence[Operator],
        context: RunContext,
        session: SparkSession,
        intake: Intake,
        seats: Seats,
    ) -> None:
        #: The first operator of the chain is the one that reads.
        self._operator = chain[0]
        self._context = context
        self._intake = intake
        self._seats = seats
        self._session = session
        self._programs = Programs(chain, context)
        self._feeds: list[AnyFeed] = []

    def build(self) -> OperatorFrame:
        operator = self._operator
        writer = self._batch_writer(operator) if isinstance(operator, Sink) else None
        if writer is not None:
            return OperatorFrame(self._read_inputs()[0], self._feeds, batch_writer=writer)
        if isinstance(operator, Source):
            if not operator.spec.read_by_bundles:
                return OperatorFrame(self._through_spark_sql(operator.spec.stream, [self._session]), self._feeds)
            return OperatorFrame(self._source_frame(operator), self._feeds, arrow=True)
        if isinstance(operator, Keyed):
            frame = self._through_spark_sql(operator.function, self._read_inputs())
            return OperatorFrame(frame, self._feeds, operator.output_mode)
        if isinstance(operator, Map) and operator.takes_dataframes:
            return OperatorFrame(self._through_spark_sql(operator.function, self._read_inputs()), self._feeds)
        inputs = self._context.definition.inputs_of(operator.name)
        frame = self._arrow_path(self._channel_feed(inputs), self._programs.channel_reader(inputs))
        return OperatorFrame(frame, self._feeds, arrow=True)

    def _source_frame(self, operator: Source) -> DataFrame:
        spec = operator.spec
        offsets = spec.offsets(self._context.place_of_source(operator))
        return self._arrow_path(SourceFeed(offsets, spec.unit, self._intake, self._seats), SourceReader(spec))

    def _arrow_path(self, feed: AnyFeed, reader: Reader) -> DataFrame:
        program = self._programs.whole(reader)
        self._feeds.append(feed)
        descriptors = self._context.streams.placed(self._session, self._operator.name, feed)
        return descriptors.mapInArrow(functools.partial(bundle.run, program.pack()), "report binary")

    def _batch_writer(self, sink: Sink) -> BatchWriter | None:
        return sink.spec.batch_writer(self._context.place_of_sink(sink))

    def _through_spark_sql(self, function: Callable[..., Any], arguments: Sequence[Any]) -> DataFrame:
        """The DataFrame that the user's function returns, checked, with bundles behind it that write its rows to
        segments. The function gets DataFrames, or the session. It runs once, here, before any row is read."""
        frame = frame_of(self._operator, function, arguments)
        return frame.mapInArrow(functools.partial(bundle.write, self._programs.writing().pack()), "report binary")

    def _read_inputs(self) -> list[DataFrame]:
        """The operator's inputs as streaming DataFrames: one for all inputs, interleaved, or one for each input."""
        operator = self._operator
        groups = input_groups(self._context.definition, operator)
        frames = []
        for index, streams in enumerate(groups):
            feed = self._channel_feed(streams, by_spark_sql=True)
            self._feeds.append(feed)
            reader = self._programs.channel_reader(streams)
            name = operator.name if len(groups) == 1 else f"{operator.name}.{index}"
            read = functools.partial(bundle.read, self._programs.reading(reader).pack())
            schema = from_arrow_schema(reader.schema)
            if isinstance(feed, KeyedFeed) and (internals := self._context.streams.internals) is not None:
                frames.append(internals.split_stream(self._session, name, feed, SplitRows(read, schema, reader.key)))
            else:
                descriptors = self._context.streams.placed(self._session, name, feed)
                frames.append(descriptors.mapInArrow(read, schema))
        return frames

    def _channel_feed(self, streams: Sequence[Stream], by_spark_sql: bool = False) -> ChannelFeed:
        inputs = [channel_input(self._context, stream) for stream in streams]
        most = self._context.settings.bytes_at_once
        kind = KeyedFeed if all(one.spread is Spread.BY_TASK for one in inputs) else ChannelFeed
        estimates = by_spark_sql and self._context.store.origins is not None
        return kind(
            self._operator.name,
            inputs,
            self._context.channels,
            self._intake,
            self._seats,
            most,
            estimates_links=estimates,
        )


def channel_input(context: RunContext, stream: Stream) -> ChannelInput:
    """How the rows of a stream reach the bundles of the operator that reads it."""
    channel = context.layout[channel_name(context.definition, stream)]
    if channel.key:
        return ChannelInput(channel.name, Spread.BY_KEY, channel.groups)
    consumer = context.definition.operator(stream.consumer)
    if isinstance(consumer, Keyed) and context.split_key(consumer.name):
        return ChannelInput(channel.name, Spread.BY_TASK, consumer.tasks)
    # Other streams into a keyed operator are split by Spark's own shuffle, behind this read.
    spread = Spread.BROADCAST if isinstance(stream.grouping, Broadcast) else Spread.SHUFFLE
    return ChannelInput(channel.name, spread)
