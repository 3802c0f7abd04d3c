"""Without Spark's internals: the same results through public interfaces only, and a feed server that answers nobody
who does not know its key."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from written_rows import WAIT, rows_of

from penstock import PenstockError, Topology, sinks, sources
from penstock.engine.spark.host import SparkHost
from penstock.engine.spark.java_callbacks import Feed
from penstock.engine.spark.unplaced import FeedServer, UnplacedStreams, _Reader


@pytest.fixture
def unplaced_host(local_host: SparkHost) -> Iterator[SparkHost]:
    """The shared Spark, as if it lacked what placing bundles needs."""
    placed, streams = local_host._streams, UnplacedStreams()
    local_host._streams = streams
    yield local_host
    local_host._streams = placed
    streams.close()


def split(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([pc.list_flatten(pc.utf8_split_whitespace(batch.column(0)))], names=["word"])


def count(frame: DataFrame) -> DataFrame:
    return frame.groupBy("word").agg(F.count("*").alias("n"))


def word_count(content: sources.Content, rows: int | None, folder: Path) -> Topology:
    topology = Topology("unplaced-count")
    lines = topology.source("lines", sources.rate(1_000, content, rows=rows), instances=2)
    words = topology.map("split", split, inputs=[lines], schema="word string", instances=2)
    counts = topology.keyed("count", count, inputs=[words], key="word", schema="word string, n long", tasks=2)
    topology.sink("out", sinks.parquet(folder), inputs=[counts])
    return topology


def highest(folder: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows_of(folder):
        found[row["word"]] = max(found.get(row["word"], 0), row["n"])
    return found


@pytest.mark.live
def test_word_count_is_exact_also_over_a_restart(unplaced_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    content = sources.sentences(words=4, vocabulary=60, seed=9)
    with running(word_count(content, None, tmp_path / "out"), unplaced_host, "state") as run:
        assert run.query("count").state is None, "no state can be placed"
        deadline = time.monotonic() + WAIT
        while run.statistics.totals("out")[0] < 60:
            run.check()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        run.stop(drain=False)
        first = run.statistics.totals("lines")[1]
    rows = first + 3_000  # more than was under way when it was stopped, and is now replayed
    with running(word_count(content, rows, tmp_path / "out"), unplaced_host, "state") as run:
        assert run.wait(WAIT)
        assert run.statistics.totals("lines")[1] == rows - first
    wanted = Counter(" ".join(content.rows(0, rows).column(0).to_pylist()).split())
    assert highest(tmp_path / "out") == wanted


def join(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.join(right.select("id", F.col("value").alias("other")), "id")


def test_a_join_of_two_inputs(unplaced_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    topology = Topology("unplaced-join")
    left = topology.source("left", sources.rate(3_000, sources.numbers(seed=1), rows=1_000))
    right = topology.source("right", sources.rate(2_000, sources.numbers(seed=2), rows=600))
    schema = "id long, value double, other double"
    both = topology.keyed("both", join, inputs=[left, right], key="id", schema=schema, tasks=2, output_mode="append")
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=[both])
    with running(topology, unplaced_host) as run:
        assert run.wait(WAIT)
    values = [sources.numbers(seed=seed).rows(0, 600).column("value").to_pylist() for seed in (1, 2)]
    got = sorted((row["id"], row["value"], row["other"]) for row in rows_of(tmp_path / "out"))
    assert got == list(zip(range(600), *values, strict=True))


def test_state_outside_a_keyed_operator_is_refused_here_too(unplaced_host: SparkHost, running: Callable) -> None:
    topology = Topology("unplaced-state")
    lines = topology.source("lines", sources.rate(1_000, sources.sentences(), rows=10))
    words = topology.map("split", split, inputs=[lines], schema="word string")
    counts = topology.map_dataframe("count", count, inputs=[words], schema="word string, n long")
    topology.sink("out", sinks.noop(), inputs=[counts])
    with pytest.raises(PenstockError) as caught, running(topology, unplaced_host):
        pass
    assert caught.value.name == "STATE_OUTSIDE_KEYED"


def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.num_rows:
        raise ValueError("not today")
    return batch


def test_a_function_that_raises_is_a_named_error_here_too(unplaced_host: SparkHost, running: Callable) -> None:
    topology = Topology("unplaced-failure")
    numbers = topology.source("numbers", sources.rate(1_000, sources.numbers(), rows=100))
    never = topology.map("never", refuse, inputs=[numbers], schema="id long, value double")
    topology.sink("out", sinks.noop(), inputs=[never])
    with pytest.raises(PenstockError) as caught, running(topology, unplaced_host) as run:
        run.wait(WAIT)
    assert caught.value.name == "OPERATOR_FAILED"
    assert "ValueError: not today" in caught.value.message
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


# The feed server, without Spark


class OneFeed:
    """A feed of which everything is known."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.position = ""

    def seek(self, start: str) -> None:
        self.position = start

    def latest(self) -> str | None:
        return "7"

    def partitions(self, start: str | None, end: str) -> list[tuple[bytes, None]]:
        if end == "8":
            raise ValueError("beyond the end")
        return [(f"{start}-{end}".encode(), None)]

    def committed(self, end: str) -> None:
        self.position = end

    def fail(self, error: Exception) -> None:
        self.failures.append(error)


@pytest.fixture
def server() -> Iterator[FeedServer]:
    server = FeedServer()
    yield server
    server.close()


def reader(server: FeedServer, feed: Feed) -> _Reader:
    return _Reader(server.port, server.key, server.add(feed))


def test_a_wrong_key_is_refused_and_others_go_on(server: FeedServer) -> None:
    for wrong in (b"", b"wrong", server.key[:-1]):
        with pytest.raises(AuthenticationError):
            Client(("127.0.0.1", server.port), authkey=wrong)
    assert reader(server, OneFeed()).latestOffset({"at": ""}, None) == {"at": "7"}


def test_strangers_do_not_keep_others_waiting(server: FeedServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as silent:
        socket.create_connection(("127.0.0.1", server.port)).close()
        with socket.create_connection(("127.0.0.1", server.port)) as babbling:
            babbling.sendall(b"\x00\x00\x00\x05hello" * 3)
            assert reader(server, OneFeed()).latestOffset({"at": ""}, None) == {"at": "7"}
        assert silent.fileno() >= 0


def test_questions_reach_the_feed(server: FeedServer) -> None:
    feed = OneFeed()
    asked = reader(server, feed)
    assert asked.latestOffset({"at": "5"}, None) == {"at": "7"}
    assert feed.position == "5"
    [partition] = asked.partitions({"at": "5"}, {"at": "7"})
    assert list(asked.read(partition)) == [(b"5-7",)]
    asked.commit({"at": "7"})
    assert feed.position == "7"
    with pytest.raises(RuntimeError, match="the driver knows why"):
        asked.partitions({"at": "7"}, {"at": "8"})
    assert [str(error) for error in feed.failures] == ["beyond the end"]


def test_a_closed_server_answers_nobody() -> None:
    server = FeedServer()
    port = server.port
    server.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port))
