"""How queries are started: placed, through Spark's internals, or unplaced, through public interfaces only."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.engine.spark.internals import QueryIdentity, SparkInternals
from penstock.engine.spark.java_callbacks import BatchSink, Feed

#: How long an answer of Spark's about all queries is good for.
ACTIVE_SECONDS = 0.2
WriteBatch = Callable[[DataFrame, int], None]


class ActiveQueries:
    """Which queries have not ended. Spark is asked about all of them in one call, however many there are and however
    often somebody looks."""

    def __init__(self, ask: Callable[[], frozenset[str]], clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._lock = threading.Lock()
        self._ids: frozenset[str] = frozenset()
        self._asked_at: float | None = None

    def has(self, query: str) -> bool:
        """False if the query, named by its id, has ended or was started only just now."""
        with self._lock:
            now = self._clock()
            if self._asked_at is None or now >= self._asked_at + ACTIVE_SECONDS:
                self._ids, self._asked_at = self._ask(), now
            return query in self._ids


class Streams(Protocol):
    """One of the two ways to start queries."""

    #: None where bundles cannot be placed.
    internals: SparkInternals | None
    #: None where each query has to be asked by itself.
    active: ActiveQueries | None

    def placed(self, session: SparkSession, name: str, feed: Feed) -> DataFrame:
        """A streaming DataFrame of the feed's descriptors."""

    def start(self, frame: DataFrame, identity: QueryIdentity, sink: BatchSink) -> StreamingQuery:
        """Start a query whose rows are reports for the sink."""

    def start_batches(self, frame: DataFrame, identity: QueryIdentity, write: WriteBatch) -> StreamingQuery:
        """Start a query that hands every micro-batch to a function."""

    def close(self) -> None:
        """End what was started for the streams."""


def start_foreach_batch(frame: DataFrame, identity: QueryIdentity, write: WriteBatch) -> StreamingQuery:
    """Start a query that hands every micro-batch to a function, through Spark's public interface."""
    writer = frame.writeStream.queryName(identity.name).option("checkpointLocation", identity.checkpoint)
    return writer.outputMode(identity.output_mode).foreachBatch(write).start()


class PlacedStreams:
    """The usual way: through Spark's internals, which run each bundle on its slot."""

    def __init__(self, internals: SparkInternals) -> None:
        self.internals: SparkInternals | None = internals
        self.active: ActiveQueries | None = ActiveQueries(internals.active_queries)
        self._internals = internals

    def placed(self, session: SparkSession, name: str, feed: Feed) -> DataFrame:
        return self._internals.placed_stream(session, name, feed)

    def start(self, frame: DataFrame, identity: QueryIdentity, sink: BatchSink) -> StreamingQuery:
        return self._internals.start(frame, identity, sink)

    def start_batches(self, frame: DataFrame, identity: QueryIdentity, write: WriteBatch) -> StreamingQuery:
        return start_foreach_batch(frame, identity, write)

    def close(self) -> None:
        pass
