"""A disk that is full for a while: the topology goes on when there is room again, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fault_surroundings import SmallDisk
from steered import check_everything, steered
from written_rows import WAIT

from penstock.engine.spark.host import SparkHost
from penstock.monitor.events import EventKind


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
    rows = 8_000
    with running(steered(disk.folder, 1_000, rows=rows), local_host, state="disk/state") as run:
        assert not run.wait(2)
        disk.fill()
        # Until an operator has failed over it; whoever asks how the run is hears of no failure.
        while not any(event.kind is EventKind.FAULT for event in run.events.since(0)):
            disk.keep_full(0.2)
            assert not run.wait(0.1)
        disk.make_room()
        assert run.wait(WAIT)
    check_everything(disk.folder, rows)
