"""One operator, or a chain of them, as one Structured Streaming query: its life from start to stop, and what it
publishes."""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from penstock.channels.layout import channel_name
from penstock.clock import run_time
from penstock.engine.executor import bundle
from penstock.engine.message.failures import named_error, tells_of_a_full_disk, tells_of_lost_executors, told_once
from penstock.engine.query.feeds import Asked, Batch, Seats
from penstock.engine.query.frames import AnyFeed, Environment, FrameBuilder
from penstock.engine.query.intake import Intake
from penstock.engine.query.pacing import FIRST_ROWS, FIRST_ROWS_OF_SQL, Pacer
from penstock.engine.query.staged_files import check_staged, finish_files, finish_published
from penstock.engine.query.state_account import StateAccounts
from penstock.engine.query.window_ages import Born
from penstock.engine.spark.internals import QueryIdentity
from penstock.engine.spark.state_placement import StatePlacer
from penstock.engine.state.agreement import check_batch
from penstock.engine.state.checkpoint_log import Positions
from penstock.errors import PenstockError
from penstock.kinds import BatchWriter, Unit
from penstock.monitor.report import BatchReport, BundleReport, rows_out
from penstock.settings import Settings
from penstock.topology.definition import (
    Keyed,
    Operator,
    Sink,
    Source,
)

#: How often a source that Spark drives is asked whether its output channels have room again.
FULL_POLL = 0.5
#: Batches of which it is known what was asked for: enough for those that Spark has not finished or recorded yet.
REMEMBERED_BATCHES = 8


