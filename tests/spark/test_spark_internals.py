"""Each trick of engine/spark by itself, on a real cluster: a new Spark that breaks one fails here, by name."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from traceback import format_stack

import pyarrow as pa
import pytest
from pyspark.sql.streaming.query import StreamingQuery

from penstock.cluster.provider import Executor
from penstock.engine.executor.bundle import warm
from penstock.engine.executor.worker import executor_id
from penstock.engine.spark import callback_connections
from penstock.engine.spark import internals as spark_internals
from penstock.engine.spark.hadoop_files import HadoopFiles
from penstock.engine.spark.host import SparkHost
from penstock.engine.spark.internals import QueryIdentity, SparkInternals, missing
from penstock.engine.spark.state_partitions import StatePartition, repartition_state, state_folder
from penstock.engine.spark.stream_plans import plan_of, refusal_of, stateful_nodes, stateful_operators
from penstock.engine.spark.streams import TurnJob

WAIT = 60


class CountingFeed:
    """One descriptor a partition and batch, on the executors named in `where`, which may change at any time."""

    def __init__(self, where: Sequence[Executor], batches: int) -> None:
        self.where = list(where)
        self.batches = batches
        self.asked: list[tuple[str | None, str]] = []
        self.committed_to = ""
        self.hold = threading.Event()
        self.position = 0
        self.failures: list[Exception] = []

    def seek(self, start: str) -> None:
        self.position = int(start)

    def latest(self) -> str | None:
        if self.position < self.batches and not self.hold.is_set():
            return json.dumps(self.position + 1)
        time.sleep(0.02)
        return json.dumps(self.position) if self.position else None

    def partitions(self, start: str | None, end: str) -> list[tuple[bytes, Executor | None]]:
        self.asked.append((start, end))
        self.position = int(end)
        return [(f"{end}/{index}".encode(), executor) for index, executor in enumerate(self.where)]

    def committed(self, end: str) -> None:
        self.committed_to = end

    def fail(self, error: Exception) -> None:
        self.failures.append(error)


class Collected:
    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.failures: list[Exception] = []
        self.refused: set[int] = set()

    def wants(self, batch: int) -> bool:
        return batch not in self.refused

    def take(self, batch: int, reports: Sequence[bytes]) -> None:
        self.batches[batch] = list(reports)

    def fail(self, error: Exception) -> None:
        self.failures.append(error)


def say_where(batches):
    for batch in batches:
        yield pa.record_batch(
            [pa.array([f"{one.as_py().decode()}@{executor_id()}".encode() for one in batch.column(0)])], ["x"]
        )


def break_down(batches):
    for _ in batches:
        raise ValueError("this row is no good")
        yield


def ten_values(batches):
    for batch in batches:
        for _ in range(batch.num_rows):
            yield pa.record_batch([pa.array(range(10))], ["value"])


def as_report(batches):
    for batch in batches:
        yield pa.record_batch([pa.array([json.dumps(row).encode() for row in batch.to_pylist()], pa.binary())], ["x"])


def until(condition: Callable[[], bool], query: StreamingQuery | None = None) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        assert query is None or query.exception() is None, query.exception()
        time.sleep(0.02)


@pytest.fixture
def internals(standalone_host: SparkHost) -> SparkInternals:
    assert standalone_host.streams.internals is not None
    return standalone_host.streams.internals


def test_this_spark_has_everything(standalone_host: SparkHost, monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing(standalone_host.spark) == []
    monkeypatch.setattr(spark_internals, "_CLASSES", ("org.apache.spark.sql.execution.streaming.Fountain",))
    assert missing(standalone_host.spark) == ["org.apache.spark.sql.execution.streaming.Fountain"]


def test_executors_are_found_with_their_hosts(internals: SparkInternals) -> None:
    executors = internals.executors()
    assert len(executors) == 4
    assert {one.host for one in executors} == {"127.0.0.2", "127.0.0.3"}
    assert {one.cores for one in executors} == {24}


def test_partitions_follow_their_executors_from_batch_to_batch(
    internals: SparkInternals, standalone_host: SparkHost, tmp_path
) -> None:
    first, second, third, _ = sorted(internals.executors(), key=lambda one: one.id)
    feed, sink = CountingFeed([first, second], batches=4), Collected()
    feed.hold.set()
    frame = internals.placed_stream(standalone_host.spark, "placed", feed)
    identity = QueryIdentity("placed", str(tmp_path / "checkpoint"))
    query = internals.start(frame.mapInArrow(say_where, "x binary"), identity, sink)
    try:
        feed.hold.clear()
        until(lambda: len(sink.batches) >= 2, query)
        feed.hold.set()
        until(lambda: len(sink.batches) == feed.position, query)
        so_far = feed.position
        feed.where, feed.batches = [third, third, third], so_far + 2
        feed.hold.clear()
        until(lambda: len(sink.batches) == so_far + 2, query)
        # Offsets are Spark's: each batch starts where the one before it ended, and is committed once it is over.
        assert feed.asked == [(None, "1"), *((str(n), str(n + 1)) for n in range(1, so_far + 2))]
        until(lambda: int(feed.committed_to or 0) >= so_far, query)
    finally:
        query.stop()
    assert sorted(sink.batches[0]) == [f"1/0@{first.id}".encode(), f"1/1@{second.id}".encode()]
    assert sorted(sink.batches[so_far]) == [f"{so_far + 1}/{index}@{third.id}".encode() for index in range(3)]
    assert not feed.failures
    assert not sink.failures


def test_a_query_that_has_ended_leaves_no_connection_of_its_thread(
    internals: SparkInternals, standalone_host: SparkHost, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Py4J keeps a thread and two open files for every thread of Java that has ever called Python."""
    monkeypatch.setattr(callback_connections, "GRACE_SECONDS", 0.2)
    executor = internals.executors()[0]

    def run(name: str) -> None:
        feed, sink = CountingFeed([executor], batches=1), Collected()
        frame = internals.placed_stream(standalone_host.spark, name, feed).mapInArrow(say_where, "x binary")
        query = internals.start(frame, QueryIdentity(name, str(tmp_path / name)), sink)
        until(lambda: len(sink.batches) == 1, query)
        query.stop()

    def threads() -> int:
        internals.tidy()
        return sum("wait_for_commands" in "".join(format_stack(frame)) for frame in sys._current_frames().values())

    before = threads()
    run("first")
    run("second")
    until(lambda: threads() <= before)


