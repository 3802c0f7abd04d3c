"""A master drops workers whose heartbeats are late; workers must know by when they are."""

from __future__ import annotations

from pathlib import Path

from penstock.cluster import daemons


def test_master_and_workers_know_the_same_time(tmp_path: Path) -> None:
    environment = daemons.daemon_environment({}, tmp_path, "127.0.0.2")
    assert daemons.WORKER_TIMEOUT in environment["SPARK_MASTER_OPTS"].split()
    assert daemons.WORKER_TIMEOUT in environment["SPARK_WORKER_OPTS"].split()
