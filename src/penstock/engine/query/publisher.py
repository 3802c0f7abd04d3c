"""Publishing the batches of one query, each exactly once, and reporting them. Whatever runs the batches calls this: a
batch is a number, what it read, and what its bundles have reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.channels.layout import channel_name
from penstock.channels.publishing import NewBatch
from penstock.clock import run_time
from penstock.engine.query.batch_reports import FinishedBatch, reports_of
from penstock.engine.query.context import RunContext
from penstock.engine.query.feeds import Batch
from penstock.engine.query.staged_files import check_staged, finish_files, finish_published
from penstock.engine.state.agreement import check_batch
from penstock.monitor.report import BatchReport
from penstock.topology.definition import Operator


@dataclass(frozen=True)
class PublishedBatch:
    """A batch that is in the catalog."""

    batch: FinishedBatch
    #: The reports of the operators of a chain, in their order.
    reports: Sequence[BatchReport]
    #: False if the batch was in the catalog before: then it was a replay, which only brought state up to date.
    is_new: bool


class Publisher:
    """Publishes the batches of one operator, or of a chain of operators: the batches are the first operator's."""

    def __init__(self, chain: Sequence[Operator], context: RunContext) -> None:
        self._chain = chain
        self._first = chain[0]
        self._context = context

    def has(self, batch: int) -> bool:
        """Whether a batch is in the catalog already. A batch that fits neither the catalog nor the checkpoint is
        refused with a named error."""
        channels, name = self._context.channels, self._first.name
        newest = channels.last_batch(name)
        last = -1 if newest is None else newest
        if batch != last + 1:
            check_batch(self._first, self._context.checkpoint_log(name), channels.catalog, batch, last)
        return batch <= last

    def finish_again(self, batch: int) -> None:
        """Give the staged files of a batch that is in the catalog their final names, if they do not have them yet."""
        durable = self._context.settings.durable
        finish_published(self._first.name, batch, self._context.channels.catalog, durable=durable)

    def publish(self, done: FinishedBatch) -> PublishedBatch:
        """Enter a batch in the catalog, with its segments and read positions, in one transaction. Then its staged files
        get their final names."""
        [published] = self.publish_all([done])
        return published

    def publish_all(self, finished: Sequence[FinishedBatch]) -> list[PublishedBatch]:
        """The same for several batches, in one transaction for all of them. Batches with staged files must come one by
        one: after a crash only the files of the newest batch get the names that they lack."""
        reports = [reports_of(self._chain, done, run_time()) for done in finished]
        wholes = [
            replace(own[0], bundles=done.bundles or own[0].bundles, ends=done.ends)
            for own, done in zip(reports, finished, strict=True)
        ]
        for whole in wholes:
            check_staged(whole)
        channels = self._context.channels
        new = channels.publish_all(
            [self._entry(done, whole) for done, whole in zip(finished, wholes, strict=True)],
        )
        for whole, is_new in zip(wholes, new, strict=True):
            if is_new:
                finish_files(whole, channels.catalog, durable=self._context.settings.durable)
            else:  # what the catalog names counts, which another attempt may have written
                self.finish_again(whole.batch)
        now = run_time()
        return [
            PublishedBatch(done, [replace(report, finished=now) for report in own], is_new)
            for done, own, is_new in zip(finished, reports, new, strict=True)
        ]

    def _entry(self, done: FinishedBatch, whole: BatchReport) -> NewBatch:
        segments = [segment for one in done.bundles for segment in one.segments]
        read_to = {channel: row for one in done.taken for channel, row in one.read_to.items()}
        return NewBatch(self._first.name, done.number, segments, whole.as_json(), read_to)

    def report(self, published: PublishedBatch) -> None:
        """Tell the run of every operator's part in a batch. A replay was told of before, and is passed over."""
        if not published.is_new:
            return
        first, *others = published.reports
        self._context.published(first, published.batch.taken)
        for report in others:
            self._context.published(report, [self._handed_on(report)])

    def _handed_on(self, report: BatchReport) -> Batch:
        """What an operator got from the operator before it in the chain."""
        definition = self._context.definition
        [stream] = definition.inputs_of(report.operator)
        channel = channel_name(definition, stream)
        return Batch({}, report.rows_in, rows_by_channel={channel: report.rows_in})