def test_a_sink_may_refuse_a_batch_and_learns_of_failures(
    internals: SparkInternals, standalone_host: SparkHost, tmp_path
) -> None:
    executor = internals.executors()[0]
    refusing, refused = Collected(), CountingFeed([executor], batches=2)
    refusing.refused = {0}
    frame = internals.placed_stream(standalone_host.spark, "refused", refused).mapInArrow(break_down, "x binary")
    query = internals.start(frame, QueryIdentity("refused", str(tmp_path / "checkpoint")), refusing)
    until(lambda: bool(refusing.failures))
    until(lambda: not query.isActive)
    # The first batch, which would have failed, was not run; the second was, and the user's words got through.
    assert refused.position == 2
    assert "this row is no good" in str(refusing.failures[0])
    assert refusing.batches == {}


def test_state_goes_where_it_is_told_and_stays_exact(
    internals: SparkInternals, standalone_host: SparkHost, tmp_path
) -> None:
    first, second, third, _ = sorted(internals.executors(), key=lambda one: one.id)
    session = standalone_host.spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    feed, sink = CountingFeed([first], batches=0), Collected()
    counts = internals.placed_stream(session, "state", feed).mapInArrow(ten_values, "value long")
    frame = counts.groupBy("value").count()
    assert stateful_operators(frame) == (1, False)
    identity = QueryIdentity("state", str(tmp_path / "checkpoint"), "update")
    query = internals.start(frame.mapInArrow(as_report, "x binary"), identity, sink)

    def place(*executors: Executor) -> None:
        for partition, executor in enumerate(executors):
            store = StatePartition(state_folder(query), 0, partition, "default")
            internals.place_state(query, store, executor)

    def where() -> list[str | None]:
        folder = state_folder(query)
        return [internals.state_location(query, StatePartition(folder, 0, part, "default")) for part in range(2)]

    def name(executor: Executor) -> str:
        return f"executor_{executor.host}_{executor.id}"

    try:
        place(first, second)
        feed.batches = 1
        until(lambda: len(sink.batches) == 1, query)
        assert where() == [name(first), name(second)]
        place(third, third)
        feed.batches = 3
        until(lambda: len(sink.batches) == 3, query)
        assert where() == [name(third), name(third)]
        until(lambda: (ran := internals.ran(query)) is not None and ran.batch == 2, query)
        ran = internals.ran(query)
        reading, counting = sorted({task.stage for task in ran.tasks})
        assert [task.executor for task in ran.tasks if task.stage == reading] == [first.id]
        assert {task.partition: task.executor for task in ran.tasks if task.stage == counting} == {
            0: third.id,
            1: third.id,
        }
    finally:
        query.stop()
    last = [json.loads(report) for report in sink.batches[2]]
    assert {row["value"]: row["count"] for row in last} == dict.fromkeys(range(10), 3)


