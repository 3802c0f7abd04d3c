"""All that Penstock does with Spark beyond its public interfaces. One trick a method, one test a trick.

Written against Spark 4.3. `missing()` says what another version lacks; operators then run unplaced (see unplaced.py).

1. executors(): which executors are alive, and on which host.
2. placed_stream(): a streaming source whose partitions and their executors are chosen anew at every micro-batch.
3. start(): a query whose sink is a Python object; unlike foreachBatch it does not plan the batch a second time.
4. place_state(), state_location(): on which executor a state partition is to be at the next micro-batch, and is now.
5. run_on(): a small Python job on executors of one's choice.
6. end_jvm(): PySpark's JVM ends with its session, not with Python.
7. ran(): which executor ran each task of a query's newest finished batch.
8. request_executors(), decommission(): executors come and go by themselves with dynamic allocation only; asked for by
   hand they come and go on any cluster manager.
9. repartition_state(): a stopped query's state in another number of partitions; no public name in Spark 4.3.
10. stateful_nodes(), refusal_of(): what a stream keeps in state, and whether Spark could run it, before it is started.
11. HadoopFiles: files where Spark has its checkpoints, by any URI.
12. active_queries(): all queries of all sessions that have not ended, in one call.
13. plan_of(): the analysed plan of a DataFrame, as data.
Two more are in driver_jvm.py: secrets that the driver's JVM and its callbacks are started with.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock.cluster.provider import Executor
from penstock.engine.spark.java_callbacks import SINK, SOURCE, BatchSink, Feed, PlacedSource, PythonSink
from penstock.logs import traced

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
#: Names of places that are kept: of more executors than there are at a time.
MOST_PLACES = 1000
#: No batch has more tasks than are looked at.
MOST_TASKS = 10_000
DESCRIPTOR = StructType([StructField("descriptor", BinaryType())])
#: How the names of operators that keep state on a stream begin in Spark's plans.
_STATEFUL = ("Aggregate", "Deduplicate", "TransformWithState", "GlobalLimit", "Distinct")
_STREAMING = "org.apache.spark.sql.execution.streaming"
_CLASSES = (
    SOURCE,
    SINK,
    f"{_STREAMING}.runtime.StreamingExecutionRelation",
    f"{_STREAMING}.runtime.SerializedOffset",
    f"{_STREAMING}.state.StateStoreId",
    f"{_STREAMING}.state.StateStoreProviderId",
    "org.apache.spark.sql.classic.Dataset",
    "org.apache.spark.sql.catalyst.expressions.GenericInternalRow",
)


@dataclass(frozen=True)
class QueryIdentity:
    """What a query is called, where its offsets are kept, and which rows it emits: append, update or complete."""

    name: str
    checkpoint: str
    output_mode: str = "append"


@dataclass(frozen=True)
class RanTask:
    """One task of a finished batch: which partition of which stage, and the executor that ran it."""

    stage: int
    partition: int
    executor: str
    seconds: float = 0.0


@dataclass(frozen=True)
class RanBatch:
    batch: int
    tasks: tuple[RanTask, ...]


def missing(spark: SparkSession) -> list[str]:
    """What this Spark lacks of all that is used here; empty if bundles can be placed."""
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
        ("StreamingQueryManager.stateStoreCoordinator", lambda: _manager(session).stateStoreCoordinator()),
        ("SharedState.activeStreamingQueries", lambda: session.sharedState().activeStreamingQueries().size()),
        ("SparkContext.statusStore", lambda: spark.sparkContext._jsc.sc().statusStore().executorList(True)),
    )
    for description, probe in probes:
        try:
            probe()
        except (Py4JError, PySparkException):
            lacking.append(description)
    return lacking


def has_session() -> bool:
    """Whether this process has a Spark session already: PySpark would hand that one out again, whatever it is asked."""
    return SparkContext._active_spark_context is not None


def end_jvm() -> None:
    """PySpark keeps its JVM until Python ends; a host that is stopped leaves no process behind."""
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    if process is not None:
        # The JVM ends when its standard input closes. It must be gone before the gateway is shut down: that waits for
        # threads which wait for the JVM.
        with traced("the standard input of the JVM could not be closed", OSError):
            process.stdin.close()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    with traced("the gateway to the JVM could not be shut down", Exception):
        gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None


def repartition_state(spark: SparkSession, checkpoint: str, partitions: int) -> None:
    """Have Spark rewrite the state in a stopped query's checkpoint; done already is done."""
    try:
        spark._streamingCheckpointManager.repartition(checkpoint, partitions)
    except (PySparkException, Py4JError) as error:  # not all of Spark's errors have a class in Python
        if "SHUFFLE_PARTITIONS_ALREADY_MATCH" not in str(error):
            raise


