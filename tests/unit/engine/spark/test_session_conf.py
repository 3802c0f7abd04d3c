"""The settings of every session."""

from __future__ import annotations

from penstock import Settings
from penstock.engine.spark.session import session_conf

SNAPSHOTS = "spark.sql.streaming.stateStore.minDeltasForSnapshot"


def test_rocksdb_makes_hardly_more_snapshots_than_it_uploads() -> None:
    assert session_conf(Settings(state_store="rocksdb"))[SNAPSHOTS] == "20", "batches of 3 s at most"
    assert session_conf(Settings(latency_with_backlog=0.5))[SNAPSHOTS] == "50"
    assert session_conf(Settings(latency_under_load=600, latency_with_backlog=600))[SNAPSHOTS] == "10"
    assert SNAPSHOTS not in session_conf(Settings(state_store="memory")), "that one writes none it does not need"


def test_checkpoints_keep_few_batches() -> None:
    """More than the two that a start needs, and much less than the hundred that Spark keeps by itself."""
    for store in ("rocksdb", "memory"):
        kept = int(session_conf(Settings(state_store=store))["spark.sql.streaming.minBatchesToRetain"])
        assert 10 <= kept <= 30