class OperatorQuery:
    """The life of one operator: built, started with its gate closed, opened, drained, stopped.

    With others chained behind it, the query is still the first one's: its checkpoint, its inputs, its batches."""

    def __init__(self, chain: Sequence[Operator], environment: Environment, seats: Seats) -> None:
        self.chain = tuple(chain)
        self.operator = operator = self.chain[0]
        self.environment = environment
        self.seats = seats
        self.failure: PenstockError | None = None
        #: Whether it failed because executors were lost, more often than Spark bears, and not by its own fault.
        self.lost_executors = False
        #: Whether it failed because a disk was full.
        self.no_room = False
        self._stopping = False
        self._failing = threading.Lock()
        #: From the begin of its start to the end of its stop.
        self._runs = False
        self.query: StreamingQuery | None = None
        #: Spark's name for it.
        self._id = ""
        self.state: StatePlacer | None = None
        self.feeds: list[AnyFeed] = []
        #: What Spark was asked for, by batch, for the newest batches.
        self.asked: dict[int, Asked] = {}
        #: Of keyed operators: what Spark tells of their state.
        self.accounts: StateAccounts | None = None
        #: When the batch began, where no feed was asked for its rows.
        self._wanted_at = 0.0
        #: Whether its bundles do the work, and not Spark SQL.
        self._arrow = False
        settings = environment.settings
        self.intake = Intake(
            environment.channels.seen_by(operator.name),
            environment.written_by(self.chain),
            self._pacer(settings),
            settings.batch_linger,
            self.fail,
            throttle=settings.backlog_policy == "throttle",
            stateful=isinstance(operator, Keyed),
        )
        self.intake.between_batches = self._between_batches
        self._session = environment.spark.newSession()
        if isinstance(operator, Keyed):
            self._session.conf.set("spark.sql.shuffle.partitions", str(operator.tasks))

    def _pacer(self, settings: Settings) -> Pacer:
        longest = settings.batch_interval_most
        if isinstance(self.operator, Source):
            spec = self.operator.spec
            most = settings.batch_rows if spec.unit is Unit.ROWS else settings.batch_bytes
            return Pacer(settings.batch_interval, most, spec.first_batch or FIRST_ROWS, longest=longest)
        if isinstance(self.operator, Keyed) or getattr(self.operator, "takes_dataframes", False):
            return Pacer(settings.batch_interval, settings.batch_rows, FIRST_ROWS_OF_SQL, longest=longest)
        return Pacer(settings.batch_interval, settings.batch_rows, longest=longest)

    # Starting

    @told_once()
    def start(self) -> None:
        """Start the query. No row gets in before `intake.open()`."""
        self._runs = True
        operator, streams = self.operator, self.environment.streams
        # The query's thread inherits the pool from the thread that starts it.
        self._session.sparkContext.setLocalProperty("spark.scheduler.pool", operator.name)
        for channel in self.environment.written_by(self.chain):
            self.environment.channels.written_by(channel, operator.name)
        built = FrameBuilder(self.chain, self.environment, self._session, self.intake, self.seats).build()
        self.feeds, self._arrow = built.feeds, built.arrow
        identity = QueryIdentity(operator.name, self.environment.checkpoint(operator.name), built.output_mode)
        if built.batch_writer is not None:
            write = functools.partial(self._write_batch, built.batch_writer)
            self.query = streams.start_batches(built.frame, identity, write)
            return
        if isinstance(operator, Keyed) and streams.internals is not None:
            self.state = StatePlacer(streams.internals, built.frame, operator.tasks)
        self.query = streams.start(built.frame, identity, self)

    # Micro-batches

    def wants(self, batch: int) -> bool:
        """A batch that was published before the driver died need not run again; state must be brought up to date."""
        channels, name = self.environment.channels, self.operator.name
        last = channels.last_batch(name)
        last = -1 if last is None else last
        replay = batch <= last
        if batch != last + 1:
            check_batch(self.operator, self.environment.checkpoint_log(name), channels.catalog, batch, last)
        done = replay and not isinstance(self.operator, Keyed)
        if done:
            finish_published(name, batch, channels.catalog)
            for feed in self.feeds:
                feed.take_batch()
            self.intake.ended(0, 0.0)
            return False
        self._wanted_at = time.monotonic()
        if self.emits_by_itself:
            self.intake.began()
        self.asked[batch] = self.seats.take_asked()
        while len(self.asked) > REMEMBERED_BATCHES:
            self.asked.pop(next(iter(self.asked)))
        # Bundles that get their rows from Spark SQL cannot know how old these are.
        born = _born(feed.batch for feed in self.feeds)
        if self.accounts is not None:
            born = self.accounts.born(born)
        self._session.sparkContext.setLocalProperty(bundle.BORN_PROPERTY, json.dumps(born or [run_time()] * 2))
        return True

    def _between_batches(self, idle: bool) -> None:
        if self.accounts is not None:
            self.accounts.between_batches(self.query, idle)

    def take(self, batch: int, reports: Sequence[bytes]) -> None:
        """The reports of a micro-batch's bundles: publish what they wrote, in one transaction."""
        bundles = tuple(self._located(BundleReport.parse(text)) for text in reports)
        if self.state is not None:
            self.state.ran({bundle.partition: bundle.executor for bundle in bundles})
        self._publish(batch, bundles)

    def _located(self, report: BundleReport) -> BundleReport:
        """Segments say on which slot they were written. Where Spark has chosen it, the bundle could not know."""
        if not report.by_spark_sql or not report.segments:
            return report
        slot = self.seats.ran_on(report)
        return replace(report, segments=tuple(replace(segment, slot=slot) for segment in report.segments))

    @told_once()
    def _write_batch(self, writer: BatchWriter, frame: DataFrame, batch: int) -> None:
        try:
            if self.wants(batch):
                started = time.perf_counter()
                writer.write(frame, batch)
                self._publish(batch, (), time.perf_counter() - started)
        except Exception as error:
            self.fail(error)
            raise RuntimeError(f"{self.operator.name} failed; the driver knows why") from None

    def _publish(self, batch: int, bundles: tuple[BundleReport, ...], busy: float | None = None) -> None:
        taken = [feed.take_batch() for feed in self.feeds]
        reports = self._reports(batch, taken, bundles, busy)
        segments = [segment for one in bundles for segment in one.segments]
        read_to = {channel: row for one in taken for channel, row in one.read_to.items()}
        whole = replace(reports[0], bundles=bundles or reports[0].bundles, ends=self._ends(batch))
        check_staged(whole)
        new = self.environment.channels.publish(self.operator.name, batch, segments, whole.as_json(), read_to)
        finish_files(whole, self.environment.channels.catalog)
        published = run_time()
        reports = [replace(report, finished=published) for report in reports]
        # Spark SQL does not say how much of its time was for rows.
        known = reports[0].busy + reports[0].busy_elsewhere if self._arrow else busy
        self.intake.ended(self._work(taken), known)
        if new:  # and not a replay, which only brings state up to date
            self.environment.published(reports[0], taken)
            for report in reports[1:]:
                self.environment.published(report, [self._handed_on(report)])
        if self.accounts is not None:
            self.accounts.published(batch, _born(taken), sum(reports[0].rows_out.values()), new)
        if not self.feeds:
            self._wait_for_room()

    def _ends(self, batch: int) -> Positions:
        """Where Spark says that a batch ends. A source of Spark's own has no feed that was told: Spark wrote it down
        before the batch."""
        if self.feeds:
            return {name: row for feed in self.feeds for name, row in feed.told.items()}
        return self.environment.checkpoint_log(self.operator.name).ends(batch, of_source=True) or {}

    def _reports(
        self, batch: int, taken: Sequence[Batch], bundles: tuple[BundleReport, ...], busy: float | None
    ) -> list[BatchReport]:
        """One of every operator in the chain."""
        finished = run_time()
        began = self.intake.turn.started or self._wanted_at
        started = finished - (time.monotonic() - began)
        longest = _busy_of_chain(bundles)
        reports = []
        for operator in self.chain:
            is_first = operator is self.operator
            own = bundles if len(self.chain) == 1 else tuple(one for one in bundles if one.operator == operator.name)
            report = BatchReport(
                operator=operator.name,
                batch=batch,
                started=started,
                finished=finished,
                rows_in=self._rows_in(taken, own) if is_first else sum(one.rows_in for one in own),
                rows_out={} if isinstance(operator, Sink) else rows_out(own),
                bundles=own or (_as_one_bundle(taken, busy or 0.0) if is_first else ()),
            )
            elsewhere = 0.0 if len(self.chain) == 1 else max(longest - report.busy, 0.0)
            reports.append(replace(report, busy_elsewhere=elsewhere))
        return reports

    def _handed_on(self, report: BatchReport) -> Batch:
        """What an operator got from the one before it in the chain."""
        [stream] = self.environment.definition.inputs_of(report.operator)
        channel = channel_name(self.environment.definition, stream)
        return Batch({}, report.rows_in, rows_by_channel={channel: report.rows_in})

    def _rows_in(self, taken: Sequence[Batch], bundles: Sequence[BundleReport]) -> int:
        if not self.feeds:
            return sum(rows_out(bundles).values())
        if isinstance(self.operator, Source):
            return sum(one.rows_in for one in bundles)  # how many there are in a file, only its reader knows
        return sum(one.rows for one in taken)

    def _work(self, taken: Sequence[Batch]) -> int:
        """What the pacer counts: rows, or what else a source counts."""
        return sum(one.rows if one.work is None else one.work for one in taken)

    def _wait_for_room(self) -> None:
        """A source that Spark drives by itself is held back where its batch ends."""
        channels, names = self.environment.channels, self.environment.written_by(self.chain)
        bounded = self.environment.settings.backlog_policy == "throttle"

        def has_room() -> bool:
            self.intake.throttled = bounded and any(map(channels.full, names))
            return not self.intake.throttled and not self.intake.paused

        self.intake.held_back = not has_room()
        while not self.intake.closed and not channels.seen_by(self.operator.name).wait(has_room, FULL_POLL):
            pass

    def fail(self, error: Exception) -> None:
        """The first failure counts; those that follow are its consequences, as are those of a query that is stopped in
        the middle of a batch."""
        with self._failing:
            if self.failure is None and not self._stopping:
                # First of what kind it is: whoever sees the failure decides by that whether it can be mended.
                self.lost_executors = tells_of_lost_executors(error)
                self.no_room = tells_of_a_full_disk(error)
                self.failure = named_error(self.operator, error)

    # Ending

    @property
    def emits_by_itself(self) -> bool:
        """Whether it is a source that Spark drives: it has no gate, and nobody is asked before it reads."""
        return isinstance(self.operator, Source) and not self.operator.spec.read_by_bundles

    @property
    def quiet(self) -> bool:
        """Of a source whose gate is closed: nothing more will come from it. One that was started again replays the
        batch that was cut off before it says that it has nothing; what Spark drives has no more to say once it is
        stopped."""
        return not self._runs if self.emits_by_itself else self.intake.idle

    @property
    def drained(self) -> bool:
        """Everything that was published for it is read and published on, and no batch is under way."""
        return self.intake.idle and all(feed.drained for feed in self.feeds)

    def check(self) -> None:
        """Raise what the query failed with, if it did."""
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
        except (Py4JError, OSError) as error:  # the JVM of the driver is gone
            self.fail(error)

    def _is_known_to_run(self, query: StreamingQuery) -> bool:
        """By what Spark said of all queries together a moment ago; only where that is not so it is asked about one."""
        active = self.environment.streams.active
        if active is None:
            return False
        self._id = self._id or str(query.id)
        return active.has(self._id)

    def await_replay(self, seconds: float) -> None:
        """With the gate closed, wait until a batch that was cut off has been replayed and committed: Spark asks for
        more rows only then."""
        deadline = time.monotonic() + seconds
        while not self.intake.idle and time.monotonic() < deadline:
            self.check()
            time.sleep(0.01)

    def stop(self) -> None:
        """End the query between two micro-batches if that is possible, and in the middle of one otherwise: it will be
        replayed."""
        self.intake.close()
        self._stopping = True
        with suppress(Exception):  # the whole session may be gone already
            self._stop()
        self._runs = self._runs and self.query is None  # one that is only being started runs on

    def _stop(self) -> None:
        try:
            self._stop_query()
        finally:
            for feed in self.feeds:
                with suppress(Exception):  # the others are closed nevertheless
                    feed.close()

    def _stop_query(self) -> None:
        if self.query is not None and self.query.isActive:
            settings = self.environment.settings
            longest = max(settings.batch_interval, settings.batch_interval_most / 2)
            deadline = time.monotonic() + longest * 4 + 2
            while self.intake.in_batch and self.query.isActive and time.monotonic() < deadline:
                time.sleep(0.01)
            self.query.stop()
            self._between_batches(idle=True)  # Spark asks for no further batch, where the last one would be read of


