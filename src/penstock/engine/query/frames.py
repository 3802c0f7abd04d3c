"""The streaming DataFrame of one query: what it reads, what it does, what it writes. Built once, before any row.

Three paths. Arrow: descriptors in, reports out, the rows stay in the Python workers; the only path for chains.
DataFrame: the first stage reads rows, Spark SQL does the operator's work, the last stage writes segments. Batch: a sink
that gets a DataFrame.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.channels.layout import Channel, channel_name
from penstock.channels.log import Channels
from penstock.channels.segments import SegmentStore
from penstock.clock import run_time
from penstock.engine.executor import bundle
from penstock.engine.executor.readers import ChannelReader, SourceReader
from penstock.engine.message.program import Program, Reader, Stage
from penstock.engine.message.shares import Spread
from penstock.engine.query.feeds import Batch, ChannelFeed, ChannelInput, Seats, SourceFeed
from penstock.engine.query.intake import Intake
from penstock.engine.query.rehearsal import frame_of, input_groups
from penstock.engine.spark.java_values import java_of
from penstock.engine.spark.streams import Streams
from penstock.engine.state.checkpoint_log import CheckpointLog
from penstock.kinds import BatchWriter, FileWriter, SinkPlace, SourcePlace
from penstock.monitor.report import BatchReport
from penstock.settings import Settings
from penstock.topology.definition import Broadcast, Keyed, Map, Operator, Sink, Source, Stream, TopologyDefinition
from penstock.topology.validate_operators import OUTPUT_COLUMN

AnyFeed = ChannelFeed | SourceFeed
#: Hears of every batch that is published: its report, and what its feeds gave out.
Published = Callable[[BatchReport, Sequence[Batch]], None]


@dataclass(frozen=True)
class Environment:
    """What all operators of a running topology share."""

    definition: TopologyDefinition
    spark: SparkSession
    streams: Streams
    channels: Channels
    layout: dict[str, Channel]
    store: SegmentStore
    settings: Settings
    checkpoints: str
    published: Published
    #: A few letters that no other state has.
    identity: str = ""
    #: How many batches operators may have had before they began anew, and counted them from 0 again.
    batches_before: Mapping[str, int] = field(default_factory=dict)
    #: By source: what it remembers as long as the run lasts.
    memories: dict[str, dict[str, Any]] = field(default_factory=dict)

    def checkpoint(self, operator: str) -> str:
        """Where Spark keeps the offsets and the state of an operator's query."""
        return f"{self.checkpoints}/{operator}"

    def checkpoint_log(self, operator: str) -> CheckpointLog:
        """What is written there of the query's batches."""
        return CheckpointLog.open(self.spark, self.checkpoint(operator))

    def place_of_source(self, source: Source) -> SourcePlace:
        return SourcePlace(
            source.name,
            self.channels.catalog,
            run_time,
            source.where,
            prefix=f"source/{source.name}/",  # of every kind: Catalog.give_up knows this word
            memory=self.memories.setdefault(source.name, {}),
        )

    def place_of_sink(self, sink: Sink, first: Operator | None = None) -> SinkPlace:
        """Of a sink that is written by the query of a chain that begins with `first`; None is the sink's own query."""
        before = self.batches_before.get(sink.name, 0)
        by = ""
        if first is not None and first.name != sink.name:
            # Another query has written its batches before, and may again: each counts them for itself.
            anew = self.batches_before.get(first.name, 0)
            by = f".{first.name}{f'.{anew}' if anew else ''}"
        mark = mark_of(self.identity, sink.name, before)
        return SinkPlace(sink.name, mark, by, before, java_of)

    def file_writer(self, sink: Sink, first: Operator | None = None) -> FileWriter | None:
        return sink.spec.file_writer(self.place_of_sink(sink, first))

    def output_channels(self, operator: str) -> list[Channel]:
        return [channel for channel in self.layout.values() if channel.producer == operator]

    def written_by(self, chain: Sequence[Operator]) -> list[str]:
        """The channels that a chain writes: those between its operators stay empty."""
        names = [operator.name for operator in chain]
        inside = {
            channel_name(self.definition, stream) for name in names[1:] for stream in self.definition.inputs_of(name)
        }
        return [one.name for name in names for one in self.output_channels(name) if one.name not in inside]


@dataclass(frozen=True)
class OperatorFrame:
    """What a query is started from."""

    frame: DataFrame
    feeds: list[AnyFeed]
    output_mode: str = "append"
    #: Whether the bundles do the work, and not Spark SQL.
    arrow: bool = False
    #: Of sinks that get each micro-batch as a DataFrame.
    batch_writer: BatchWriter | None = None


