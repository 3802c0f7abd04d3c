"""An operation that a fault ended is begun again; one that is done is measured, and told as an event."""

from __future__ import annotations

from typing import Any

import pytest
from fake_steering import PROPOSAL
from monitor_fakes import CLUSTER, DEFINITION

from penstock.autoscaler.effect import Effects, EndedOperation
from penstock.autoscaler.execution import Execution
from penstock.autoscaler.operations import Operation
from penstock.autoscaler.policy import Fate
from penstock.clock import run_time
from penstock.monitor.events import Event
from penstock.plans.enacting import Outcome, Status
from penstock.settings import Settings
from penstock.testing import RecordingTopology

FAULT = Outcome(PROPOSAL.plan, Status.ROLLED_BACK, "CLUSTER_FAILED: it died", error="CLUSTER_FAILED")
CANCELLED = Outcome(PROPOSAL.plan, Status.ROLLED_BACK, "CANCELLED: it was cancelled", error="CANCELLED")
DONE = Outcome(PROPOSAL.plan, Status.DONE, "as planned", seconds=2.0)


def topology(**settings: Any) -> RecordingTopology:
    made = RecordingTopology(DEFINITION, CLUSTER, Settings(**settings))
    made.started_at -= 1000
    return made


def told(run: RecordingTopology) -> list[Event]:
    """What happened after the start."""
    return run.events.since(1)


def operation() -> Operation:
    made = Operation(1, "scale-out", {}, lambda: PROPOSAL, run_time(), cause="7")
    made.proposal, made.began_at, made.state = PROPOSAL, run_time(), Fate.RUNNING
    return made


def carried_out(run: RecordingTopology, *outcomes: Outcome) -> tuple[Outcome, int]:
    """What comes of it, and how often it was begun."""
    left = list(outcomes)
    run.changes.carry_out = lambda plan: left.pop(0)  # type: ignore[method-assign]
    execution = Execution(run)
    try:
        return execution.carry_out(operation()), len(outcomes) - len(left)
    finally:
        execution.close()


def test_a_fault_has_it_begun_again() -> None:
    run = topology()
    assert carried_out(run, FAULT, DONE) == (DONE, 2)
    assert [event.kind for event in told(run)] == ["decision", "fault", "action"]
    assert "begins again: CLUSTER_FAILED: it died" in told(run)[1].reason


def test_not_more_often_than_the_setting_says() -> None:
    assert carried_out(topology(scaling_attempts=3), FAULT, FAULT, FAULT, DONE) == (FAULT, 3)
    assert carried_out(topology(scaling_attempts=1), FAULT, DONE) == (FAULT, 1)


def test_what_was_cancelled_is_not_begun_again() -> None:
    assert carried_out(topology(), CANCELLED, DONE) == (CANCELLED, 1)


def test_throughput_before_and_after_is_told() -> None:
    run, now = topology(measure_seconds=20), run_time()
    effects = Effects(run)
    for second in range(80):
        run.publish("out", 100 if second < 40 else 200, at=now - 80 + second)
        run.publish("work", 10_000, at=now - 80 + second)
    effects.ended(EndedOperation(1, "scale-out", "7", began_at=now - 40, ended_at=now))
    assert told(run) == [], "what it brought has to show first"
    effects.close()
    [event] = told(run)
    assert event.kind == "notice"
    assert event.cause == "7"
    assert event.fields["before"] == pytest.approx(300, rel=0.05), "a row of this sink counts three times"
    assert event.fields["after"] == pytest.approx(600, rel=0.01), "the batch that is under way is not a loss"
    assert event.fields["time_at_zero"] == 0
    assert event.reason.startswith("throughput from ")
    assert len(event.fields["timeline"]) == pytest.approx(59, abs=1)


def test_moves_are_not_measured() -> None:
    run = topology()
    effects = Effects(run)
    effects.ended(EndedOperation(1, "move", "7", began_at=run_time(), ended_at=None))
    effects.close()
    assert told(run) == []
