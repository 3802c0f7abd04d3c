"""The fallback without Spark's internals: the same feeds behind Spark's public Python data source. Spark runs the
bundles where it likes, and a batch costs more, but nothing is lost and the results are the same.

Spark asks a Python data source for offsets and partitions in a process of its own, so the questions travel over a
loopback socket to the driver, where the feeds are. Both sides prove that they know a random key, and what they then
exchange is JSON: nothing is unpickled.
"""

from __future__ import annotations

import base64
import functools
import json
import secrets
import socket
import threading
import time
from collections.abc import Collection, Iterator, MutableMapping, Sequence
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from penstock.cluster.provider import Executor
from penstock.engine.spark.descriptor_frames import DESCRIPTOR
from penstock.engine.spark.internals import QueryIdentity, SparkInternals
from penstock.engine.spark.java_callbacks import BatchSink, Feed
from penstock.engine.spark.streams import ActiveQueries, TaskThreads, TurnJob, WriteBatch, start_foreach_batch
from penstock.logs import LOGGER, traced

_FORMAT = "penstock_feed"
#: How many seconds the start of one query may hold up the next one.
FIRST_QUESTION = 60.0


class FeedServer:
    """Answers questions about feeds, on loopback, to whoever knows the key."""

    def __init__(self) -> None:
        self.key = secrets.token_bytes(32)
        self._listener = Listener(("127.0.0.1", 0), backlog=32)
        self._closed = False
        self._feeds: dict[str, Feed] = {}
        #: The feeds that Spark has asked about.
        self._asked: set[str] = set()
        self._heard = threading.Condition()
        self._thread = threading.Thread(target=self._accept, name="penstock-feeds", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listener.address[1])

    def add(self, feed: Feed) -> str:
        name = secrets.token_hex(8)
        self._feeds[name] = feed
        return name

    def wait_for_question(self, name: str, timeout: float) -> bool:
        with self._heard:
            return self._heard.wait_for(lambda: name in self._asked, timeout)

    def close(self) -> None:
        self._closed = True
        # A connection ends the accept() that the thread waits in; closing the listener would not.
        with traced("the thread that answers questions about feeds could not be woken to end", OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        self._thread.join(timeout=1)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
            except OSError as error:  # a stranger who was gone before we answered
                LOGGER.info("a connection to the feeds broke before it was accepted: %s", error)
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        # Keys are compared here and not in accept(): a stranger who says nothing keeps nobody else waiting.
        # That the other side closes the connection is the usual end.
        refused = traced("somebody who does not know the key asked about feeds", AuthenticationError, AssertionError)
        with connection, suppress(EOFError, OSError), refused:
            deliver_challenge(connection, self.key)
            answer_challenge(connection, self.key)
            while True:
                question = json.loads(connection.recv_bytes())
                feed = self._feeds[question["feed"]]
                with self._heard:
                    self._asked.add(question["feed"])
                    self._heard.notify_all()
                try:
                    answer = _answer(feed, question)
                except Exception as error:
                    feed.fail(error)
                    answer = {"error": "the driver knows why"}
                connection.send_bytes(json.dumps(answer).encode())


def _answer(feed: Feed, question: dict[str, Any]) -> Any:
    start = question.get("start") or None
    if question["ask"] == "latest":
        if start is not None:
            feed.seek(start)
        return feed.latest() or ""
    if question["ask"] == "partitions":
        return [base64.b64encode(text).decode() for text, _ in feed.partitions(start, question["end"])]
    feed.committed(question["end"])
    return None


class _Reader(DataSourceStreamReader):
    """Spark calls it in a Python process of its own for the source, and calls `read` on the executors."""

    def __init__(self, port: int, key: bytes, feed: str) -> None:
        self._port = port
        self._key = key
        self._feed = feed
        self._connection: Connection | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_connection": None}

    def initialOffset(self) -> dict[str, str]:
        return {"at": ""}

    def latestOffset(self, start: dict[str, str], limit: Any) -> dict[str, str]:
        return {"at": self._ask(ask="latest", start=start["at"]) or start["at"]}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        if not end["at"]:
            return []
        texts = self._ask(ask="partitions", start=start["at"], end=end["at"])
        return [InputPartition(base64.b64decode(text)) for text in texts]

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
        yield (partition.value,)

    def commit(self, end: dict[str, str]) -> None:
        if end["at"]:
            self._ask(ask="committed", end=end["at"])

    def _ask(self, **question: Any) -> Any:
        if self._connection is None:
            self._connection = Client(("127.0.0.1", self._port), authkey=self._key)
        self._connection.send_bytes(json.dumps({"feed": self._feed, **question}).encode())
        answer = json.loads(self._connection.recv_bytes())
        if isinstance(answer, dict):
            raise RuntimeError(answer["error"])
        return answer


class _FeedSource(DataSource):
    """A class per server: the key travels in the pickled class, not in the options, which Spark prints."""

    port: int
    key: bytes

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def schema(self) -> StructType:
        return DESCRIPTOR

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _Reader(self.port, self.key, self.options["feed"])


class UnplacedStreams:
    """The way through Spark's public interfaces only: Spark chooses where bundles run."""

    def __init__(self) -> None:
        self.internals: SparkInternals | None = None
        self.active: ActiveQueries | None = None
        self._server = FeedServer()
        self._source = functools.partial(_source_class, self._server.port, self._server.key)
        #: Feeds of the query that is started next.
        self._next: list[str] = []

    def placed(self, session: SparkSession, name: str, feed: Feed) -> DataFrame:
        session.dataSource.register(self._source())
        self._next.append(self._server.add(feed))
        return session.readStream.format(_FORMAT).option("feed", self._next[-1]).load()

    def start(self, frame: DataFrame, identity: QueryIdentity, sink: BatchSink) -> StreamingQuery:
        def take(batch_frame: DataFrame, batch: int) -> None:
            try:
                if sink.wants(batch):
                    sink.take(batch, [bytes(row[0]) for row in batch_frame.collect()])
            except Exception as error:
                sink.fail(error)
                raise RuntimeError(f"{identity.name} failed; the driver knows why") from None

        return self._started(start_foreach_batch(frame, identity, take))

    def start_batches(self, frame: DataFrame, identity: QueryIdentity, write: WriteBatch) -> StreamingQuery:
        return self._started(start_foreach_batch(frame, identity, write))

    def run_turn(self, turn: TurnJob) -> None:
        spark = SparkSession.active()
        turn.begin(spark)
        seats = spark.sparkContext.parallelize([(seat,) for seat, _ in turn.seats], max(len(turn.seats), 1))
        spark.createDataFrame(seats, DESCRIPTOR).mapInArrow(turn.function, "done binary").collect()

    def task_threads(self, group: str, executors: Collection[Executor]) -> TaskThreads | None:
        return None

    def _started(self, query: StreamingQuery) -> StreamingQuery:
        """Wait until the query asks for its rows. Spark starts a Python process for every input and
        waits for it to connect only so long; with all inputs at once on two loaded cores one was once too late."""
        feeds, self._next = self._next, []
        deadline = time.monotonic() + FIRST_QUESTION
        for feed in feeds:
            while query.isActive and time.monotonic() < deadline and not self._server.wait_for_question(feed, 0.5):
                pass
        return query

    def close(self) -> None:
        self._server.close()


def unwrapped_offset(offset: Any) -> Any:
    """The offset that a feed gave, taken out of what Spark has written down for it, whichever way the feed is
    connected; None if the feed gave none. A feed gives a text: anything else that looks alike is the offset of a user's
    source."""
    if not isinstance(offset, dict) or list(offset) != ["at"] or not isinstance(offset["at"], str):
        return offset
    return json.loads(offset["at"]) if offset["at"] else None


def _source_class(port: int, key: bytes) -> type[DataSource]:
    return type("PenstockFeed", (_FeedSource,), {"port": port, "key": key})
