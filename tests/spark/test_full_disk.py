"""A disk that is full for a while: the topology goes on when there is room again, and nothing is lost."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from fault_surroundings import SmallDisk
from steered import check_everything, steered
from written_rows import WAIT

from penstock import Topology, sinks, sources
from penstock.channels.catalog import Catalog
from penstock.engine.query import publisher
from penstock.engine.query.staged_files import finish_files
from penstock.engine.spark.host import SparkHost
from penstock.monitor.events import EventKind
from penstock.monitor.report import BatchReport


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if lacking := SmallDisk.lacking():
        pytest.skip(lacking)
    disk = SmallDisk(tmp_path / "disk")
    disk.start()
    yield disk
    disk.stop()


def test_nothing_is_lost_on_a_disk_that_is_full_for_a_while(
    local_host: SparkHost, running: Callable, disk: SmallDisk
) -> None:
    rows = 4_500
    with running(steered(disk.folder, 500, rows=rows), local_host, state="disk/state") as run:
        # At the first rows, and not after some seconds: on busy cores all of them may have passed by then.
        while run.statistics.totals("tag")[0] == 0:
            assert not run.wait(0.05)
        disk.fill()
        # Until an operator has failed over it; whoever asks how the run is hears of no failure.
        while not any(event.kind is EventKind.FAULT for event in run.events.since(0)):
            disk.keep_full(0.2)
            assert not run.wait(0.1)
        disk.make_room()
        assert run.wait(WAIT)
    check_everything(disk.folder, rows)


def test_a_published_file_that_could_not_be_named_is_named_before_the_next_batch(
    local_host: SparkHost, running: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog has the batch, so no bundle will write its rows again."""
    # The first of them: on busy cores there may be few batches.
    rows, finished = 4_000, iter([errno.ENOSPC])

    def finish_or_fail(report: BatchReport, catalog: Catalog, *, durable: bool) -> None:
        if code := next(finished, 0) if any(bundle.staged for bundle in report.bundles) else 0:
            raise OSError(code, "No space left on device")
        finish_files(report, catalog)

    monkeypatch.setattr(publisher, "finish_files", finish_or_fail)
    made = Topology("files")
    events = made.source("events", sources.rate(2_000, sources.events(keys=13, seed=1), rows=rows))
    made.sink("out", sinks.parquet(tmp_path / "out"), inputs=events)
    with running(made, local_host) as run:
        assert run.wait(WAIT)
        assert any(event.kind is EventKind.FAULT for event in run.events.since(0))
    written = ds.dataset(tmp_path / "out", exclude_invalid_files=True).to_table().column("id").to_pylist()
    assert sorted(written) == list(range(rows))
