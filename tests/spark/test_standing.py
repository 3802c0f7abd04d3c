"""Bundles that stand: every row once and in its order, also while they are killed, moved and started again."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from conftest import TEST_SETTINGS
from written_rows import WAIT

from penstock import Topology, sinks, sources
from penstock.engine.spark.host import SparkHost
from penstock.engine.topology import SparkTopology
from penstock.plans import requests as plans
from penstock.plans.enacting import Status

EVENT = "id long, key string"


class NotedProcess:
    """A function that leaves the id of the process which called it last."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:
            fresh = self._file.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
            fresh.write_text(str(os.getpid()))
            fresh.replace(self._file)  # whoever reads it finds it whole
        return batch.select(["id", "key"])


def topology(folder: Path, rate: float, rows: int | None = None) -> Topology:
    made = Topology("standing")
    events = made.source("events", sources.rate(rate, sources.events(keys=13, seed=1), rows=rows), instances=2)
    shaped = made.map("shaped", NotedProcess(folder / "shaped"), inputs=events, schema=EVENT, instances=2)
    keyed = made.map("by_key", NotedProcess(folder / "keyed"), inputs=shaped.by_key("key"), schema=EVENT, instances=3)
    made.sink("out", sinks.parquet(folder / "out"), inputs=keyed)
    return made


def in_order(folder: Path) -> list[dict[str, Any]]:
    """Rows in the order in which they were published: batch and partition are in a file's name."""
    return [row for path in sorted(folder.glob("*.parquet")) for row in ds.dataset(path).to_table().to_pylist()]


def check(folder: Path, rows: int) -> None:
    """Every row is there once, and those of a key are in their order."""
    written = in_order(folder)
    assert sorted(row["id"] for row in written) == list(range(rows))
    by_key: dict[str, list[int]] = defaultdict(list)
    for row in written:
        by_key[row["key"]].append(row["id"])
    assert len(by_key) == 13
    assert all(ids == sorted(ids) for ids in by_key.values())


def more_batches(run: SparkTopology, count: int = 3) -> None:
    seen, deadline = run.statistics.batches("out"), time.monotonic() + WAIT
    while run.statistics.batches("out") < seen + count:
        assert time.monotonic() < deadline
        run.wait(0.05)


def test_a_topology_that_is_started_again_goes_on_where_it_was(
    local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    for rows in (3_000, 6_000):
        with running(topology(tmp_path, 3_000, rows), local_host, "kept") as run:
            assert run.wait(WAIT)
        check(tmp_path / "out", rows)


def test_a_sink_that_takes_its_time_for_a_file_delays_neither_a_change_nor_the_end(
    local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    settings = replace(TEST_SETTINGS, file_seconds=3600, change_seconds=90, drain_seconds=90)
    made = Topology("slow_files")
    events = made.source("events", sources.rate(500, sources.events(keys=13, seed=1)))
    made.sink("out", sinks.parquet(tmp_path / "out"), inputs=events, instances=2)
    with running(made, local_host, settings=settings) as run:
        run.wait(1)
        [first, second] = local_host.cluster.slots
        outcome = run.changes.carry_out(plans.set_instances(run.placement, "out", {first: 3, second: 1}))
        assert outcome.status is Status.DONE, outcome.reason
        assert run.stop()
        emitted = run.query("events").feeds[0].position
    written = [row["id"] for row in in_order(tmp_path / "out")]
    assert sorted(written) == list(range(emitted))
    assert len(list((tmp_path / "out").glob("*.parquet"))) <= 8


@pytest.mark.live
def test_killed_workers_and_a_change_of_placement_lose_nothing(
    standalone_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    with running(topology(tmp_path, 1_000), standalone_host) as run:
        more_batches(run)
        for noted in ("keyed", "shaped"):
            os.kill(int((tmp_path / noted).read_text()), signal.SIGKILL)
            more_batches(run)
        [first, *_, last] = standalone_host.cluster.slots
        for operator in ("by_key", "shaped"):
            outcome = run.changes.carry_out(plans.set_instances(run.placement, operator, {first: 1, last: 2}))
            assert outcome.status is Status.DONE, outcome.reason
            more_batches(run)
            deadline = time.monotonic() + WAIT
            # Operators that may run as one again have just begun to: their bundles are still to come.
            while (observed := run.placements.observed(operator)) is None:
                assert time.monotonic() < deadline
                run.wait(0.05)
            assert observed.agrees(operator, run.placement)
        assert run.stop()
        emitted = run.query("events").feeds[0].position
    check(tmp_path / "out", emitted)
