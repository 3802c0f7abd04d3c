"""The two Python objects that Spark calls: a streaming source and a sink. Java reaches them through Py4J's callbacks.

internals.py hands them to Spark, and descriptor_frames.py makes the Java values that they answer with.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from penstock.cluster.provider import Executor
from penstock.engine.spark.descriptor_frames import DescriptorFrames
from penstock.engine.spark.java_values import STREAMING

SOURCE = f"{STREAMING}.Source"
SINK = f"{STREAMING}.Sink"


class Feed(Protocol):
    """What stands behind a placed stream. Offsets are JSON texts; Spark keeps them, and compares them as texts."""

    def seek(self, start: str) -> None:
        """The next micro-batch starts here. Spark says so only where bundles are not placed (unplaced.py); elsewhere
        `partitions` shows the position."""

    def latest(self) -> str | None:
        """Up to where the next micro-batch may read; None if there is nothing at all yet. May wait for rows."""

    def partitions(self, start: str | None, end: str) -> Sequence[tuple[bytes, Executor | None]]:
        """One descriptor for each partition, and the executor that shall run it; None if any executor may."""

    def committed(self, end: str) -> None:
        """Spark will never ask again for anything before this offset."""

    def fail(self, error: Exception) -> None:
        """The feed could not answer one of Spark's questions, and the query ends."""


class BatchSink(Protocol):
    """What stands behind a query started by `start`."""

    def wants(self, batch: int) -> bool:
        """Asked before a batch runs; False if it is known to be done, so that it need not run again."""

    def take(self, batch: int, reports: Sequence[bytes]) -> None:
        """The first column of all rows of a batch. It may come again after a restart."""

    def fail(self, error: Exception) -> None:
        """A batch failed, in the driver or on an executor."""


class _CalledFromJava:
    """A Python object that Java calls. An error of a call is kept for the driver, and Java gets a short text: Spark
    runs a regular expression over the message, which overflows Java's stack on a Python traceback."""

    def __init__(self, name: str, failed: Callable[[Exception], None]) -> None:
        self._name = name
        self._failed = failed

    def _call(self, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except Exception as error:
            self._failed(error)
            raise RuntimeError(f"{self._name} failed; the driver knows why") from None

    def toString(self) -> str:
        return self._name

    def hashCode(self) -> int:
        return zlib.crc32(self._name.encode()) & 0x7FFFFFFF

    def equals(self, other: Any) -> bool:
        return False


class PlacedSource(_CalledFromJava):
    """Trick 2: Spark's Source interface, answered in Python through Py4J's callback server."""

    def __init__(self, frames: DescriptorFrames, name: str, feed: Feed, session: Any) -> None:
        super().__init__(name, feed.fail)
        self._frames = frames
        self._feed = feed
        self._session = session
        #: What was answered last, as Java has it: while nothing comes, the answer is the same, and made once.
        self._answered: tuple[str | None, Any] | None = None

    def schema(self) -> Any:
        return self._frames.schema

    def getOffset(self) -> Any:
        text = self._call(self._feed.latest)
        if self._answered is None or self._answered[0] != text:
            self._answered = text, self._frames.maybe_offset(text)
        return self._answered[1]

    def getBatch(self, start: Any, end: Any) -> Any:
        def batch() -> Any:
            begin = start.get().json() if start.isDefined() else None
            return self._frame(self._feed.partitions(begin, end.json()))

        return self._call(batch)

    def _frame(self, partitions: Sequence[tuple[bytes, Executor | None]]) -> Any:
        """A batch of these partitions, as Java has it."""
        return self._frames.of(self._session, partitions) if partitions else self._frames.empty(self._session)

    def commit(self, end: Any) -> None:
        self._call(lambda: self._feed.committed(end.json()))

    def stop(self) -> None:
        """The thread of the query says this when it ends."""
        self._call(self._frames.connections.this_call_is_the_last)

    def initialOffset(self) -> Any:
        raise NotImplementedError("only sources of the second version have one")

    def deserializeOffset(self, text: str) -> Any:
        return self._frames.offset(text)

    class Java:
        implements = (SOURCE,)


class PythonSink(_CalledFromJava):
    """Trick 3: Spark's Sink interface, answered in Python."""

    def __init__(self, frames: DescriptorFrames, name: str, sink: BatchSink, spark: SparkSession) -> None:
        super().__init__(name, sink.fail)
        self._frames = frames
        self._sink = sink
        self._spark = spark

    def addBatch(self, batch: int, frame: Any) -> None:
        def take() -> None:
            if self._sink.wants(batch):
                self._sink.take(batch, [bytes(row[0]) for row in DataFrame(frame, self._spark).collect()])

        self._call(take)

    def name(self) -> str:
        return self._name

    def schema(self) -> Any:
        return self._frames.schema

    def capabilities(self) -> Any:
        return self._frames.java.empty_set()

    class Java:
        implements = (SINK,)
