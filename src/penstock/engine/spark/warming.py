"""Making new executors ready for state: the first batch with a state store on a fresh JVM takes seconds, for which the
rows of a topology need not wait.

A query of a few rows, with state partitions on every new executor, runs two batches: that loads RocksDB's native
library, the shuffle, Spark's code generator and the Python stage behind them. Then the same query is started once more,
for one batch: that reads the state of the first two from its files, as a task does that is moved to the machine. (What
it reads are the changes of two batches. There is no snapshot of the state so soon.)
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
#: How many batches there are when the first start ends, and when the second one does.
STARTS = (2, 3)
#: Seconds between two looks at whether the query still runs.
LOOK_SECONDS = 0.2
#: Rows of each batch.
ROWS = 16
#: How the names of the checkpoints of warming begin.
PREFIX = ".warm-"
#: Held while a query is started, which takes the settings of its session as they are then: the session has others' too.
_STARTING = threading.Lock()


def warm_state(internals: SparkInternals, executors: Sequence[Executor], checkpoints: str, seconds: float) -> bool:
    """Have these executors run a stateful query, whose batches get so many seconds. `checkpoints` is a location that
    all machines see; if it is a plain folder, the query's checkpoint is deleted afterwards. It returns whether all
    batches were run."""
    checkpoint = f"{checkpoints}/{PREFIX}{secrets.token_hex(4)}"
    deadline = time.monotonic() + seconds
    try:
        return all(_run_until(batches, internals, executors, checkpoint, deadline) for batches in STARTS)
    finally:
        if Path(checkpoints).is_dir():
            delete_folder(Path(checkpoint))


def _run_until(
    batches: int, internals: SparkInternals, executors: Sequence[Executor], checkpoint: str, deadline: float
) -> bool:
    """Start the query, and stop it when Spark has committed so many batches; those of an earlier start count. It
    returns whether Spark has."""
    session: SparkSession = internals.warming_session
    partitions = PARTITIONS * len(executors)
    feed = WarmFeed(executors, batches)
    slots = [Slot("warm", index // PARTITIONS) for index in range(partitions)]
    with _STARTING:
        session.conf.set("spark.sql.shuffle.partitions", str(partitions))
        frame = internals.placed_stream(session, "warm", feed).groupBy("descriptor").count()
        placer = StatePlacer(internals, frame, partitions)
        reports = frame.select("descriptor").mapInArrow(bundle.warm, "x binary")
        identity = QueryIdentity(f"warm-{secrets.token_hex(4)}", checkpoint, "update")
        query = internals.start(reports, identity, _NoReports())
    try:
        placer.settle(query, slots, lambda slot: executors[slot.index])
        feed.open.set()
        while not feed.finished.wait(LOOK_SECONDS):
            if time.monotonic() > deadline or not query.isActive:
                return False
        return True
    finally:
        feed.close()
        with traced("the query that warms state stores could not be stopped", Exception):
            query.stop()


def clear_warming(checkpoints: str) -> None:
    """Delete the checkpoints that a driver left behind which was killed while it warmed executors."""
    if Path(checkpoints).is_dir():
        for left in Path(checkpoints).glob(f"{PREFIX}*"):
            delete_folder(left)


class WarmFeed:
    """A feed of rows without meaning, one batch after the other; its offset is the number of batches."""

    def __init__(self, executors: Sequence[Executor], batches: int) -> None:
        """The feed ends after so many batches; those of an earlier start count."""
        self._executors = executors
        self._batches = batches
        self._next = 0
        self._closed = False
        #: Set once the state has its places: no batch may begin before.
        self.open = threading.Event()
        #: Set when Spark asks what comes after the last batch. It has committed that batch then, and the query can be
        #: stopped without cutting it off.
        self.finished = threading.Event()

    def seek(self, start: str) -> None:
        self._next = int(json.loads(start))

    def latest(self) -> str | None:
        self.open.wait()
        if not self._closed:
            if self._next < self._batches:
                return json.dumps(self._next + 1)
            self.finished.set()
        return json.dumps(self._next) if self._next else None

    def partitions(self, start: str | None, end: str) -> list[tuple[bytes, Executor | None]]:
        self.open.wait()  # after a restart Spark shows the last batch before it asks for the next
        self._next = int(json.loads(end))
        return [(b"%d" % row, self._executors[row % len(self._executors)]) for row in range(ROWS)]

    def committed(self, end: str) -> None:
        pass

    def close(self) -> None:
        """Let go whoever waits."""
        self._closed = True
        self.open.set()

    def fail(self, error: Exception) -> None:
        """Nobody is told but the log: what warming could not do, the first real batch does."""
        LOGGER.info("the query that warms state stores got no rows: %s", error)


class _NoReports:
    """A sink for reports that say nothing."""

    def wants(self, batch: int) -> bool:
        return True

    def take(self, batch: int, reports: Sequence[bytes]) -> None:
        pass

    def fail(self, error: Exception) -> None:
        LOGGER.info("the query that warms state stores failed: %s", error)
