"""What Spark must not pile up while a topology runs for hours: idle Python workers, and more sessions than it must."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from conftest import TEST_SETTINGS

from penstock.cluster.provider import Executor
from penstock.cluster.standalone import StandaloneCluster
from penstock.engine.spark import warming
from penstock.engine.spark.host import SparkHost
from penstock.engine.spark.idle_workers import MOST_IDLE
from penstock.engine.spark.warming import WarmFeed, warm_state

AT_ONCE = 6
KEPT = 2


def take_a_while(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    time.sleep(2)
    for batch in batches:
        yield pa.record_batch([pa.array([str(os.getpid()).encode()] * batch.num_rows, pa.binary())], names=["x"])


def hear_of_queries(host: SparkHost) -> int:
    """How many sessions hear of queries."""
    listeners = host.spark._jsparkSession.sparkContext().listenerBus().listeners()
    return [one.getClass().getSimpleName() for one in listeners].count("StreamingQueryListenerBus")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[SparkHost]:
    provider = StandaloneCluster(1, 1, 1, AT_ONCE + 2, tmp_path / "cluster")
    conf = {MOST_IDLE: str(KEPT)}
    with SparkHost("steady", provider, TEST_SETTINGS, tmp_path / "logs", [str(Path(__file__).parent)], conf) as made:
        yield made


@pytest.mark.live  # a cluster of its own
def test_an_executor_keeps_few_idle_workers_and_one_session_warms_all_machines(host: SparkHost, tmp_path: Path) -> None:
    internals, [executor] = host.streams.internals, host.slots.executors()
    assert internals is not None
    ran = {int(pid) for pid in internals.run_on([executor] * AT_ONCE, take_a_while)}
    assert len(ran) == AT_ONCE
    deadline = time.monotonic() + 20
    while len(left := {pid for pid in ran if psutil.pid_exists(pid)}) > KEPT and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(left) == KEPT
    again = {int(pid) for pid in internals.run_on([executor] * KEPT, take_a_while)}
    assert again == left, "those that are kept are used again"

    shown: list[tuple[str | None, str]] = []

    class Watched(WarmFeed):
        def partitions(self, start: str | None, end: str) -> list[tuple[bytes, Executor | None]]:
            shown.append((start, end))
            return super().partitions(start, end)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warming, "WarmFeed", Watched)
        assert warm_state(internals, [executor], str(tmp_path), 60)
    assert shown[:2] == [(None, "1"), ("1", "2")]
    assert shown[-1] == ("2", "3"), "the second query goes on with the state of the first one"
    assert shown.count((None, "1")) == 1, "and does not begin anew"
    before = hear_of_queries(host)
    for _ in range(3):
        assert warm_state(internals, [executor], str(tmp_path), 60)
    # Each of the two queries adds the copy that Spark makes of its session, and no more.
    assert hear_of_queries(host) <= before + 3 * 2
    assert not list(tmp_path.glob(".warm-*"))
