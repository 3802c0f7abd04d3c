"""Which connections of Java's threads are noted as ended, where no Spark is needed to see it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from py4j.java_gateway import GatewayClient
from pyspark import SparkContext

from penstock.engine.spark.callback_connections import CallbackConnections


def test_threads_without_connections_of_their_own_have_none_to_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """With PYSPARK_PIN_THREAD=false a thread takes any connection that is free: closing one would hurt another call."""
    client = GatewayClient.__new__(GatewayClient)
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(_gateway_client=client))
    connections = CallbackConnections(clock=lambda: 0.0)
    connections.this_call_is_the_last()
    assert connections.close_ended() == 0
