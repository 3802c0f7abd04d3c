"""An operation that a fault ended is begun again; one that is done is measured, and told as an event."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from fake_steering import PROPOSAL
from monitor_fakes import DEFINITION

from penstock.api.operations import Operation, State
from penstock.api.steering import Steering
from penstock.autoscaler.effect import Measuring
from penstock.plans.enacting import Outcome, Status
from penstock.settings import Settings

FAULT = Outcome(PROPOSAL.plan, Status.ROLLED_BACK, "CLUSTER_FAILED: it died", error="CLUSTER_FAILED")
CANCELLED = Outcome(PROPOSAL.plan, Status.ROLLED_BACK, "CANCELLED: it was cancelled", error="CANCELLED")
DONE = Outcome(PROPOSAL.plan, Status.DONE, "as planned", seconds=2.0)


class FakeRun:
    """As much of a run as steering needs for this."""

    def __init__(self, **settings: Any) -> None:
        self.definition = DEFINITION
        self.settings = Settings(**settings)
        self.started_at = time.time() - 1000
        self.listeners: list[Any] = []
        self.told: list[tuple[str, str, dict[str, Any]]] = []

    def listen(self, listener: Any) -> None:
        self.listeners.append(listener)

    def happened(self, kind: str, reason: str, subject: str = "", cause: str = "", fields: Any = None) -> Any:
        self.told.append((str(kind), reason, dict(fields or {})))
        return SimpleNamespace(id=len(self.told))

    def publish(self, operator: str, at: float, rows: int) -> None:
        for listener in self.listeners:
            listener(SimpleNamespace(operator=operator, finished=at, rows_in=rows))


def operation(began: float | None = None) -> Operation:
    made = Operation(1, "scale-out", {}, lambda: PROPOSAL, time.time(), cause="7")
    made.proposal, made.began_at, made.state = PROPOSAL, began, State.RUNNING
    return made


def carried_out(run: FakeRun, *outcomes: Outcome) -> tuple[Outcome, int]:
    """What comes of it, and how often it was begun."""
    steering = Steering(run, "standalone", lambda drain: None)  # type: ignore[arg-type]
    left = list(outcomes)
    steering._changes.carry_out = lambda plan: left.pop(0)  # type: ignore[method-assign]
    try:
        return steering._carry_out(operation()), len(outcomes) - len(left)
    finally:
        steering.close()


def test_a_fault_has_it_begun_again() -> None:
    run = FakeRun()
    assert carried_out(run, FAULT, DONE) == (DONE, 2)
    assert [kind for kind, _, _ in run.told] == ["decision", "fault", "action"]
    assert "begins again: CLUSTER_FAILED: it died" in run.told[1][1]


def test_not_more_often_than_the_setting_says() -> None:
    assert carried_out(FakeRun(scaling_attempts=3), FAULT, FAULT, FAULT, DONE) == (FAULT, 3)
    assert carried_out(FakeRun(scaling_attempts=1), FAULT, DONE) == (FAULT, 1)


def test_what_was_cancelled_is_not_begun_again() -> None:
    assert carried_out(FakeRun(), CANCELLED, DONE) == (CANCELLED, 1)


def test_throughput_before_and_after_is_told() -> None:
    run, now = FakeRun(measure_seconds=20), time.time()
    measuring = Measuring(run)  # type: ignore[arg-type]
    for second in range(80):
        run.publish("out", now - 80 + second, 100 if second < 40 else 200)
        run.publish("work", now - 80 + second, 10_000)
    measuring.ended(operation(began=now - 40))
    assert run.told == [], "what it brought has to show first"
    measuring.close()
    [(kind, reason, fields)] = run.told
    assert kind == "notice"
    assert fields["before"] == pytest.approx(300, rel=0.05), "a row of this sink counts three times"
    assert fields["after"] == pytest.approx(600, rel=0.01), "the batch that is under way is not a loss"
    assert fields["time_at_zero"] == 0
    assert reason.startswith("throughput from ")
    assert len(fields["timeline"]) == pytest.approx(59, abs=1)


def test_moves_are_not_measured() -> None:
    run = FakeRun()
    measuring = Measuring(run)  # type: ignore[arg-type]
    moved = operation(began=time.time())
    moved.action = "move"
    measuring.ended(moved)
    measuring.close()
    assert run.told == []
