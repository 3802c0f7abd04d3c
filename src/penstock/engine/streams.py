"""How queries are started: placed, through Spark's internals, or unplaced, through public interfaces only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.engine.spark_internals import BatchSink, Feed, SparkInternals

Failed = Callable[[Exception], None]


class Streams(Protocol):
    #: None where bundles cannot be placed.
    internals: SparkInternals | None

    def placed(self, session: SparkSession, name: str, feed: Feed, failed: Failed) -> DataFrame:
        """A streaming DataFrame of the feed's descriptors."""

    def start(
        self, frame: DataFrame, name: str, checkpoint: str, output_mode: str, sink: BatchSink, failed: Failed
    ) -> StreamingQuery:
        """Start a query whose rows are reports for the sink."""

    def start_batches(
        self, frame: DataFrame, name: str, checkpoint: str, function: Callable[[DataFrame, int], None]
    ) -> StreamingQuery:
        """Start a query that hands every micro-batch to a function."""

    def close(self) -> None: ...


def start_foreach_batch(
    frame: DataFrame,
    name: str,
    checkpoint: str,
    function: Callable[[DataFrame, int], None],
    output_mode: str = "append",
) -> StreamingQuery:
    writer = frame.writeStream.queryName(name).option("checkpointLocation", checkpoint).outputMode(output_mode)
    return writer.foreachBatch(function).start()


class PlacedStreams:
    """The usual way."""

    def __init__(self, internals: SparkInternals) -> None:
        self.internals: SparkInternals | None = internals
        self._internals = internals

    def placed(self, session: SparkSession, name: str, feed: Feed, failed: Failed) -> DataFrame:
        return self._internals.placed_stream(session, name, feed, failed)

    def start(
        self, frame: DataFrame, name: str, checkpoint: str, output_mode: str, sink: BatchSink, failed: Failed
    ) -> StreamingQuery:
        return self._internals.start(frame, name, checkpoint, output_mode, sink, failed)

    def start_batches(
        self, frame: DataFrame, name: str, checkpoint: str, function: Callable[[DataFrame, int], None]
    ) -> StreamingQuery:
        return start_foreach_batch(frame, name, checkpoint, function)

    def close(self) -> None:
        pass
