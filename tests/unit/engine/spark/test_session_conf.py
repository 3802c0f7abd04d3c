"""The settings of every session."""

from __future__ import annotations

from penstock import Settings
from penstock.engine.spark.session import session_conf

SNAPSHOTS = "spark.sql.streaming.stateStore.minDeltasForSnapshot"


def test_rocksdb_makes_hardly_more_snapshots_than_it_uploads() -> None:
    assert session_conf(Settings(state_store="rocksdb"))[SNAPSHOTS] == "50"
    assert SNAPSHOTS not in session_conf(Settings(state_store="memory")), "that one writes none it does not need"
