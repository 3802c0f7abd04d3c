"""When batches were published, and where they ran, by the reports of the batches."""

from __future__ import annotations

from typing import Any

from penstock.monitor.observed_places import ObservedPlaces
from penstock.monitor.publications import KEPT, BatchTimes, Publications
from penstock.monitor.report import BatchReport, BundleReport


def bundle(slot: str, executor: str | None) -> BundleReport:
    fields: dict[str, Any] = {"instances": 1, "partition": 0, "host": "a", "pid": 1, "rows_in": 1, "bytes_in": 8}
    times = {"busy": 0.0, "busy_total": 0.0, "cpu": 0.0, "seconds": 0.0, "born_from": 0.0, "born_to": 0.0}
    return BundleReport(slot, executor=executor, rows_out={}, **fields, **times)


def report(finished: float, *bundles: BundleReport, batch: int = 0) -> BatchReport:
    return BatchReport("work", batch, finished - 1, finished, 1, {}, bundles)


def test_gaps_are_between_publications() -> None:
    published = Publications()
    assert published.gaps("work") == []
    assert published.newest("work") is None
    for batch, at in enumerate((10.0, 12.0, 17.0)):
        published.note(report(at, batch=batch))
    assert published.gaps("work") == [(12.0, 2.0), (17.0, 5.0)]
    assert published.newest("work") == BatchTimes(2, 16.0, 17.0, rows=1) == published.batches("work")[-1]
    assert [one.batch for one in published.batches("work")] == [0, 1, 2]
    assert published.batches("out") == []
    assert published.gaps("out") == []


def test_only_the_newest_publications_are_kept() -> None:
    published = Publications()
    for at in range(2 * KEPT):
        published.note(report(at))
    gaps = published.gaps("work")
    assert len(gaps) == KEPT - 1
    assert gaps[-1] == (2 * KEPT - 1, 1)


def test_places_are_those_since_the_placement_changed() -> None:
    places = ObservedPlaces()
    places.note(report(10.0, bundle("a/0", "1"), bundle("b/0", None)))
    places.note(report(11.0, bundle("a/0", "2")))
    assert places.of("work") == {"a/0": {"1", "2"}}
    places.placement_changed(20.0)
    places.note(report(20.5, bundle("a/0", "1")))
    assert places.of("work") == {"a/0": {"1", "2"}}, "a batch that began before says nothing about the new placement"
    places.note(report(22.0, bundle("a/1", "3")))
    assert places.of("work") == {"a/1": {"3"}}
    assert places.of("out") == {}
