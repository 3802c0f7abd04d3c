"""A batch is published once and reported once, whatever runs it; its reports are those of every operator in a chain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock import PenstockError, Settings, Topology, sinks, sources
from penstock.channels.catalog import Catalog
from penstock.channels.layout import channels_of
from penstock.channels.log import Bound, Channels
from penstock.channels.segments import SegmentStore
from penstock.engine.query import publisher
from penstock.engine.query.batch_reports import FinishedBatch, born_of, reports_of
from penstock.engine.query.feeds import Batch
from penstock.engine.query.publisher import Publisher
from penstock.monitor.report import BatchReport, BundleReport
from penstock.topology.definition import TopologyDefinition


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def declared() -> TopologyDefinition:
    topology = Topology("t")
    rows = topology.source("rows", sources.rate(1, sources.numbers()))
    kept = topology.map("kept", same, inputs=rows, schema="id long, value double")
    topology.sink("out", sinks.noop(), inputs=kept)
    return topology.definition()


DEFINITION = declared()
CHAIN = [DEFINITION.operator("kept"), DEFINITION.operator("out")]
[INPUT] = [name for name, channel in channels_of(DEFINITION).items() if channel.producer == "rows"]


def bundle(operator: str, partition: int, rows: int, busy: float) -> BundleReport:
    fields: dict[str, Any] = {"slot": "a/0", "instances": 1, "executor": None, "host": "", "pid": 0, "bytes_in": 0}
    times = {"busy": busy, "busy_total": busy, "cpu": 0.0, "seconds": busy, "born_from": 5.0, "born_to": 6.0}
    return BundleReport(**fields, **times, operator=operator, partition=partition, rows_in=rows, rows_out={"out": rows})


def finished(number: int) -> FinishedBatch:
    bundles = (bundle("kept", 0, 6, 1.0), bundle("out", 0, 6, 2.0), bundle("kept", 1, 4, 0.5), bundle("out", 1, 4, 0.5))
    return FinishedBatch(number, [Batch({INPUT: 10}, 10, 5.0, 6.0)], bundles, {INPUT: 10}, started=100.0)


Told = list[tuple[BatchReport, Sequence[Batch]]]


@pytest.fixture
def told() -> Told:
    return []


@pytest.fixture
def publishes(tmp_path: Path, told: Told) -> Iterator[Publisher]:
    catalog = Catalog.open(f"sqlite:///{tmp_path / 'catalog.sqlite'}", "t", synchronous="NORMAL")
    layout = channels_of(DEFINITION)
    readers = {name: channel.readers for name, channel in layout.items()}
    writers = {name: channel.producer for name, channel in layout.items()}
    channels = Channels(catalog, SegmentStore(str(tmp_path / "segments")), readers, writers, Bound(1000, 1 << 20))
    context: Any = SimpleNamespace(
        settings=Settings(),
        channels=channels,
        definition=DEFINITION,
        checkpoint_log=lambda operator: SimpleNamespace(folder="checkpoints/kept"),
        published=lambda report, taken: told.append((report, taken)),
    )
    yield Publisher(CHAIN, context)
    catalog.close()


def test_a_batch_is_published_and_reported_once(
    publishes: Publisher, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "check_batch", lambda *asked: None)  # it fits
    assert not publishes.has(0)
    first = publishes.publish(finished(0))
    publishes.report(first)
    assert first.is_new
    assert [report.operator for report, _ in told] == ["kept", "out"]
    assert publishes.has(0)
    again = publishes.publish(finished(0))
    publishes.report(again)
    assert not again.is_new
    assert len(told) == 2, "a replay is not reported"
    assert not publishes.has(1)


def test_a_batch_says_in_the_catalog_where_it_ended(publishes: Publisher) -> None:
    """By that a start sees whether Spark's checkpoint is of the same moment, and bundles that stand know how far they
    are."""
    publishes.publish(finished(0))
    [kept] = publishes._context.channels.catalog.manifests("kept")
    assert BatchReport.parse(kept.manifest).ends == {INPUT: 10}


@pytest.mark.parametrize(("batch", "error"), [(0, "STATE_DOES_NOT_FIT"), (3, "CATALOG_WENT_BACK")])
def test_a_batch_that_neither_follows_nor_is_the_last_one_again_is_no_replay(
    publishes: Publisher, batch: int, error: str
) -> None:
    """A checkpoint that was put back while the topology ran, or a catalog: the rows of the batch would be lost."""
    publishes.publish_all([finished(0), finished(1)])
    with pytest.raises(PenstockError) as caught:
        publishes.has(batch)
    assert caught.value.name == error


def test_batches_that_are_published_together_are_told_apart(publishes: Publisher) -> None:
    both = publishes.publish_all([finished(0), finished(1)])
    assert [(one.batch.number, one.is_new) for one in both] == [(0, True), (1, True)]
    assert [[report.batch for report in one.reports] for one in both] == [[0, 0], [1, 1]]
    again = publishes.publish_all([finished(1), finished(2)])
    assert [one.is_new for one in again] == [False, False], "the second is not known to follow what is there"
    assert publishes.publish(finished(2)).is_new


def test_a_batch_that_was_in_the_catalog_keeps_its_own_files(publishes: Publisher, tmp_path: Path) -> None:
    """Another thread, held up by its database, has published the batch while this one worked on other rows."""
    final = tmp_path / "part-0.parquet"

    def writes(text: str) -> FinishedBatch:
        staged = tmp_path / f"staged-{text}"
        staged.write_text(text)
        done = finished(0)
        return replace(
            done, bundles=(replace(done.bundles[0], staged=((f"|{staged}", str(final)),)), *done.bundles[1:])
        )

    publishes.publish(writes("first"))
    assert not publishes.publish(writes("second")).is_new
    assert final.read_text() == "first"


def test_a_batch_is_not_published_if_the_driver_cannot_see_its_files(publishes: Publisher, tmp_path: Path) -> None:
    """It is written again by whoever is started on a folder that driver and executors share."""
    done = finished(0)
    staged = ((f"|{tmp_path / 'on-another-machine'}", str(tmp_path / "part-0.parquet")),)
    unseen = replace(done, bundles=(replace(done.bundles[0], staged=staged), *done.bundles[1:]))
    with pytest.raises(PenstockError) as caught:
        publishes.publish(unseen)
    assert caught.value.name == "SINK_NOT_SHARED"
    assert publishes._context.channels.catalog.last_batch("kept") is None
    assert publishes.publish(done).is_new


def test_an_operator_in_a_chain_is_reported_with_what_the_operator_before_it_gave_it(
    publishes: Publisher, told: Told
) -> None:
    publishes.report(publishes.publish(finished(0)))
    (_, read), (report, handed_on) = told
    assert [one.rows for one in read] == [10]
    assert report.rows_in == 10
    [one] = handed_on
    assert list(one.rows_by_channel.values()) == [10]
    assert one.read_to == {}, "no channel is between the operators of a chain"


def test_every_operator_of_a_chain_knows_how_long_the_others_kept_its_task_busy() -> None:
    kept, out = reports_of(CHAIN, finished(3), finished=103.0)
    assert (kept.batch, kept.started, kept.finished) == (3, 100.0, 103.0)
    assert (kept.rows_in, kept.rows_out, out.rows_in, out.rows_out) == (10, {"out": 10}, 10, {})
    assert kept.busy + kept.busy_elsewhere == out.busy + out.busy_elsewhere == 3.0


def test_a_batch_without_bundles_is_reported_as_one_on_the_driver() -> None:
    taken = [Batch({INPUT: 10}, 10, 5.0, 6.0)]
    [report] = reports_of(CHAIN[1:], FinishedBatch(0, taken, (), {}, 100.0, busy=0.5), finished=101.0)
    [one] = report.bundles
    assert (one.slot, one.rows_in, one.busy, one.born_from, one.born_to) == ("driver", 10, 0.5, 5.0, 6.0)


def test_feeds_that_gave_no_rows_say_nothing_of_their_age() -> None:
    assert born_of([Batch({})]) is None
    assert born_of([Batch({}), Batch({}, 1, 5.0, 6.0), Batch({}, 1, 4.0, 5.0)]) == (4.0, 6.0)
