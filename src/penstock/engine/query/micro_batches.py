"""Spark's micro-batches of one query. Spark says when a batch begins, and hands over what its bundles have reported;
from that, this module makes a batch that is published."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace

from pyspark import SparkContext
from pyspark.sql import DataFrame

from penstock.clock import run_time
from penstock.engine.executor import bundle
from penstock.engine.query.batch_reports import FinishedBatch, born_of
from penstock.engine.query.context import RunContext
from penstock.engine.query.frames import OperatorFrame
from penstock.engine.query.intake import Intake
from penstock.engine.query.publisher import Publisher
from penstock.engine.query.seats import RequestedBundles, Seats
from penstock.engine.query.state_account import StateAccounts
from penstock.engine.spark.failures import told_once
from penstock.engine.spark.state_placement import StatePlacer
from penstock.engine.state.checkpoint_log import Positions
from penstock.kinds import BatchWriter
from penstock.monitor.report import BundleReport
from penstock.topology.definition import Keyed, Operator

#: How often a source that Spark drives is asked whether its output channels have room again.
FULL_POLL = 0.5
#: So many of the newest batches are remembered with the bundles that Spark was asked to run: enough for the batches
#: that Spark has not finished or recorded yet.
REMEMBERED_BATCHES = 8


class MicroBatches:
    """Implements `penstock.engine.spark.java_callbacks.BatchSink`. Spark's thread of the query calls it."""

    def __init__(
        self,
        chain: Sequence[Operator],
        context: RunContext,
        frame: OperatorFrame,
        intake: Intake,
        seats: Seats,
        spark: SparkContext,
        *,
        state: StatePlacer | None = None,
        accounts: StateAccounts | None = None,
    ) -> None:
        self._chain = chain
        self._operator = chain[0]
        self._context = context
        #: Empty for a source that Spark itself drives.
        self._feeds = frame.feeds
        #: Whether the bundles do the work, and not Spark SQL.
        self._arrow = frame.arrow
        self._intake = intake
        self._seats = seats
        self._spark = spark
        self._state = state
        self._accounts = accounts
        self._publisher = Publisher(chain, context)
        #: When the batch began of a query that has no feed, whose intake so cannot know it.
        self._wanted_at = 0.0
        self._requested: dict[int, RequestedBundles] = {}

    def requested(self, batch: int) -> RequestedBundles | None:
        """The bundles that Spark was asked to run in a batch; None if that is not remembered any more."""
        return self._requested.get(batch)

    def wants(self, batch: int) -> bool:
        """Whether a batch has to run. A batch that was published before the driver died need not run again, unless the
        operator has state, which must be brought up to date."""
        if self._publisher.has(batch) and not isinstance(self._operator, Keyed):
            self._publisher.finish_again(batch)
            for feed in self._feeds:
                feed.take_batch()
            self._intake.ended(0, 0.0)
            return False
        self._wanted_at = time.monotonic()
        if not self._feeds:
            self._intake.began()
        self._intake.runs()
        self._requested[batch] = self._seats.take_requested()
        while len(self._requested) > REMEMBERED_BATCHES:
            self._requested.pop(next(iter(self._requested)))
        # Bundles that get their rows from Spark SQL cannot know how old these rows are.
        born = born_of(feed.batch for feed in self._feeds)
        if self._accounts is not None:
            born = self._accounts.born(born)
        self._spark.setLocalProperty(bundle.BORN_PROPERTY, json.dumps(born or [run_time()] * 2))
        return True

    def take(self, batch: int, reports: Sequence[bytes]) -> None:
        """Publish what the bundles of a batch have written. Each of them has returned a report."""
        bundles = tuple(self._located(BundleReport.parse(text)) for text in reports)
        if self._state is not None:
            self._state.ran({bundle.partition: bundle.executor for bundle in bundles})
        self._publish(batch, bundles)

    def fail(self, error: Exception) -> None:
        """Something went wrong in a batch, here or on an executor: the query fails."""
        self._intake.fail(error)

    @told_once()
    def write(self, writer: BatchWriter, frame: DataFrame, batch: int) -> None:
        """Have a sink write a batch that it gets as a DataFrame, and publish the batch."""
        try:
            if self.wants(batch):
                started = time.perf_counter()
                writer.write(frame, batch)
                self._publish(batch, (), time.perf_counter() - started)
        except Exception as error:
            self.fail(error)
            raise RuntimeError(f"{self._operator.name} failed; the driver knows why") from None

    def _located(self, report: BundleReport) -> BundleReport:
        """A segment says which slot has written it. Where Spark has chosen the slot, the bundle could not know it."""
        if not report.by_spark_sql or not report.segments:
            return report
        slot = self._seats.ran_on(report)
        return replace(report, segments=tuple(replace(segment, slot=slot) for segment in report.segments))

    def _publish(self, batch: int, bundles: tuple[BundleReport, ...], busy: float | None = None) -> None:
        taken = [feed.take_batch() for feed in self._feeds]
        began = self._intake.progress.started or self._wanted_at
        started = run_time() - (time.monotonic() - began)
        done = FinishedBatch(batch, taken, bundles, self._ends(batch), started, busy)
        published = self._publisher.publish(done)
        first = published.reports[0]
        # Spark SQL does not say how much of its time was for rows.
        seconds = self._intake.ended(done.work, first.busy + first.busy_elsewhere if self._arrow else busy)
        if seconds:
            self._context.paces.noted(self._operator.name, seconds)
        self._publisher.report(published)
        if self._accounts is not None:
            self._accounts.published(batch, done.born, sum(first.rows_out.values()), published.is_new)
        if not self._feeds:
            self._wait_for_room()

    def _ends(self, batch: int) -> Positions:
        """Where Spark says that a batch ends. A source that Spark drives has no feed that Spark could have told: Spark
        has written the end down before the batch."""
        if self._feeds:
            return {name: row for feed in self._feeds for name, row in feed.told.items()}
        return self._context.checkpoint_log(self._operator.name).ends(batch, of_source=True) or {}

    def _wait_for_room(self) -> None:
        """Hold a source that Spark drives back at the end of its batch, as long as its output channels are full."""
        channels, names = self._context.channels, self._context.written_by(self._chain)
        bounded = self._context.settings.backlog_policy == "throttle"

        def has_room() -> bool:
            self._intake.throttled = bounded and any(map(channels.full, names))
            return not self._intake.throttled and not self._intake.paused

        self._intake.held_back = not has_room()
        while not self._intake.closed and not channels.seen_by(self._operator.name).wait(has_room, FULL_POLL):
            pass
