"""What a keyed operator dropped and keeps is in the status, and to be read by Prometheus."""

from __future__ import annotations

import pytest
from running_topology_contract import declared

from penstock.api.prometheus import exposition
from penstock.api.status import status_of
from penstock.cluster.model import Cluster
from penstock.monitor.kept_state import KeptState, Kind
from penstock.testing import RecordingTopology


@pytest.fixture
def running() -> RecordingTopology:
    return RecordingTopology(declared(), Cluster.of(["a"], slots=2))


def test_late_rows_are_told_by_operator(running: RecordingTopology) -> None:
    running.monitor.dropped("count", 3, running.started_at)
    running.monitor.dropped("count", 4, running.started_at)
    status = status_of(running, "local")
    late = {one["name"]: one["late_rows"] for one in status["operators"]}
    assert late["count"] == 7
    assert late["tag"] is None, "only a keyed operator has a watermark"
    name = status["topology"]
    text = exposition(status).decode()
    assert f'penstock_operator_late_rows_total{{operator="count",topology="{name}"}} 7.0' in text


def test_what_an_operator_keeps_is_told(running: RecordingTopology, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"count": (KeptState(Kind.AGGREGATE, 12, open=True),)}
    monkeypatch.setattr(running, "kept", lambda name: kept.get(name, ()))
    state = {one["name"]: one["state"] for one in status_of(running, "local")["operators"]}
    assert state["count"] == [{"kind": "aggregate", "rows": 12, "open": True}]
    assert state["tag"] is None