def stateful_nodes(frame: DataFrame) -> list[str]:
    """Spark's names of the stateful operators in a stream's plan, from the last to the first; empty on Spark Connect,
    where there is no plan to look at."""
    if not hasattr(frame, "_jdf"):
        return []
    converters = java_of(frame.sparkSession).scala.jdk.javaapi.CollectionConverters
    found = []
    waiting = [frame._jdf.queryExecution().analyzed()]
    while waiting:
        node = waiting.pop()
        children = list(converters.asJava(node.children()))
        name = str(node.nodeName())
        with_state = name.startswith("FlatMapGroups") and name.endswith("WithState")
        streams_meet = name == "Join" and all(child.isStreaming() for child in children)
        if node.isStreaming() and (name.startswith(_STATEFUL) or with_state or streams_meet):
            found.append(name)
        waiting += children
    return found


def refusal_of(frame: DataFrame, output_mode: str) -> str:
    """What Spark would say if this stream were started in this output mode; empty if it would take it, or if it has
    been told not to look. On Spark Connect it is known only when it is started."""
    session = frame.sparkSession
    if not hasattr(frame, "_jdf") or session.conf.get("spark.sql.streaming.unsupportedOperationCheck") == "false":
        return ""
    java = java_of(session)
    checker = getattr(getattr(java.org.apache.spark.sql.catalyst.analysis, "UnsupportedOperationChecker$"), "MODULE$")
    mode = getattr(java.org.apache.spark.sql.streaming.OutputMode, output_mode.capitalize())()
    try:
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)
    except PySparkException as error:
        return str(error)
    except (Py4JError, TypeError):
        return ""  # another version, which has it elsewhere: it refuses what it cannot do when the query starts
    return ""


class HadoopFiles:
    """Trick 11: files where Spark reads and writes them, by any URI that it understands, with its own settings."""

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        self._java: Any = context._jvm
        self._conf: Any = context._jsc.hadoopConfiguration()

    def names(self, folder: str) -> list[str]:
        system, path = self._found(folder)
        return [status.getPath().getName() for status in system.listStatus(path)] if system.exists(path) else []

    def text(self, path: str) -> str | None:
        system, found = self._found(path)
        if not system.exists(found):
            return None
        stream = system.open(found)
        try:
            text: str = self._java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        return text

    def delete(self, folder: str) -> None:
        """With all that is in it; nothing to delete is fine."""
        system, path = self._found(folder)
        system.delete(path, True)

    def _found(self, location: str) -> tuple[Any, Any]:
        path = self._java.org.apache.hadoop.fs.Path(location)
        return path.getFileSystem(self._conf), path


def plan_of(frame: DataFrame) -> list[dict[str, Any]] | None:
    """The analysed plan, all nodes in one list, each before its children; None where a plan is not to be had."""
    java = getattr(frame, "_jdf", None)
    if java is None:
        return None  # Spark Connect
    plan: list[dict[str, Any]] = json.loads(java.queryExecution().analyzed().toJSON())
    return plan


def java_of(spark: SparkSession) -> Any:
    """The driver's Java classes, by their full name."""
    return spark.sparkContext._jvm


def _manager(session: Any) -> Any:
    return session.sessionState().streamingQueryManager()