def test_what_is_shuffled_counts_where_it_comes_from_another_machine(
    internals: SparkInternals, standalone_host: SparkHost, tmp_path
) -> None:
    here, also_here, there, _ = sorted(internals.executors(), key=lambda one: (one.host, one.id))
    assert here.host == also_here.host != there.host
    session = standalone_host.spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    feed, sink = CountingFeed([here], batches=0), Collected()
    counts = internals.placed_stream(session, "shuffled", feed).mapInArrow(ten_values, "value long")
    identity = QueryIdentity("shuffled", str(tmp_path / "checkpoint"), "update")
    reads = internals.shuffle_reads()
    assert reads is not None
    query = internals.start(counts.groupBy("value").count().mapInArrow(as_report, "x binary"), identity, sink)

    def after_a_batch(*executors: Executor) -> dict[str, int]:
        for partition, executor in enumerate(executors):
            store = StatePartition(state_folder(query), 0, partition, "default")
            internals.place_state(query, store, executor)
        feed.batches += 1
        until(lambda: len(sink.batches) == feed.batches, query)
        # Spark's records come a moment after the batch.
        until(lambda: (ran := internals.ran(query)) is not None and ran.batch == feed.batches - 1, query)
        return reads.look().get("shuffled", {})

    try:
        assert after_a_batch(here, also_here) == {}, "what lies on the disk of the same machine crosses nothing"
        crossed = after_a_batch(also_here, there)
        assert crossed.keys() == {there.id}
        assert 0 < crossed[there.id] < 10_000
        assert reads.look() == {}
        again = after_a_batch(there, there)
        assert again.keys() == {there.id}
        assert again[there.id] > crossed[there.id]
    finally:
        query.stop()


def test_state_is_cut_into_other_partitions_while_its_query_is_stopped(
    internals: SparkInternals, standalone_host: SparkHost, tmp_path
) -> None:
    session = standalone_host.spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    feed, sink = CountingFeed(internals.executors()[:1], batches=1), Collected()
    identity = QueryIdentity("cut", str(tmp_path / "checkpoint"), "update")

    def run(batches: int) -> int:
        """Up to so many batches; how many state partitions there are."""
        feed.batches = batches
        values = internals.placed_stream(session, "cut", feed).mapInArrow(ten_values, "value long")
        query = internals.start(values.groupBy("value").count().mapInArrow(as_report, "x binary"), identity, sink)
        try:
            until(lambda: len(sink.batches) == batches and internals.ran(query) is not None, query)
            # A batch that was cut off cannot be rewritten.
            until((tmp_path / "checkpoint" / "commits" / str(max(sink.batches))).exists, query)
            tasks = internals.ran(query).tasks
            return sum(task.stage == max(one.stage for one in tasks) for task in tasks)
        finally:
            query.stop()

    assert run(1) == 2
    repartition_state(standalone_host.spark, identity.checkpoint, 3)
    repartition_state(standalone_host.spark, identity.checkpoint, 3)
    assert run(2) == 3
    last = [json.loads(report) for report in sink.batches[max(sink.batches)]]
    assert {row["value"]: row["count"] for row in last} == dict.fromkeys(range(10), 2)


