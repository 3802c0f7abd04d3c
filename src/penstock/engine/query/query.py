"""One operator, or a chain of operators, as one Structured Streaming query: its life from start to stop."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Sequence

from pyspark.sql.streaming.query import StreamingQuery

from penstock.engine.query.context import RunContext
from penstock.engine.query.feeds import AnyFeed
from penstock.engine.query.frames import FrameBuilder
from penstock.engine.query.intake import Intake
from penstock.engine.query.micro_batches import MicroBatches
from penstock.engine.query.pacing import pacer_of
from penstock.engine.query.seats import RequestedBundles, Seats
from penstock.engine.query.state_account import StateAccounts
from penstock.engine.spark.failures import FailureKind, kind_of, named_error, told_once
from penstock.engine.spark.internals import QueryIdentity
from penstock.engine.spark.java_errors import JVM_GONE
from penstock.engine.spark.state_placement import StatePlacer
from penstock.errors import PenstockError
from penstock.logs import LOGGER, traced
from penstock.monitor.sample import Waited
from penstock.topology.definition import Keyed, Operator, Source

#: How often somebody who waits for a batch to end looks again.
POLL = 0.01


class OperatorQuery:
    """The life of a query: it is built, started with its gate closed, opened, drained and stopped.

    The query of a chain belongs to the first operator of the chain: it has that operator's checkpoint, inputs and
    batches."""

    #: Of micro-batches nobody knows which rows were cut and are not published.
    rows_in_work: None = None
    #: One batch runs at a time.
    open_batches: None = None

    def __init__(self, chain: Sequence[Operator], context: RunContext, seats: Seats) -> None:
        self.chain = tuple(chain)
        self.operator = operator = self.chain[0]
        self.context = context
        self.seats = seats
        self.failure: PenstockError | None = None
        #: Why it failed. It says nothing while there is no failure.
        self.kind = FailureKind.CERTAIN
        #: Spark needs executors for batches only, so a query of micro-batches that lost them had something to do.
        self.was_idle = False
        self._stopping = False
        self._failing = threading.Lock()
        #: True from the begin of the start to the end of the stop.
        self._runs = False
        self.query: StreamingQuery | None = None
        #: Spark's name for the query.
        self._id = ""
        #: What places the state of a keyed operator; None for all other operators.
        self.state: StatePlacer | None = None
        self.feeds: list[AnyFeed] = []
        #: What Spark tells of the state of a keyed operator; None for all other operators.
        self.accounts: StateAccounts | None = None
        self._batches: MicroBatches | None = None
        settings = context.settings
        self.intake = Intake(
            context.channels.seen_by(operator.name),
            context.written_by(self.chain),
            pacer_of(operator, settings),
            settings.latency_spark,
            self.fail,
            throttle=settings.backlog_policy == "throttle",
            stateful=isinstance(operator, Keyed),
        )
        self.intake.between_batches = self._between_batches
        self._session = context.spark.newSession()
        if isinstance(operator, Keyed):
            self._session.conf.set("spark.sql.shuffle.partitions", str(operator.tasks))

    # Starting

    @told_once()
    def start(self) -> None:
        """Start the query. No row gets in before `intake.open()`."""
        self._runs = True
        operator, streams, spark = self.operator, self.context.streams, self._session.sparkContext
        # The query's thread inherits the pool from the thread that starts it.
        spark.setLocalProperty("spark.scheduler.pool", operator.name)
        for channel in self.context.written_by(self.chain):
            self.context.channels.written_by(channel, operator.name)
        built = FrameBuilder(self.chain, self.context, self._session, self.intake, self.seats).build()
        self.feeds = built.feeds
        if isinstance(operator, Keyed) and streams.internals is not None:
            self.state = StatePlacer(streams.internals, built.frame, operator.tasks)
        self._batches = batches = MicroBatches(
            self.chain,
            self.context,
            built,
            self.intake,
            self.seats,
            spark,
            state=self.state,
            accounts=self.accounts,
        )
        identity = QueryIdentity(operator.name, self.context.checkpoint(operator.name), built.output_mode)
        if built.batch_writer is not None:
            write = functools.partial(batches.write, built.batch_writer)
            self.query = streams.start_batches(built.frame, identity, write)
        else:
            self.query = streams.start(built.frame, identity, batches)

    # Running

    def requested(self, batch: int) -> RequestedBundles | None:
        """The bundles that Spark was asked to run in one of the newest batches; None if that is not known."""
        return None if self._batches is None else self._batches.requested(batch)

    def _between_batches(self, idle: bool) -> None:
        if self.accounts is not None:
            self.accounts.between_batches(self.query, idle)

    @property
    def emits_by_itself(self) -> bool:
        """Whether this is a source that Spark drives: it has no gate, and Spark asks nobody before it reads."""
        return isinstance(self.operator, Source) and not self.operator.spec.read_by_bundles

    @property
    def quiet(self) -> bool:
        """Whether nothing more will come from a source whose gate is closed. A source that was started again first
        replays the batch that was cut off, and only then says that it has nothing. A source that Spark drives is quiet
        once it is stopped."""
        return not self._runs if self.emits_by_itself else self.intake.idle

    @property
    def batch_started(self) -> float | None:
        """When the batch began that is under way, of the monotonic clock; None if there is none."""
        return self.intake.started

    def waited(self) -> list[Waited]:
        """Nobody measures what Spark's tasks wait for: between two batches there are none."""
        return []

    @property
    def drained(self) -> bool:
        """Whether all rows that were published for this query are read and their results are published, and no batch
        is under way."""
        return self.intake.idle and all(feed.drained for feed in self.feeds)

    # Failing

    def fail(self, error: Exception) -> None:
        """Keep the first failure. Failures after it are its consequences, and a query that is stopped in the middle of
        a batch fails because it is stopped: these are only logged."""
        with self._failing:
            if self.failure is None and not self._stopping:
                # The kind of the failure comes first: whoever sees the failure decides by its kind whether to mend it.
                self.kind = kind_of(error)
                self.failure = named_error(self.operator, error)
                return
        why = "is being stopped" if self._stopping else "has failed before"
        LOGGER.info('the query of "%s" %s: %s: %s', self.operator.name, why, type(error).__name__, error)

    def check(self) -> None:
        """Raise the failure of the query, if it has failed."""
        self.notice_end()
        if self.failure is not None:
            raise self.failure

    def notice_end(self) -> None:
        """Find out whether Spark has ended the query, and why."""
        if self.failure is not None or self.query is None:
            return
        try:
            if self._is_known_to_run(self.query) or self.query.isActive:
                return
            with told_once():
                problem = self.query.exception()
            if problem is not None:
                self.fail(problem)
        except JVM_GONE as error:
            self.fail(error)

    def _is_known_to_run(self, query: StreamingQuery) -> bool:
        """Whether the query was among those that Spark listed as active a moment ago. One call lists all queries, so
        Spark is asked about a single query only if that query was not in the list."""
        active = self.context.streams.active
        if active is None:
            return False
        self._id = self._id or str(query.id)
        return active.has(self._id)

    # Ending

    def await_replay(self, seconds: float) -> None:
        """With the gate closed, wait until a batch that was cut off has been replayed and committed: only then does
        Spark ask for more rows."""
        deadline = time.monotonic() + seconds
        while not self.intake.idle and time.monotonic() < deadline:
            self.check()
            time.sleep(POLL)
        if not self.intake.idle:
            LOGGER.warning('the query of "%s" did not finish its last batch in %g s', self.operator.name, seconds)

    def stop(self) -> None:
        """End the query: between two micro-batches if that is possible, and in the middle of one otherwise. A batch
        that is cut off will be replayed."""
        self.intake.close()
        self._stopping = True
        # The whole session may be gone already.
        with traced(f'the query of "{self.operator.name}" could not be stopped', Exception):
            self._stop()
        self._runs = self._runs and self.query is None  # a query that is only being started runs on

    def _stop(self) -> None:
        try:
            self._stop_query()
        finally:
            for feed in self.feeds:
                # The other feeds are closed nevertheless.
                with traced(f'a feed of "{self.operator.name}" could not be closed', Exception):
                    feed.close()

    def _stop_query(self) -> None:
        if self.query is not None and self.query.isActive:
            settings = self.context.settings
            longest = max(settings.latency_under_load, settings.latency_with_backlog / 2)
            deadline = time.monotonic() + longest * 4 + 2
            while self.intake.in_batch and self.query.isActive and time.monotonic() < deadline:
                time.sleep(POLL)
            if self.intake.in_batch:
                LOGGER.info('the query of "%s" is stopped in the middle of a batch', self.operator.name)
            self.query.stop()
            # Spark asks for no further batch, and the account of the last batch is read when it asks.
            self._between_batches(idle=True)