def _born(taken: Iterable[Batch]) -> Born | None:
    """When the first and the last row of what was read came into the topology."""
    held = [one for one in taken if one.rows]
    return (min(one.born_from for one in held), max(one.born_to for one in held)) if held else None


def _busy_of_chain(bundles: Sequence[BundleReport]) -> float:
    """Seconds in functions, of all operators of a chain, in the task that had the most to do."""
    by_task: dict[int, float] = {}
    for one in bundles:
        by_task[one.partition] = by_task.get(one.partition, 0.0) + one.busy
    return max(by_task.values(), default=0.0)


def _as_one_bundle(taken: Sequence[Batch], busy: float) -> tuple[BundleReport, ...]:
    """The report of a batch that a function of a DataFrame handled: Spark alone knows where its parts ran."""
    held = [one for one in taken if one.rows]
    if not held:
        return ()
    return (
        BundleReport(
            slot="driver",
            instances=1,
            partition=0,
            executor=None,
            host="",
            pid=0,
            rows_in=sum(one.rows for one in held),
            bytes_in=0,
            rows_out={},
            busy=busy,
            busy_total=busy,
            cpu=0.0,
            seconds=busy,
            born_from=min(one.born_from for one in held),
            born_to=max(one.born_to for one in held),
            by_spark_sql=True,
        ),
    )
