"""The reports of a batch: one for every operator of a chain, made from what the bundles have reported. Times are handed
in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from penstock.engine.query.feeds import Batch
from penstock.engine.query.window_ages import Born
from penstock.engine.state.checkpoint_log import Positions
from penstock.monitor.report import BatchReport, BundleReport, rows_out
from penstock.topology.definition import Operator, Sink, Source


@dataclass(frozen=True)
class FinishedBatch:
    """A batch that has run and is to be published."""

    number: int
    #: What each feed gave to the batch to read. A source that Spark itself drives has no feed.
    taken: Sequence[Batch]
    bundles: tuple[BundleReport, ...]
    #: Where Spark says that the batch ends.
    ends: Positions
    #: When the batch began, in run time.
    started: float
    #: Seconds that the driver was busy with the batch; None where bundles were.
    busy: float | None = None

    @property
    def work(self) -> int:
        """What the pacer counts: rows, or whatever else a source counts."""
        return sum(one.rows if one.work is None else one.work for one in self.taken)

    @property
    def born(self) -> Born | None:
        return born_of(self.taken)


def reports_of(chain: Sequence[Operator], done: FinishedBatch, finished: float) -> list[BatchReport]:
    """The report of every operator of the chain, in the order of the chain."""
    longest = _busy_of_chain(done.bundles)
    reports = []
    for operator in chain:
        is_first = operator is chain[0]
        own = done.bundles if len(chain) == 1 else tuple(one for one in done.bundles if one.operator == operator.name)
        report = BatchReport(
            operator=operator.name,
            batch=done.number,
            started=done.started,
            finished=finished,
            rows_in=_rows_read(operator, done, own) if is_first else sum(one.rows_in for one in own),
            rows_out={} if isinstance(operator, Sink) else rows_out(own),
            bundles=own or (_as_one_bundle(done) if is_first else ()),
        )
        elsewhere = 0.0 if len(chain) == 1 else max(longest - report.busy, 0.0)
        reports.append(replace(report, busy_elsewhere=elsewhere))
    return reports


def born_of(taken: Iterable[Batch]) -> Born | None:
    """When the first and the last of the rows that a batch reads came into the topology; None if it reads no rows."""
    held = [one for one in taken if one.rows]
    return (min(one.born_from for one in held), max(one.born_to for one in held)) if held else None


def _rows_read(operator: Operator, done: FinishedBatch, bundles: Sequence[BundleReport]) -> int:
    if not done.taken:
        return sum(rows_out(bundles).values())
    if isinstance(operator, Source):
        return sum(one.rows_in for one in bundles)  # only the reader of a file knows how many rows the file has
    return sum(one.rows for one in done.taken)


def _busy_of_chain(bundles: Sequence[BundleReport]) -> float:
    """Seconds in the functions of all operators of a chain, in the Spark task that had the most to do."""
    by_task: dict[int, float] = {}
    for one in bundles:
        by_task[one.partition] = by_task.get(one.partition, 0.0) + one.busy
    return max(by_task.values(), default=0.0)


def _as_one_bundle(done: FinishedBatch) -> tuple[BundleReport, ...]:
    """The one report of a batch that a sink got as a DataFrame. Only Spark knows where the parts of the batch ran."""
    held = [one for one in done.taken if one.rows]
    if not held:
        return ()
    busy = done.busy or 0.0
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
