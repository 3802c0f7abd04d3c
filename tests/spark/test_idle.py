"""What a topology of many operators asks of the JVM while nothing flows."""

from __future__ import annotations

import time
from dataclasses import replace

import pyarrow as pa
import pytest
from conftest import TEST_SETTINGS, Running
from py4j.java_gateway import GatewayClient
from written_rows import WAIT

from penstock import Topology, sinks, sources
from penstock.engine.spark.host import SparkHost

OPERATORS = 12
ROWS = 5
SECONDS = 4.0
SETTINGS = replace(TEST_SETTINGS, chaining="off", sample_seconds=1.0)


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def a_few_rows_and_then_none() -> Topology:
    made = Topology("idle")
    stream = made.source("rows", sources.rate(sources.stepped([(0.1, ROWS * 10), (1, 0)])))
    for index in range(OPERATORS - 2):
        stream = made.map(f"map{index}", same, inputs=[stream], schema="id long, value double")
    made.sink("out", sinks.noop(), inputs=[stream])
    return made


def test_operators_that_have_nothing_to_do_cost_hardly_a_call(
    local_host: SparkHost, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    send = GatewayClient.send_command

    def counted(self: GatewayClient, command: str, *more: object, **named: object) -> object:
        calls.append(command)
        return send(self, command, *more, **named)

    with running(a_few_rows_and_then_none(), local_host, settings=SETTINGS) as run:
        deadline = time.monotonic() + WAIT
        while not (run.statistics.totals("out")[0] == ROWS and all(query.intake.idle for query in run.queries.all())):
            assert time.monotonic() < deadline, "the rows did not come through"
            run.wait(0.05)
        # Those that answer for the last time that there is nothing, and what is found out after a batch.
        run.wait(3 * SETTINGS.sample_seconds)
        monkeypatch.setattr(GatewayClient, "send_command", counted)
        run.wait(SECONDS)  # looks at every query twenty times a second
        monkeypatch.setattr(GatewayClient, "send_command", send)
    # It was more than 25 a second for each of them.
    assert len(calls) <= 2 * OPERATORS * SECONDS, f"{len(calls)} calls, such as {calls[:20]}"
