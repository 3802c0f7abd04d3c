"""What Penstock asks of a Spark session beyond Spark's public interfaces; `__init__.py` lists all these tricks."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from penstock.cluster.provider import Executor
from penstock.engine.spark.batch_history import RanBatch, RanTask, recent_batches, running_tasks
from penstock.engine.spark.descriptor_frames import DESCRIPTOR, DescriptorFrames
from penstock.engine.spark.java_callbacks import SINK, SOURCE, BatchSink, Feed, PlacedSource, PythonSink
from penstock.engine.spark.java_errors import SPARK_ERRORS
from penstock.engine.spark.java_values import STREAMING, JavaValues, java_of, query_manager
from penstock.engine.spark.shuffle_reads import ShuffleReads, StatusRecords
from penstock.engine.spark.split_streams import SplitFrames, SplitRows, dataset_of, split_stream
from penstock.engine.spark.state_partitions import StatePartition
from penstock.logs import LOGGER

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
#: How Scala writes an entry of a map: an executor's id, and a number.
_HELD = re.compile(r"^(.+) -> (\d+)$", re.MULTILINE)
_CLASSES = (
    SOURCE,
    SINK,
    f"{STREAMING}.runtime.StreamingExecutionRelation",
    f"{STREAMING}.runtime.SerializedOffset",
    f"{STREAMING}.state.StateStoreId",
    f"{STREAMING}.state.StateStoreProviderId",
    "org.apache.spark.sql.classic.Dataset",
    "org.apache.spark.sql.catalyst.expressions.GenericInternalRow",
)


@dataclass(frozen=True)
class QueryIdentity:
    """What a query is called, where its offsets are kept, and which rows it emits: append, update or complete."""

    name: str
    checkpoint: str
    output_mode: str = "append"


def missing(spark: SparkSession) -> list[str]:
    """What this Spark lacks of all that placing bundles needs; empty if bundles can be placed."""
    session = getattr(spark, "_jsparkSession", None)
    if session is None:
        return ["a classic Spark session (this one is Spark Connect)"]
    loader = java_of(spark).java.lang.Class
    lacking = []
    for name in _CLASSES:
        try:
            loader.forName(name)
        except Py4JError:
            lacking.append(name)
    probes: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("StreamingQueryManager.stateStoreCoordinator", lambda: query_manager(session).stateStoreCoordinator()),
        ("SharedState.activeStreamingQueries", lambda: session.sharedState().activeStreamingQueries().size()),
        ("SparkContext.statusStore", lambda: spark.sparkContext._jsc.sc().statusStore().executorList(True)),
    )
    for description, probe in probes:
        try:
            probe()
        except SPARK_ERRORS:
            LOGGER.info("this Spark does not answer %s", description, exc_info=True)
            lacking.append(description)
    return lacking


class SparkInternals:
    """Executors, placed streams and state partitions of one session, and of the sessions made from it."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._java = JavaValues(spark)
        self._frames = DescriptorFrames(self._java)
        #: The ids of the active queries: a set that Spark keeps up to date.
        self._active = spark._jsparkSession.sharedState().activeStreamingQueries().keySet()

    @functools.cached_property
    def warming_session(self) -> SparkSession:
        """The session of all queries that warm executors. A session that has run a query stays for ever among those
        that hear of queries (StreamingQueryListenerBus): one for every machine that comes would add up. The
        copy of its session that Spark makes for each query stays too, as a listener of 48 bytes. So one session for all
        means that less stays, and not that nothing does."""
        return self.spark.newSession()

    # Executors

    def executors(self) -> list[Executor]:
        """The live executors; Spark lists the driver too, which is none."""
        found = []
        summaries = self._java.context.statusStore().executorList(True)
        for summary in self._java.each(summaries):
            host, has_port, _ = (summary.hostPort() or "").rpartition(":")
            # An executor without a port has only just come: it runs nothing before its block manager has come too.
            if summary.id() != "driver" and has_port:
                found.append(Executor(summary.id(), host, summary.totalCores()))
        return found

    def executor_ids(self) -> frozenset[str]:
        """The ids of the live executors: two calls, where `executors` makes several for each."""
        return frozenset(filter(None, self._java.context.getExecutorIds().mkString(" ").split(" ")))

    def request_executors(self, total: int) -> None:
        """Tell the cluster's manager how many executors the application wants in all."""
        self._java.context.requestTotalExecutors(total, 0, self._java.empty_map())

    def decommission(self, ids: Collection[str]) -> None:
        """Have these executors finish their tasks, hand over what they hold, and go.

        Spark is not asked to lower the number of wanted executors along with it: where nobody has asked for a number so
        far, Spark would take that as none wanted. `request_executors` says how many are wanted."""
        java = self._java
        info = java.class_named("org.apache.spark.scheduler.ExecutorDecommissionInfo")(
            "its machine is to leave", java.none
        )
        pairs = java.array(java.pair, [java.pair(one, info) for one in sorted(ids)])
        java.context.schedulerBackend().decommissionExecutors(pairs, False, False)

    def run_on(self, executors: Sequence[Executor | None], function: ArrowFunction) -> list[bytes]:
        """Run a function of record batches once on each of these executors; the first column of what it yields."""
        descriptors = self._frames.of(self.spark._jsparkSession, [(b"", one) for one in executors], streaming=False)
        return [bytes(row[0]) for row in DataFrame(descriptors, self.spark).mapInArrow(function, "x binary").collect()]

    def run_seats(self, seats: Sequence[tuple[bytes, Executor | None]], function: ArrowFunction) -> None:
        """Run a function of record batches on each of these, each on its executor, until all have ended."""
        descriptors = self._frames.of(self.spark._jsparkSession, seats, streaming=False)
        DataFrame(descriptors, self.spark).mapInArrow(function, "done binary").collect()

    def shuffle_reads(self) -> ShuffleReads | None:
        """What Spark's shuffle brings to executors from other machines, from now on; None where this Spark does not
        say it."""
        try:
            return ShuffleReads(StatusRecords(self._java))
        except SPARK_ERRORS:
            LOGGER.info("this Spark does not say what its shuffle reads from other machines", exc_info=True)
            return None

    def running(self, group: str) -> list[RanTask]:
        """Where the tasks of a job that runs now are, as Spark's own records have it."""
        return running_tasks(self._java, group)

    def knows_job(self, group: str) -> bool:
        """Whether Spark has a job of this group in its records: from the moment on in which the job begins."""
        return bool(self._java.context.statusTracker().getJobIdsForGroup(group))

    def threads_held(self) -> dict[str, int]:
        """How many tasks run on each executor, by its id, of whatever job, as Spark's scheduler counts them: one call,
        and exact, where Spark's records of executors may be seconds late."""
        text = str(self._java.context.taskScheduler().runningTasksByExecutors().mkString("\n"))
        return {executor: int(count) for executor, count in _HELD.findall(text)}

    # Queries

    def placed_stream(self, spark: SparkSession, name: str, feed: Feed) -> DataFrame:
        """A streaming DataFrame of descriptors in `spark`, which is this session or one made from it."""
        session = spark._jsparkSession
        relation = self._java.class_named(f"{STREAMING}.runtime.StreamingExecutionRelation")
        attributes = spark.createDataFrame([], DESCRIPTOR)._jdf.queryExecution().analyzed().output()
        unnamed = getattr(relation, "$lessinit$greater$default$4")()
        source = PlacedSource(self._frames, name, feed, session)
        plan = relation(source, attributes, self._java.none, unnamed, session)
        return DataFrame(dataset_of(self.spark)(session, plan), spark)

    def split_stream(self, spark: SparkSession, name: str, feed: Feed, rows: SplitRows) -> DataFrame:
        """A streaming DataFrame of rows in `spark` that are split by key as Spark would split them."""
        return split_stream(self._frames, spark, name, feed, rows)

    def split_of_no_rows(self, spark: SparkSession, schema: StructType, key: Sequence[str], tasks: int) -> DataFrame:
        """A stream that has no rows, and says that they are split by a key; with no key it says nothing."""
        return SplitFrames(self._frames, spark, schema).of_no_rows(key, tasks)

    def start(self, frame: DataFrame, identity: QueryIdentity, sink: BatchSink) -> StreamingQuery:
        """Start a query that gives the first column of every micro-batch to `sink`."""
        java = self._java
        manager = query_manager(frame.sparkSession._jsparkSession)
        mode = getattr(java.class_named("org.apache.spark.sql.streaming.OutputMode"), identity.output_mode.capitalize())
        at_once = java.class_named("org.apache.spark.sql.streaming.Trigger").ProcessingTime(0)
        clock = getattr(manager, "startQuery$default$11")()
        query = manager.startQuery(
            java.some(identity.name),
            java.none,
            java.some(identity.checkpoint),
            frame._jdf,
            java.empty_map(),
            PythonSink(self._frames, identity.name, sink, frame.sparkSession),
            mode(),
            True,
            True,
            at_once,
            clock,
            java.none,
            java.none,
        )
        return StreamingQuery(query)

    def tidy(self) -> None:
        """Close what Java keeps open for queries that have ended."""
        self._frames.connections.close_ended()

    def active_queries(self) -> frozenset[str]:
        """The ids of the queries that have not ended, of all sessions: one call, where `isActive` is one a query."""
        return frozenset(filter(None, str(self._active.toString()).strip("[]").split(", ")))

    def ran(self, query: StreamingQuery) -> RanBatch | None:
        """Where the tasks of the newest finished batch of a query ran, as Spark's own records have it."""
        return next(self.recent(query), None)

    def recent(self, query: StreamingQuery) -> Iterator[RanBatch]:
        """The same for all finished batches that Spark still knows of, the newest first."""
        return recent_batches(self._java, query)

    # State

    def place_state(self, query: StreamingQuery, store: StatePartition, executor: Executor) -> None:
        """Spark runs this state partition there from the next micro-batch on, and loads its state if it must."""
        self._coordinator().reportActiveInstance(
            store.in_java(self._java, query), executor.host, executor.id, self._frames.anywhere
        )

    def state_location(self, query: StreamingQuery, store: StatePartition) -> str | None:
        """`executor_<host>_<id>` of the executor that has this state partition loaded, as Spark sees it."""
        location = self._coordinator().getLocation(store.in_java(self._java, query))
        return str(location.get()) if location.isDefined() else None

    def _coordinator(self) -> Any:
        return query_manager(self.spark._jsparkSession).stateStoreCoordinator()