def test_the_ids_of_executors_are_those_that_are_listed(internals: SparkInternals) -> None:
    assert internals.executor_ids() == {one.id for one in internals.executors()}


def test_one_call_names_the_queries_of_all_sessions_that_have_not_ended(
    internals: SparkInternals, standalone_host: SparkHost, tmp_path
) -> None:
    before = internals.active_queries()
    queries = []
    for name in ("here", "there"):
        session = standalone_host.spark.newSession()
        feed, sink = CountingFeed(internals.executors()[:1], batches=0), Collected()
        frame = internals.placed_stream(session, name, feed).mapInArrow(say_where, "x binary")
        queries.append(internals.start(frame, QueryIdentity(name, str(tmp_path / name)), sink))
    here, there = queries
    assert internals.active_queries() == before | {str(here.id), str(there.id)}
    here.stop()
    until(lambda: internals.active_queries() == before | {str(there.id)})
    there.stop()
    until(lambda: internals.active_queries() == before)


def test_a_job_runs_on_each_executor_that_is_named(internals: SparkInternals) -> None:
    executors = internals.executors()
    named = [executors[0], executors[3], executors[3]]
    assert sorted(internals.run_on(named, warm)) == sorted(one.id.encode() for one in named)


def wait_until_told(batches):
    for batch in batches:
        for go_on in batch.column(0):
            deadline = time.monotonic() + WAIT
            while not Path(go_on.as_py().decode()).exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            yield pa.record_batch([pa.array([b""], pa.binary())], ["done"])


def test_spark_says_which_tasks_of_a_turn_have_begun_and_who_has_the_threads(
    standalone_host: SparkHost, internals: SparkInternals, tmp_path: Path
) -> None:
    """More tasks than the executor has threads: all threads are held, and the rest has not begun."""
    [executor, other, *_] = internals.executors()
    until(lambda: not any(internals.threads_held().values()))
    seats = [(str(tmp_path / "go_on").encode(), executor) for _ in range(executor.cores + 2)]
    seats.append((str(tmp_path / "go_on").encode(), other))
    streams, job = standalone_host.streams, TurnJob("a-turn", "rows", seats, wait_until_told)
    assert not internals.knows_job("a-turn")
    assert streams.task_threads("a-turn", [executor]) is None, "no thread is held yet"
    turn = threading.Thread(target=streams.run_turn, args=(job,))
    turn.start()

    def begun() -> int:
        threads = streams.task_threads("a-turn", [executor])
        return len(threads.begun) if threads is not None else 0

    try:
        until(lambda: begun() == executor.cores + 1)
        threads = streams.task_threads("a-turn", [executor])
        assert threads is not None
        assert (threads.held[executor.id], threads.held[other.id]) == (executor.cores, 1)
        assert len(seats) - 1 in threads.begun
    finally:
        (tmp_path / "go_on").touch()
        turn.join(WAIT)
    assert not turn.is_alive()
    until(lambda: not any(internals.threads_held().values()))


def test_stateful_operators_are_counted(standalone_host: SparkHost) -> None:
    spark = standalone_host.spark
    stream = spark.readStream.format("rate").load()
    joined = stream.alias("a").join(spark.readStream.format("rate").load().alias("b"), "value")
    cases = {
        (0, False): stream.select("value"),
        (1, False): stream.groupBy("value").count(),
        (1, True): joined.select("value"),
        (2, True): joined.groupBy("value").count(),
    }
    for wanted, frame in cases.items():
        assert stateful_operators(frame) == wanted
    assert stateful_operators(stream.dropDuplicates(["value"])) == (1, False)