class SparkInternals:
    """The tricks, over one session. References to Java classes are kept: looking one up costs several round trips."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        context = spark.sparkContext
        self._gateway: Any = context._gateway
        self._context = context._jsc.sc()
        self._jvm: Any = context._jvm
        ensure_callback_server_started(self._gateway)  # type: ignore[no-untyped-call]
        self._option = self._java("scala.Option")
        self._none = self._option.empty()
        self._converters = self._java("scala.jdk.javaapi.CollectionConverters")
        self._list = self._java("java.util.ArrayList")
        self._object = self._java("java.lang.Object")
        self._pair = self._java("scala.Tuple2")
        self._row = self._java("org.apache.spark.sql.catalyst.expressions.GenericInternalRow")
        self._offset = self._java(f"{_STREAMING}.runtime.SerializedOffset")
        self._class = self._java("java.lang.Class")
        self._row_tag = self._java("scala.reflect.ClassTag").apply(
            self._class.forName("org.apache.spark.sql.catalyst.InternalRow")
        )
        self._schema = self._java("org.apache.spark.sql.types.DataType").fromJson(DESCRIPTOR.json())
        self._anywhere = self._seq([])
        #: A view that Spark keeps up to date.
        self._active = spark._jsparkSession.sharedState().activeStreamingQueries().keySet()
        self._places: dict[Executor, Any] = {}

    def executors(self) -> list[Executor]:
        """The live executors but the driver."""
        found = []
        summaries = self._context.statusStore().executorList(True)
        for summary in self._converters.asJava(summaries):
            host, has_port, _ = (summary.hostPort() or "").rpartition(":")
            # Without a port it has only just come: its block manager, without which it runs nothing, is still to come.
            if summary.id() != "driver" and has_port:
                found.append(Executor(summary.id(), host, summary.totalCores()))
        return found

    def executor_ids(self) -> frozenset[str]:
        """The ids of the live executors: two calls, where `executors` makes several for each."""
        return frozenset(filter(None, self._context.getExecutorIds().mkString(" ").split(" ")))

    def active_queries(self) -> frozenset[str]:
        """The ids of the queries that have not ended, of all sessions: one call, where `isActive` is one a query."""
        return frozenset(filter(None, str(self._active.toString()).strip("[]").split(", ")))

    def request_executors(self, total: int) -> None:
        """Tell the cluster's manager how many executors the application wants in all."""
        nowhere = self._java("org.apache.spark.api.python.PythonUtils").toScalaMap(self._java("java.util.HashMap")())
        self._context.requestTotalExecutors(total, 0, nowhere)

    def decommission(self, ids: Collection[str]) -> None:
        """Have these executors finish their tasks, hand over what they hold, and go. How many are wanted in all is for
        `request_executors` to say: Spark, asked to count along, takes nothing asked for so far as none wanted."""
        info = self._java("org.apache.spark.scheduler.ExecutorDecommissionInfo")("its machine is to leave", self._none)
        pairs = self._gateway.new_array(self._pair, len(ids))
        for index, one in enumerate(sorted(ids)):
            pairs[index] = self._pair(one, info)
        self._context.schedulerBackend().decommissionExecutors(pairs, False, False)

    def ran(self, query: StreamingQuery) -> RanBatch | None:
        """Where the tasks of the newest finished batch of a query ran, as Spark's own records have it."""
        return next(self.recent(query), None)

    def recent(self, query: StreamingQuery) -> Iterator[RanBatch]:
        """The same for all finished batches that Spark still knows of, the newest first."""
        store = self._context.statusStore()
        tracker = self._context.statusTracker()
        jobs = sorted(tracker.getJobIdsForGroup(str(query.runId)), reverse=True)
        for job in jobs:
            data = store.job(job)
            text = data.description()
            batch = re.search(r"batch = (\d+)", str(text.get()) if text.isDefined() else "")
            if batch is None or str(data.status()) != "SUCCEEDED":
                continue
            stages = sorted(self._converters.asJava(data.stageIds()))
            yield RanBatch(int(batch[1]), tuple(task for stage in stages for task in self._tasks_of(store, stage)))

    def _tasks_of(self, store: Any, stage: int) -> Iterator[RanTask]:
        try:
            attempt = store.lastStageAttempt(stage).attemptId()
        except Py4JError:
            return  # skipped: its output was there already
        for task in self._converters.asJava(store.taskList(stage, attempt, MOST_TASKS)):
            if task.status() == "SUCCESS":
                took = task.duration()
                seconds = took.get() / 1000 if took.isDefined() else 0.0
                yield RanTask(stage, task.index(), task.executorId(), seconds)

    def placed_stream(self, spark: SparkSession, name: str, feed: Feed) -> DataFrame:
        """A streaming DataFrame of descriptors in `spark`, which is this session or one made from it."""
        session = spark._jsparkSession
        relation = self._java(f"{_STREAMING}.runtime.StreamingExecutionRelation")
        attributes = spark.createDataFrame([], DESCRIPTOR)._jdf.queryExecution().analyzed().output()
        unnamed = getattr(relation, "$lessinit$greater$default$4")()
        source = PlacedSource(self, name, feed, session)
        plan = relation(source, attributes, self._option.empty(), unnamed, session)
        # Found through its package: a companion object is not a class that JavaClass could name.
        companion = getattr(getattr(self._jvm.org.apache.spark.sql.classic, "Dataset$"), "MODULE$")
        return DataFrame(companion.ofRows(session, plan), spark)

    def start(self, frame: DataFrame, identity: QueryIdentity, sink: BatchSink) -> StreamingQuery:
        """Start a query that gives the first column of every micro-batch to `sink`."""
        manager = _manager(frame.sparkSession._jsparkSession)
        mode = getattr(self._java("org.apache.spark.sql.streaming.OutputMode"), identity.output_mode.capitalize())()
        at_once = self._java("org.apache.spark.sql.streaming.Trigger").ProcessingTime(0)
        no_options = self._java("org.apache.spark.api.python.PythonUtils").toScalaMap(self._java("java.util.HashMap")())
        none = self._option.empty()
        clock = getattr(manager, "startQuery$default$11")()
        query = manager.startQuery(
            self._option.apply(identity.name),
            none,
            self._option.apply(identity.checkpoint),
            frame._jdf,
            no_options,
            PythonSink(self, identity.name, sink, frame.sparkSession),
            mode,
            True,
            True,
            at_once,
            clock,
            none,
            none,
        )
        return StreamingQuery(query)

    def place_state(self, query: StreamingQuery, store: StateStore, executor: Executor) -> None:
        """Spark runs this state partition there from the next micro-batch on, and loads its state if it must."""
        self._coordinator(query).reportActiveInstance(
            self._provider_id(query, store), executor.host, executor.id, self._anywhere
        )

    def state_location(self, query: StreamingQuery, store: StateStore) -> str | None:
        """`executor_<host>_<id>` of the executor that has this state partition loaded, as Spark sees it."""
        location = self._coordinator(query).getLocation(self._provider_id(query, store))
        return str(location.get()) if location.isDefined() else None

    def run_on(self, executors: Sequence[Executor | None], function: ArrowFunction) -> list[bytes]:
        """Run a function of record batches once on each of these executors; the first column of what it yields."""
        descriptors = self._frame_of(self.spark._jsparkSession, [(b"", one) for one in executors], streaming=False)
        return [bytes(row[0]) for row in DataFrame(descriptors, self.spark).mapInArrow(function, "x binary").collect()]

    def run_seats(self, seats: Sequence[tuple[bytes, Executor | None]], function: ArrowFunction) -> None:
        """Run a function of record batches on each of these, each on its executor, until all have ended."""
        descriptors = self._frame_of(self.spark._jsparkSession, seats, streaming=False)
        DataFrame(descriptors, self.spark).mapInArrow(function, "done binary").collect()

    def running(self, group: str) -> list[RanTask]:
        """Where the tasks of a job that runs now are, as Spark's own records have it."""
        store, tracker = self._context.statusStore(), self._context.statusTracker()
        jobs = sorted(tracker.getJobIdsForGroup(group), reverse=True)[:1]
        return [
            task
            for job in jobs
            for stage in self._converters.asJava(store.job(job).stageIds())
            for task in self._tasks_of(store, stage)
        ]

    def state_folder(self, query: StreamingQuery) -> str:
        """The state folder of a query's checkpoint, spelt as Spark spells it in the identity of a state partition."""
        return f"{query._jsq.streamingQuery().resolvedCheckpointRoot()}/state"

    def stateful_operators(self, frame: DataFrame) -> tuple[int, bool]:
        """How many stateful operators a streaming DataFrame has, and whether one of them is a join of two streams."""
        stateful = stateful_nodes(frame)
        return len(stateful), "Join" in stateful

    def _coordinator(self, query: StreamingQuery) -> Any:
        return _manager(self.spark._jsparkSession).stateStoreCoordinator()

    def _provider_id(self, query: StreamingQuery, store: StateStore) -> Any:
        identity = self._java(f"{_STREAMING}.state.StateStoreId")(
            store.checkpoint, store.operator, store.partition, store.name
        )
        run = self._java("java.util.UUID").fromString(str(query.runId))
        return self._java(f"{_STREAMING}.state.StateStoreProviderId")(identity, run)

    def _java(self, name: str) -> Any:
        return JavaClass(name, self._gateway._gateway_client)

    def _seq(self, items: Sequence[Any]) -> Any:
        array = self._list()
        for item in items:
            array.add(item)
        return self._converters.asScala(array).toSeq()

    def _place(self, executor: Executor | None) -> Any:
        if executor is None:
            return self._anywhere
        place = self._places.get(executor)
        if place is None:
            if len(self._places) >= MOST_PLACES:
                self._places.clear()  # most of them are gone
            place = self._places[executor] = self._seq([f"executor_{executor.host}_{executor.id}"])
        return place

    def _frame_of(
        self, session: Any, partitions: Sequence[tuple[bytes, Executor | None]], streaming: bool = True
    ) -> Any:
        """A batch of one row a partition, each with its preferred executor."""
        pairs = self._list()
        for descriptor, executor in partitions:
            values = self._gateway.new_array(self._object, 1)
            values[0] = bytearray(descriptor)
            pairs.add(self._pair(self._row(values), self._place(executor)))
        rows = self._context.makeRDD(self._converters.asScala(pairs).toSeq(), self._row_tag)
        return session.internalCreateDataFrame(rows, self._schema, streaming)

    def _empty_frame(self, session: Any) -> Any:
        rows = self._context.emptyRDD(self._row_tag)
        return session.internalCreateDataFrame(rows, self._schema, True)

    def _offset_of(self, text: str) -> Any:
        return self._offset(text)


class StateStore(Protocol):
    """Which state partition: the checkpoint's state folder, the stateful operator in the query, partition and store."""

    @property
    def checkpoint(self) -> str: ...
    @property
    def operator(self) -> int: ...
    @property
    def partition(self) -> int: ...
    @property
    def name(self) -> str: ...
