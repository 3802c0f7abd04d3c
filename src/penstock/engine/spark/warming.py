"""Making new executors ready for state: the first batch with a state store on a fresh JVM takes seconds, for which the
rows of a topology need not wait.

A query of a few rows, with state partitions on every new executor, runs two batches: that loads RocksDB's native
library, the shuffle, Spark's code generator and the Python stage behind them. Then the same query is started once more,
for one batch: that reads the state of the first two from its files, as a task does that is moved to the machine.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.cluster.model import Slot
from penstock.cluster.provider import Executor
from penstock.engine.executor import bundle
from penstock.engine.spark.internals import QueryIdentity, SparkInternals
from penstock.engine.spark.state_placement import StatePlacer
from penstock.logs import LOGGER, delete_folder, traced

#: State partitions on each executor.
PARTITIONS = 2
#: Of the query that begins with no state, and of the one that reads what that one has written.
FIRST_BATCHES, MORE_BATCHES = 2, 1
#: Rows of each batch.
ROWS = 16
#: How the names of the checkpoints of warming begin.
PREFIX = ".warm-"
#: Held while a query is started, which takes the settings of its session as they are then: the session has others' too.
_STARTING = threading.Lock()


def warm_state(internals: SparkInternals, executors: Sequence[Executor], checkpoints: str, seconds: float) -> bool:
    """Have these executors run a stateful query, for so many seconds at most. `checkpoints` is a location that all
    machines see; if it is a plain folder, the query's checkpoint is deleted afterwards. Whether they did all of it."""
    checkpoint = f"{checkpoints}/{PREFIX}{secrets.token_hex(4)}"
    deadline = time.monotonic() + seconds
    try:
        starts = (FIRST_BATCHES, FIRST_BATCHES + MORE_BATCHES)
        return all(_run_until(batches, internals, executors, checkpoint, deadline) for batches in starts)
    finally:
        if Path(checkpoints).is_dir():
            delete_folder(Path(checkpoint))


def _run_until(
    batches: int, internals: SparkInternals, executors: Sequence[Executor], checkpoint: str, deadline: float
) -> bool:
    """Start the query and stop it when it has run so many batches since its very beginning. Whether it has."""
    session: SparkSession = internals.warming_session
    partitions = PARTITIONS * len(executors)
    feed, done = _WarmFeed(executors, batches), _Last(batches - 1)
    slots = [Slot("warm", index // PARTITIONS) for index in range(partitions)]
    with _STARTING:
        session.conf.set("spark.sql.shuffle.partitions", str(partitions))
        frame = internals.placed_stream(session, "warm", feed).groupBy("descriptor").count()
        placer = StatePlacer(internals, frame, partitions)
        reports = frame.select("descriptor").mapInArrow(bundle.warm, "x binary")
        query = internals.start(reports, QueryIdentity(f"warm-{secrets.token_hex(4)}", checkpoint, "update"), done)
    try:
        placer.settle(query, slots, lambda slot: executors[slot.index])
        feed.open.set()
        return done.finished.wait(max(0.0, deadline - time.monotonic())) and not done.failed
    finally:
        feed.closed = True
        feed.open.set()
        with traced("the query that warms state stores could not be stopped", Exception):
            query.stop()


def clear_warming(checkpoints: str) -> None:
    """Delete the checkpoints that a driver left behind which was killed while it warmed executors."""
    if Path(checkpoints).is_dir():
        for left in Path(checkpoints).glob(f"{PREFIX}*"):
            delete_folder(left)


class _WarmFeed:
    """A feed of rows without meaning, one batch after the other; its offset is the number of batches."""

    def __init__(self, executors: Sequence[Executor], batches: int) -> None:
        """`batches` is after how many it ends, those of earlier starts too."""
        self._executors = executors
        self._batches = batches
        self._next = 0
        self.open = threading.Event()
        self.closed = False

    def seek(self, start: str) -> None:
        self._next = int(json.loads(start))

    def latest(self) -> str | None:
        self.open.wait()
        if self._next < self._batches and not self.closed:
            return json.dumps(self._next + 1)
        return json.dumps(self._next) if self._next else None

    def partitions(self, start: str | None, end: str) -> list[tuple[bytes, Executor | None]]:
        self._next = int(json.loads(end))
        return [(b"%d" % row, self._executors[row % len(self._executors)]) for row in range(ROWS)]

    def committed(self, end: str) -> None:
        pass

    def fail(self, error: Exception) -> None:
        """Nobody is told but the log: what warming could not do, the first real batch does."""
        LOGGER.info("the query that warms state stores got no rows: %s", error)


class _Last:
    """A sink that waits for one batch."""

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self.finished = threading.Event()
        self.failed = False

    def wants(self, batch: int) -> bool:
        return True

    def take(self, batch: int, reports: Sequence[bytes]) -> None:
        if batch >= self._batch:
            self.finished.set()

    def fail(self, error: Exception) -> None:
        LOGGER.info("the query that warms state stores failed: %s", error)
        self.failed = True
        self.finished.set()
