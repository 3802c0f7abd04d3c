"""The wall clock of the driver is set by an hour while a topology runs and is changed."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from conftest import TEST_SETTINGS, Running
from written_rows import WAIT

from penstock import Topology, sinks, sources
from penstock.cluster.model import Placement
from penstock.engine.spark.host import SparkHost
from penstock.engine.topology import SparkTopology
from penstock.plans import requests as plans
from penstock.plans.enacting import Status

RATE = 200
#: A change that is seen too late must not hold up the tests for long.
SETTINGS = replace(TEST_SETTINGS, chaining="off", change_seconds=40)
HOUR = 3600.0


def numbers() -> Topology:
    made = Topology("clock")
    rows = made.source("rows", sources.rate(RATE))
    made.sink("out", sinks.noop(), inputs=[made.map("same", _same, inputs=[rows], schema="id long, value double")])
    return made


def _same(batch):
    return batch


def flowing(run: SparkTopology) -> None:
    wanted, deadline = run.statistics.batches("out") + 2, time.monotonic() + WAIT
    while run.statistics.batches("out") < wanted:
        assert time.monotonic() < deadline, "rows stopped coming out"
        run.wait(0.05)


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])
def test_rows_go_on_and_a_change_is_done_while_the_clock_is_set(
    local_host: SparkHost, running: Running, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    slots = local_host.cluster.slots
    start = Placement({name: {slots[0]: 1} for name in ("rows", "same", "out")})
    real = time.time
    began = time.monotonic()
    with running(numbers(), local_host, settings=SETTINGS, placement=start) as run:
        flowing(run)
        changes, plan = run.changes, run.arrangement.plan

        def set_clock_and_plan(placement: Placement) -> None:
            plan(placement)
            monkeypatch.setattr(time, "time", lambda: real() + jump)

        monkeypatch.setattr(run.arrangement, "plan", set_clock_and_plan)
        outcome = changes.carry_out(plans.set_instances(run.placement, "same", {slots[1]: 1}))
        assert outcome.status is Status.DONE, outcome.reason
        flowing(run)
        emitted = run.query("rows").feeds[0].position
        assert 0 < emitted <= RATE * (time.monotonic() - began)
        assert 0 <= run.statistics.latency("out").p99 < WAIT
        snapshot = run.snapshot()
        assert 0 <= snapshot.at - snapshot.since < WAIT
        assert snapshot.operators["out"].latency is None or snapshot.operators["out"].latency.p99 < WAIT
        assert run.statistics.rates("out").rows_in > 0