def test_what_a_stream_keeps_in_state(standalone_host: SparkHost) -> None:
    spark = standalone_host.spark
    stream = spark.readStream.format("rate").load()
    table = spark.range(3).groupBy("id").count()
    rows = stream.groupBy("value")
    frames = {
        (): stream.join(table, table.id == stream.value).withWatermark("timestamp", "1 minute"),
        ("Aggregate",): rows.count(),
        ("Deduplicate",): stream.distinct(),
        ("DeduplicateWithinWatermark",): stream.withWatermark("timestamp", "1 minute").dropDuplicatesWithinWatermark(),
        ("GlobalLimit",): stream.limit(3),
        ("Except",): stream.select("value").subtract(spark.range(3).toDF("value")),
        ("Aggregate", "Join"): stream.join(spark.readStream.format("rate").load(), "value").groupBy("value").count(),
        ("FlatMapGroupsInPandasWithState",): rows.applyInPandasWithState(
            lambda key, frames, state: frames, "value long", "x long", "update", "NoTimeout"
        ),
    }
    for wanted, frame in frames.items():
        assert tuple(stateful_nodes(frame)) == wanted
    # Groups of one batch only: nothing is kept.
    assert stateful_nodes(rows.applyInPandas(lambda frame: frame, "timestamp timestamp, value long")) == []


def test_spark_says_beforehand_which_output_modes_it_takes(standalone_host: SparkHost) -> None:
    counts = standalone_host.spark.readStream.format("rate").load().groupBy("value").count()
    assert "without watermark" in refusal_of(counts, "append")
    assert refusal_of(counts, "update") == refusal_of(counts, "complete") == ""
    counts.sparkSession.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
    try:
        assert refusal_of(counts, "append") == ""
    finally:
        counts.sparkSession.conf.unset("spark.sql.streaming.unsupportedOperationCheck")


def test_files_are_read_where_spark_has_them(standalone_host: SparkHost, tmp_path: Path) -> None:
    """By a URI, as Hadoop has it."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "7").write_text("v1\n{}\nübrig")
    files = HadoopFiles(standalone_host.spark)
    assert files.names(f"file://{tmp_path}/offsets") == ["7"]
    assert files.names(f"file://{tmp_path}/commits") == []
    assert files.text(f"file://{tmp_path}/offsets/7") == "v1\n{}\nübrig"
    assert files.text(f"file://{tmp_path}/offsets/8") is None
    for _ in range(2):
        files.delete(f"file://{tmp_path}/offsets")
        assert files.names(f"file://{tmp_path}/offsets") == []


def test_nobody_but_the_driver_s_jvm_calls_python_back(standalone_host: SparkHost) -> None:
    from doors import Door, tell  # executors load this file too, and have no such module

    gateway = standalone_host.spark.sparkContext._gateway
    ours = gateway.callback_server_parameters.auth_token
    assert ours != gateway.gateway_parameters.auth_token, "whoever gets hold of the one does not have the other"
    door = Door("Python driver", "127.0.0.1", gateway._callback_server.port)
    call = b"c\np0\ntoString\ne\n"
    assert not tell(door, call).startswith(b"!y")
    assert not tell(door, b"A\nwrong\ne\n" + call).startswith(b"!y")
    assert tell(door, f"A\n{ours}\ne\n".encode()).startswith(b"!y"), "it is the token that counts"


def test_a_plan_as_data(standalone_host: SparkHost) -> None:
    rows = standalone_host.spark.readStream.format("rate").load().groupBy("value").count()
    plan = plan_of(rows)
    assert plan is not None
    assert [node["class"].rpartition(".")[2] for node in plan] == ["Aggregate", "StreamingRelationV2"]
    [[grouping]] = plan[0]["groupingExpressions"]
    assert (grouping["name"], grouping["dataType"]) == ("value", "long")
