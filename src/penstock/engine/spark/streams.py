"""How queries are started: placed, through Spark's internals, or unplaced, through public interfaces only."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.cluster.provider import Executor
from penstock.engine.spark.internals import ArrowFunction, QueryIdentity, SparkInternals
from penstock.engine.spark.java_callbacks import BatchSink, Feed
from penstock.logs import traced

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


@dataclass(frozen=True)
class TurnJob:
    """The Spark job of a turn: a task for every seat, with the executor that is to run it (None lets Spark choose)."""

    #: The name under which Spark knows the job, and the operator's, which people see.
    group: str
    operator: str
    seats: Sequence[tuple[bytes, Executor | None]]
    function: ArrowFunction

    def begin(self, spark: SparkSession) -> None:
        """Tell Spark what the next job of this thread is."""
        context = spark.sparkContext
        context.setJobGroup(self.group, f"{self.operator}: bundles that stand", interruptOnCancel=True)
        context.setLocalProperty("spark.scheduler.pool", self.operator)


@dataclass(frozen=True)
class TaskThreads:
    """Who has the task threads at a moment, as Spark's scheduler sees it."""

    #: The tasks of a turn's job that have begun and go on, by their place among its seats.
    begun: frozenset[int]
    #: How many threads of each executor, by its id, tasks of whatever job have.
    held: Mapping[str, int]


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

    def run_turn(self, turn: TurnJob) -> None:
        """Run the job of a turn, to its end."""

    def task_threads(self, group: str, executors: Collection[Executor]) -> TaskThreads | None:
        """Who has the task threads now, for the job of a turn, named by its group. None if all of these executors have
        a thread left, while Spark does not know the job, or where nobody can say."""

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

    def run_turn(self, turn: TurnJob) -> None:
        turn.begin(self._internals.spark)
        self._internals.run_seats(turn.seats, turn.function)

    def task_threads(self, group: str, executors: Collection[Executor]) -> TaskThreads | None:
        # Whatever fails here, not only in Java: the turn can begin without the answer, and its query must not fail.
        with traced("Spark does not say who has the task threads", Exception, level=logging.INFO):
            # In this order: a task that begins between the two answers must not seem to have found no thread. And
            # Spark is asked several times about each task, which is only worth it where an executor is full.
            held = self._internals.threads_held()
            is_full = any(held.get(one.id, 0) >= one.cores for one in executors)
            if is_full and self._internals.knows_job(group):
                return TaskThreads(frozenset(one.partition for one in self._internals.running(group)), held)
        return None

    def close(self) -> None:
        pass