class FrameBuilder:
    """Builds the frame of one operator, or of a chain of them, in a session of its own."""

    def __init__(
        self,
        chain: Sequence[Operator],
        environment: Environment,
        session: SparkSession,
        intake: Intake,
        seats: Seats,
    ) -> None:
        self.chain = chain
        #: The one that reads.
        self.operator = chain[0]
        self.environment = environment
        self.intake = intake
        self.seats = seats
        self._session = session
        self._feeds: list[AnyFeed] = []

    def build(self) -> OperatorFrame:
        operator = self.operator
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
        inputs = self._inputs()
        frame = self._arrow_path(self._channel_feed(inputs), self._channel_reader(inputs))
        return OperatorFrame(frame, self._feeds, arrow=True)

    def _source_frame(self, operator: Source) -> DataFrame:
        spec = operator.spec
        offsets = spec.offsets(self.environment.place_of_source(operator))
        return self._arrow_path(SourceFeed(offsets, spec.unit, self.intake, self.seats), SourceReader(spec))

    def _arrow_path(self, feed: AnyFeed, reader: Reader) -> DataFrame:
        stages = [self._stage(one, _function_of(one), self._passed_on(index)) for index, one in enumerate(self.chain)]
        program = Program(tuple(stages), reader, self.environment.store)
        self._feeds.append(feed)
        descriptors = self.environment.streams.placed(self._session, self.operator.name, feed)
        return descriptors.mapInArrow(functools.partial(bundle.run, program.pack()), "report binary")

    def _passed_on(self, index: int) -> str | None:
        """The output that the next operator of the chain reads."""
        if index + 1 == len(self.chain):
            return None
        return self.environment.definition.inputs_of(self.chain[index + 1].name)[0].output

    def _batch_writer(self, sink: Sink) -> BatchWriter | None:
        return sink.spec.batch_writer(self.environment.place_of_sink(sink))

    def _through_spark_sql(self, function: Callable[..., Any], arguments: Sequence[Any]) -> DataFrame:
        """What the user's function of DataFrames, or of the session, returns: checked, and written to segments where it
        comes out. The function runs once, here, before any row is read."""
        frame = frame_of(self.operator, function, arguments)
        several = len(self.operator.outputs) > 1
        stage = self._stage(self.operator, None, output_column=OUTPUT_COLUMN if several else None)
        program = Program((stage,), None, self.environment.store)
        return frame.mapInArrow(functools.partial(bundle.write, program.pack()), "report binary")

    def _read_inputs(self) -> list[DataFrame]:
        """The operator's inputs as streaming DataFrames: one, interleaved, or one per input."""
        operator = self.operator
        groups = input_groups(self.environment.definition, operator)
        frames = []
        for index, streams in enumerate(groups):
            feed = self._channel_feed(streams)
            self._feeds.append(feed)
            reader = self._channel_reader(streams)
            name = operator.name if len(groups) == 1 else f"{operator.name}.{index}"
            descriptors = self.environment.streams.placed(self._session, name, feed)
            program = Program((self._stage(operator, None),), reader, self.environment.store)
            read = functools.partial(bundle.read, program.pack())
            frames.append(descriptors.mapInArrow(read, from_arrow_schema(reader.schema)))
        return frames

    def _channel_reader(self, streams: Sequence[Stream]) -> ChannelReader:
        return ChannelReader(self.environment.store, self.environment.definition.schema_of_all(streams))

    def _channel_feed(self, streams: Sequence[Stream]) -> ChannelFeed:
        environment = self.environment
        inputs = [self._channel_input(stream) for stream in streams]
        most = environment.settings.batch_bytes
        return ChannelFeed(self.operator.name, inputs, environment.channels, self.intake, self.seats, most)

    def _channel_input(self, stream: Stream) -> ChannelInput:
        channel = self.environment.layout[channel_name(self.environment.definition, stream)]
        if channel.key:
            return ChannelInput(channel.name, Spread.BY_KEY, channel.groups)
        # A by-key stream into a keyed operator is split by Spark's own shuffle, behind this read.
        spread = Spread.BROADCAST if isinstance(stream.grouping, Broadcast) else Spread.SHUFFLE
        return ChannelInput(channel.name, spread)

    def _inputs(self) -> tuple[Stream, ...]:
        return self.environment.definition.inputs_of(self.operator.name)

    def _stage(
        self,
        operator: Operator,
        function: Callable[..., Any] | None,
        passes_on: str | None = None,
        output_column: str | None = None,
    ) -> Stage:
        written = [one for one in self.environment.output_channels(operator.name) if one.output != passes_on]
        return Stage(
            operator=operator.name,
            where=operator.where,
            function=function,
            outputs=dict(operator.outputs),
            channels={
                output: tuple(channel for channel in written if channel.output == output) for output in operator.outputs
            },
            on_error=operator.on_error,
            file_writer=self.environment.file_writer(operator, self.operator) if isinstance(operator, Sink) else None,
            passes_on=passes_on,
            gathers=isinstance(operator, Map) and operator.gathers,
            output_column=output_column,
        )


def _function_of(operator: Operator) -> Callable[..., Any] | None:
    if isinstance(operator, Map):
        return operator.function
    return operator.spec.bundle_function() if isinstance(operator, Sink) else None


def mark_of(identity: str, sink: str, before: int) -> str:
    """What a sink writes into a place that others write to as well has this mark: the identity of its state, and how
    many batches the sink may have had before it began anew and counted them from 0 again."""
    return f"{identity}{f'x{before}' if before else ''}-{sink}"
