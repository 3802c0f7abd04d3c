"""One operator as one Structured Streaming query: what it reads, what it does, where it publishes.

Three paths. Arrow: descriptors in, reports out, the rows stay in the Python workers. DataFrame: the first stage reads
rows, Spark SQL does the operator's work, the last stage writes segments. Batch: a sink that gets a DataFrame.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from penstock.channels.layout import Channel, channel_name
from penstock.channels.log import Channels
from penstock.channels.segments import SegmentStore
from penstock.engine import bundle
from penstock.engine.failures import named_error
from penstock.engine.feeds import Batch, ChannelFeed, ChannelInput, RateFeed, Seats
from penstock.engine.file_feed import FileFeed
from penstock.engine.intake import Intake
from penstock.engine.manifest import BatchReport, BundleReport, rows_out
from penstock.engine.pacing import FIRST_ROWS_OF_SQL, Pacer
from penstock.engine.program import FileWriter, Program, Reader
from penstock.engine.readers import ChannelReader, FileReader, RateReader
from penstock.engine.sink_writers import BatchWriter, batch_writer, file_writer, finish_files
from penstock.engine.spark_internals import QueryIdentity
from penstock.engine.splitting import Spread
from penstock.engine.state_folder import identity_of
from penstock.engine.state_placement import StatePlacer
from penstock.engine.streams import Streams
from penstock.errors import PenstockError
from penstock.settings import Settings
from penstock.sources.specs import DataframeSource, FileSource, RateSource
from penstock.topology.dataframe_function import frames_taken
from penstock.topology.definition import (
    Broadcast,
    Keyed,
    Map,
    Operator,
    Sink,
    Source,
    Stream,
    TopologyDefinition,
)
from penstock.topology.schema import same_schema, schema_text

OUTPUT_COLUMN = "output"
#: How often a source that Spark drives is asked whether its output channels have room again.
FULL_POLL = 0.5
#: The first batch of a file source: a file or two, to learn what they cost.
FIRST_FILE_BYTES = 1 << 20


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
    published: Callable[[BatchReport], None]


class OperatorQuery:
    """The life of one operator: built, started with its gate closed, opened, drained, stopped."""

    def __init__(self, operator: Operator, environment: Environment, seats: Seats) -> None:
        self.operator = operator
        self.environment = environment
        self.seats = seats
        self.failure: PenstockError | None = None
        self._stopping = False
        self.query: StreamingQuery | None = None
        self.state: StatePlacer | None = None
        self.feeds: list[ChannelFeed | RateFeed | FileFeed] = []
        #: When the batch began, where no feed was asked for its rows.
        self._wanted_at = 0.0
        #: Whether its bundles do the work, and not Spark SQL.
        self._arrow = False
        settings = environment.settings
        self.intake = Intake(
            environment.channels,
            [channel.name for channel in self._output_channels()],
            self._pacer(settings),
            settings.batch_linger,
            self.fail,
            throttle=settings.backlog_policy == "throttle",
            # Some stateful operators need one batch without rows after a batch with rows: do not make them wait.
            patient_at_once=not isinstance(operator, Keyed),
        )
        self._session = environment.spark.newSession()
        if isinstance(operator, Keyed):
            self._session.conf.set("spark.sql.shuffle.partitions", str(operator.tasks))

    def _pacer(self, settings: Settings) -> Pacer:
        if isinstance(self.operator, Source) and isinstance(self.operator.spec, FileSource):
            return Pacer(settings.batch_interval, settings.batch_bytes, first=FIRST_FILE_BYTES)
        if isinstance(self.operator, Keyed) or getattr(self.operator, "takes_dataframes", False):
            return Pacer(settings.batch_interval, settings.batch_rows, first=FIRST_ROWS_OF_SQL)
        return Pacer(settings.batch_interval, settings.batch_rows)

    # Building and starting

    def start(self) -> None:
        """Start the query. No row gets in before `intake.open()`."""
        operator, streams = self.operator, self.environment.streams
        # The query's thread inherits the pool from the thread that starts it.
        self._session.sparkContext.setLocalProperty("spark.scheduler.pool", operator.name)
        checkpoint = f"{self.environment.checkpoints}/{operator.name}"
        writer = batch_writer(operator.spec) if isinstance(operator, Sink) else None
        if writer is not None:
            frame = self._read_inputs()[0]
            identity = QueryIdentity(operator.name, checkpoint)
            self.query = streams.start_batches(frame, identity, functools.partial(self._write_batch, writer))
            return
        frame, output_mode = self._frame()
        if isinstance(operator, Keyed) and streams.internals is not None:
            self.state = StatePlacer(streams.internals, frame, operator.tasks)
        self.query = streams.start(frame, QueryIdentity(operator.name, checkpoint, output_mode), self)

    def _frame(self) -> tuple[DataFrame, str]:
        operator = self.operator
        if isinstance(operator, Source):
            if isinstance(operator.spec, DataframeSource):
                return self._through_spark_sql(self._call(operator.spec.function, self._session)), "append"
            return self._source_frame(operator), "append"
        if isinstance(operator, Keyed):
            return self._through_spark_sql(self._call(operator.function, *self._read_inputs())), operator.output_mode
        if isinstance(operator, Map) and operator.takes_dataframes:
            return self._through_spark_sql(self._call(operator.function, *self._read_inputs())), "append"
        return self._arrow_path(self._channel_feed(self._inputs()), ChannelReader(self.environment.store)), "append"

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The user's function of DataFrames, or of the session: it runs once, here, before any row is read."""
        try:
            return function(*arguments)
        except Exception as error:
            raise named_error(self.operator, error) from error

    def _source_frame(self, operator: Source) -> DataFrame:
        spec = operator.spec
        if isinstance(spec, RateSource):
            return self._arrow_path(RateFeed(spec, self.intake, self.seats), RateReader(spec.content))
        if isinstance(spec, FileSource):
            feed = FileFeed(operator, spec, self.environment.channels.catalog, self.intake, self.seats)
            return self._arrow_path(feed, FileReader(spec))
        raise PenstockError(
            "BAD_SOURCE", f'source "{operator.name}" is of unknown kind {spec.kind}.', "Use one of penstock.sources."
        )

    def _arrow_path(self, feed: ChannelFeed | RateFeed | FileFeed, reader: Reader) -> DataFrame:
        operator = self.operator
        writer = self._file_writer(operator) if isinstance(operator, Sink) else None
        program = self._program(reader, operator.function if isinstance(operator, Map) else None, writer)
        self.feeds, self._arrow = [feed], True
        descriptors = self.environment.streams.placed(self._session, operator.name, feed)
        return descriptors.mapInArrow(functools.partial(bundle.run, program.pack()), "report binary")

    def _file_writer(self, sink: Sink) -> FileWriter | None:
        writer = file_writer(sink.spec, f"{identity_of(self.environment.channels.catalog)}-{sink.name}")
        if writer is not None:
            writer.clear()
        return writer

    def _through_spark_sql(self, frame: Any) -> DataFrame:
        """What the user's DataFrame function returned, checked, and written to segments where it comes out."""
        several = len(self.operator.outputs) > 1
        self._check_frame(frame, several)
        program = self._program(None, None, None, OUTPUT_COLUMN if several else None)
        rows: DataFrame = frame
        return rows.mapInArrow(functools.partial(bundle.write, program.pack()), "report binary")

    def _check_frame(self, frame: Any, several: bool) -> None:
        operator = self.operator
        declared = next(iter(operator.outputs.values()))
        if several:
            declared = declared.append(pa.field(OUTPUT_COLUMN, pa.string()))
        if not hasattr(frame, "isStreaming"):
            problem, name = f"the function returned a {type(frame).__name__}, not a DataFrame.", "BAD_FUNCTION"
        elif not frame.isStreaming:
            problem, name = "the function returned a DataFrame that is not a stream.", "BAD_FUNCTION"
        else:
            returned = to_arrow_schema(frame.schema, timezone="UTC")
            if same_schema(returned, declared):
                return
            name = "FUNCTION_SCHEMA"
            problem = f'declared is "{schema_text(declared)}", but the function returned "{schema_text(returned)}".'
        raise PenstockError(
            name,
            f'"{operator.name}": {problem}',
            "Change the declaration, or select and cast in the function.",
            operator.where,
        )

    def _read_inputs(self) -> list[DataFrame]:
        """The operator's inputs as streaming DataFrames: one, interleaved, or one per input."""
        operator, inputs = self.operator, self._inputs()
        function = getattr(operator, "function", None)
        apart = function is not None and len(inputs) > 1 and frames_taken(function, len(inputs)) != 1
        groups = [[stream] for stream in inputs] if apart else [list(inputs)]
        frames = []
        for index, streams in enumerate(groups):
            feed = self._channel_feed(streams)
            self.feeds.append(feed)
            schema = self.environment.definition.schema_of(streams[0])
            name = operator.name if len(groups) == 1 else f"{operator.name}.{index}"
            descriptors = self.environment.streams.placed(self._session, name, feed)
            program = self._program(ChannelReader(self.environment.store), None, None)
            frames.append(
                descriptors.mapInArrow(functools.partial(bundle.read, program.pack()), from_arrow_schema(schema))
            )
        return frames

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

    def _output_channels(self) -> list[Channel]:
        return [channel for channel in self.environment.layout.values() if channel.producer == self.operator.name]

    def _program(
        self,
        reader: Reader | None,
        function: Callable[..., Any] | None,
        writer: FileWriter | None,
        output_column: str | None = None,
    ) -> Program:
        operator = self.operator
        channels = {
            output: tuple(channel for channel in self._output_channels() if channel.output == output)
            for output in operator.outputs
        }
        return Program(
            operator=operator.name,
            where=operator.where,
            reader=reader,
            function=function,
            outputs=dict(operator.outputs),
            channels=channels,
            store=self.environment.store,
            on_error=operator.on_error,
            file_writer=writer,
            output_column=output_column,
        )

    # Micro-batches

    def wants(self, batch: int) -> bool:
        """A batch that was published before the driver died need not run again; state must be brought up to date."""
        last = self.environment.channels.last_batch(self.operator.name)
        done = last is not None and batch <= last and not isinstance(self.operator, Keyed)
        if done:
            for feed in self.feeds:
                feed.take_batch()
            self.intake.ended(0, 0.0)
            return False
        self._wanted_at = time.monotonic()
        # Bundles that get their rows from Spark SQL cannot know how old these are.
        held = [feed.batch for feed in self.feeds if feed.batch.rows]
        born = [min(b.born_from for b in held), max(b.born_to for b in held)] if held else [time.time()] * 2
        self._session.sparkContext.setLocalProperty(bundle.BORN_PROPERTY, json.dumps(born))
        return True

    def take(self, batch: int, reports: Sequence[bytes]) -> None:
        """The reports of a micro-batch's bundles: publish what they wrote, in one transaction."""
        self._publish(batch, tuple(BundleReport.parse(text) for text in reports))

    def _write_batch(self, writer: BatchWriter, frame: DataFrame, batch: int) -> None:
        try:
            if self.wants(batch):
                started = time.perf_counter()
                writer.write(frame, batch)
                self._publish(batch, (), time.perf_counter() - started)
        except Exception as error:
            self.fail(error)
            raise RuntimeError(f"{self.operator.name} failed; the driver knows why") from None

    def _publish(self, batch: int, bundles: tuple[BundleReport, ...], busy: float | None = None) -> None:
        taken = [feed.take_batch() for feed in self.feeds]
        finished = time.time()
        began = self.intake.turn.started or self._wanted_at
        report = BatchReport(
            operator=self.operator.name,
            batch=batch,
            started=finished - (time.monotonic() - began),
            finished=finished,
            rows_in=self._rows_in(taken, bundles),
            rows_out={} if isinstance(self.operator, Sink) else rows_out(bundles),
            bundles=bundles or _as_one_bundle(taken, busy or 0.0),
        )
        segments = [segment for one in bundles for segment in one.segments]
        read_to = {channel: row for one in taken for channel, row in one.read_to.items()}
        self.environment.channels.publish(self.operator.name, batch, segments, report.as_json(), read_to)
        finish_files(report)
        # Spark SQL does not say how much of its time was for rows.
        known = report.busy if self._arrow else busy
        self.intake.ended(self._work(taken, bundles), known)
        self.environment.published(report)
        if not self.feeds:
            self._wait_for_room()

    def _rows_in(self, taken: Sequence[Batch], bundles: Sequence[BundleReport]) -> int:
        if not self.feeds:
            return sum(rows_out(bundles).values())
        if isinstance(self.feeds[0], FileFeed):
            return sum(one.rows_in for one in bundles)  # how many there are in a file, only its reader knows
        return sum(one.rows for one in taken)

    def _work(self, taken: Sequence[Batch], bundles: Sequence[BundleReport]) -> int:
        """What the pacer counts: rows, or bytes for files."""
        if self.feeds and isinstance(self.feeds[0], FileFeed):
            return self.feeds[0].last_bytes
        return sum(one.rows for one in taken)

    def _wait_for_room(self) -> None:
        """A source that Spark drives by itself is held back where its batch ends."""
        channels, names = self.environment.channels, [channel.name for channel in self._output_channels()]
        while not self.intake.closed and self.environment.settings.backlog_policy == "throttle":
            self.intake.throttled = not channels.wait(lambda: not any(map(channels.full, names)), FULL_POLL)
            if not self.intake.throttled:
                return

    def fail(self, error: Exception) -> None:
        """The first failure counts; those that follow are its consequences, as are those of a query that is stopped in
        the middle of a batch."""
        if self.failure is None and not self._stopping:
            self.failure = named_error(self.operator, error)

    # Ending

    @property
    def drained(self) -> bool:
        """Everything that was published for it is read and published on, and no batch is under way."""
        return self.intake.idle and all(feed.drained for feed in self.feeds)

    def check(self) -> None:
        """Raise what the query failed with, if it did."""
        if self.failure is None and self.query is not None and not self.query.isActive:
            problem = self.query.exception()
            if problem is not None:
                self.fail(problem)
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        """End the query between two micro-batches if that is possible, and in the middle of one otherwise: it will be
        replayed."""
        self.intake.close()
        self._stopping = True
        if self.query is not None and self.query.isActive:
            deadline = time.monotonic() + self.environment.settings.batch_interval * 4 + 2
            while self.intake.in_batch and self.query.isActive and time.monotonic() < deadline:
                time.sleep(0.01)
            with suppress(Exception):  # the whole session may be gone already
                self.query.stop()


def _as_one_bundle(taken: Sequence[Batch], busy: float) -> tuple[BundleReport, ...]:
    """The report of a batch that a function of a DataFrame handled: Spark alone knows where its parts ran."""
    held = [one for one in taken if one.rows]
    if not held:
        return ()
    return (
        BundleReport(
            slot="driver",
            instances=1,
            partition=0,
            executor=None,
            host="",
            pid=0,
            rows_in=sum(one.rows for one in held),
            bytes_in=0,
            rows_out={},
            busy=busy,
            busy_total=busy,
            cpu=0.0,
            seconds=busy,
            born_from=min(one.born_from for one in held),
            born_to=max(one.born_to for one in held),
        ),
    )
