"""A decision that a person asked for is checked too, without Spark."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from monitor_fakes import CLUSTER, DEFINITION, PLACEMENT

from penstock.api.steering import Steering
from penstock.autoscaler.goals import Grow
from penstock.clock import run_time
from penstock.cluster.model import Cluster
from penstock.monitor.snapshot import OperatorSnapshot, Snapshot, StreamSnapshot
from penstock.settings import Settings
from penstock.testing import RecordingTopology

WAIT = 20.0


def made(**settings: Any) -> RecordingTopology:
    """A topology that is measured as congested, whatever its placement is."""
    wanted = Settings(sample_seconds=0.1, window_samples=2, window_least_samples=1, **settings)
    run = RecordingTopology(DEFINITION, CLUSTER, wanted, PLACEMENT, Cluster.of(["c"], 2).machines)

    def snapshot() -> Snapshot:
        operators = {
            name: OperatorSnapshot(name, kind, run.placements.planned.total(name), rate=rate, input_rate=100.0)
            for name, kind, rate in (("rows", "source", 100.0), ("work", "map", 50.0), ("out", "sink", 50.0))
        }
        streams = {
            f"{a}->{b}": StreamSnapshot(f"{a}->{b}", a, "out", b, emit_rate=rate)
            for a, b, rate in (("rows", "work", 100.0), ("work", "out", 50.0), ("rows", "out", 100.0))
        }
        at = run_time()
        placement, coming = run.placements.planned, run.coming()
        return Snapshot(DEFINITION, run.cluster, placement, at, at, 6, operators, streams, {}, {}, {}, coming=coming)

    run.snapshot = snapshot  # type: ignore[method-assign]
    return run


def test_it_gets_a_verdict_after_a_while() -> None:
    run = made()
    steering = Steering(run, "recorded", lambda drain: None)
    try:
        number = steering.scale_out()["id"]
        assert steering.operations.wait(steering.operations.get(number), WAIT)
        deadline = time.monotonic() + WAIT
        while (found := steering.decisions()["decisions"])[0]["verdict"] == "pending":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        [one] = found
        assert (one["operation"], one["action"], one["strategy"]) == (number, "scale-out", run.settings.strategy)
        assert one["before"]["throughput"] == 150
        assert one["measured"]["machines"] == 3
        assert one["why"].startswith("150 rows/s before, 150 after")
    finally:
        steering.close()


def test_what_was_not_carried_out_says_so_and_a_dry_run_is_no_decision() -> None:
    run = made(scaling_attempts=1)
    steering = Steering(run, "recorded", lambda drain: None)
    try:
        steering.scale_out(dry_run=True)
        assert steering.decisions()["decisions"] == []

        def broken(call: str) -> None:
            raise RuntimeError(call)

        run.engine.meanwhile = broken
        number = steering.scale_out()["id"]
        assert steering.operations.wait(steering.operations.get(number), WAIT)
        deadline = time.monotonic() + WAIT
        while (found := steering.decisions()["decisions"])[0]["verdict"] == "pending":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert found[0]["verdict"] == "not applied"
        assert replace(steering.desk.view(Grow(1, "")), now=1.0).machines == 2
    finally:
        steering.close()
