"""One decision is made on one snapshot, and what was decided is what is carried out: without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from monitor_fakes import A0, B0, CLUSTER, DEFINITION, PLACEMENT

from penstock import PenstockError, Settings
from penstock.api.steering import Steering
from penstock.autoscaler.goals import Goal, Grow
from penstock.autoscaler.hands import DeskHands
from penstock.autoscaler.policy import Fate, decide, policy
from penstock.autoscaler.proposals import Nothing, Proposal
from penstock.autoscaler.strategies import Gain
from penstock.cluster.model import Cluster, ComingMachines, Placement
from penstock.monitor.decisions import DecisionLog
from penstock.monitor.snapshot import OperatorSnapshot, Snapshot, StreamSnapshot
from penstock.plans.enacting import Enactor
from penstock.plans.plan import Plan
from penstock.plans.requests import set_instances
from penstock.strategies.gain.scale_in import scale_in
from penstock.strategies.mapping import NoRoom, Wanted
from penstock.strategies.memory import Memory
from penstock.testing import RecordingEngine

WAIT = 10.0


class FakeRun:
    """As much of a running topology as steering needs; counts the snapshots that are taken."""

    def __init__(self) -> None:
        self.definition = DEFINITION
        self.settings = Settings()
        self.engine = RecordingEngine(DEFINITION, CLUSTER, PLACEMENT)
        self.changes = Enactor(self.engine)
        self.snapshots = 0
        self.told: list[str] = []
        self.started_at = 0.0
        self.host = self
        self.decisions = DecisionLog()

    @property
    def provider(self) -> FakeRun:
        return self

    @property
    def cluster(self) -> Cluster:
        return self.engine.cluster

    @property
    def placements(self) -> Any:
        return SimpleNamespace(planned=self.engine.planned)

    def snapshot(self) -> Snapshot:
        self.snapshots += 1
        operators = {
            name: OperatorSnapshot(name, kind, 1, rate=rate, input_rate=100.0)
            for name, kind, rate in (("rows", "source", 100.0), ("work", "map", 50.0), ("out", "sink", 50.0))
        }
        streams = {
            f"{a}->{b}": StreamSnapshot(f"{a}->{b}", a, "out", b, emit_rate=rate)
            for a, b, rate in (("rows", "work", 100.0), ("work", "out", 50.0), ("rows", "out", 100.0))
        }
        names = [name for name in ("c", "d", "e", "f") if name not in self.cluster.names]
        coming, placement = ComingMachines.only(Cluster.of(names, 2, cores=2).machines), self.engine.planned
        return Snapshot(
            DEFINITION, self.cluster, placement, 0.0, 60.0, 6, operators, streams, {}, {}, {}, coming=coming
        )

    def happened(self, kind: str, reason: str, *_: Any, **__: Any) -> Any:
        self.told.append(reason)
        return SimpleNamespace(id=1)

    def listen(self, _: Any) -> None:
        """Nothing is published."""


@pytest.fixture
def run() -> FakeRun:
    return FakeRun()


@pytest.fixture
def steering(run: FakeRun) -> Iterator[Steering]:
    made = Steering(run, "recorded", lambda drain: None)  # type: ignore[arg-type]
    yield made
    made.close()


def decided(steering: Steering) -> Proposal:
    answer = decide("stela", policy("stela"), steering.desk.view(Grow(1, "")))
    assert isinstance(answer, Proposal)
    return answer


def test_what_was_checked_is_what_is_carried_out(run: FakeRun, steering: Steering) -> None:
    operation = steering.operations.get(steering.scale_out()["id"])
    assert steering.operations.wait(operation, WAIT)
    assert operation.state is Fate.DONE
    # The check of the request and the operation are one decision; its record is of the moment before it is carried out.
    assert run.snapshots == 1 + 1
    assert run.cluster.names == ("a", "b", "c")


def test_what_waited_while_the_placement_changed_is_decided_anew(run: FakeRun, steering: Steering) -> None:
    go_on, has_begun = threading.Event(), threading.Event()

    def hold(call: str) -> None:
        has_begun.set()
        assert go_on.wait(WAIT)

    run.engine.meanwhile = hold
    first = steering.operations.get(steering.scale_out()["id"])
    assert has_begun.wait(WAIT)
    second = steering.operations.get(steering.scale_out()["id"])
    run.engine.meanwhile = lambda call: None
    go_on.set()
    assert steering.operations.wait(second, WAIT)
    assert [first.state, second.state] == [Fate.DONE, Fate.DONE]
    assert run.snapshots == 2 + 2, "each has a decision and a record"
    assert run.cluster.names == ("a", "b", "c", "d")


def requested(monkeypatch: pytest.MonkeyPatch) -> list[Memory]:
    """What the strategy is handed with each request from now on."""
    handed: list[Memory] = []

    def remembering(*arguments: Any) -> Any:
        handed.append(arguments[-1])
        return scale_in(*arguments)

    monkeypatch.setattr(Gain, "scale_in", staticmethod(remembering))
    return handed


def done(steering: Steering, request: dict[str, Any]) -> None:
    operation = steering.operations.get(request["id"])
    assert steering.operations.wait(operation, WAIT)
    assert operation.state is Fate.DONE, operation.reason


def test_what_gain_remembers_of_a_request_it_is_handed_at_the_next(
    run: FakeRun, steering: Steering, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed = requested(monkeypatch)
    done(steering, steering.scale_out(strategy="gain"))
    done(steering, steering.scale_in(strategy="gain"))
    [memory] = handed
    assert [one.machine for one in memory.added] == ["c"]
    assert memory.rates


def test_what_gain_added_is_forgotten_once_somebody_has_set_instances(
    run: FakeRun, steering: Steering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a scale-in would take away what somebody has taken away before."""
    handed = requested(monkeypatch)
    done(steering, steering.scale_out(strategy="gain"))
    run.changes.carry_out(set_instances(run.engine.planned, "rows", {A0: 1, B0: 1}))
    done(steering, steering.scale_in(strategy="gain"))
    assert [memory.added for memory in handed] == [()]
    assert handed[0].rates, "rates stay true"


def test_a_policy_s_plan_is_carried_out_as_it_is(run: FakeRun, steering: Steering) -> None:
    proposal = decided(steering)
    operation = steering.operations.get(steering.desk.carry_out(proposal)["id"])
    assert steering.operations.wait(operation, WAIT)
    assert operation.outcome is not None
    assert operation.outcome.plan is proposal.plan
    assert (operation.action, dict(operation.arguments)) == ("scale-out", {"machines": 1, "strategy": "stela"})
    assert run.snapshots == 1
    assert run.told[0] == "the policy stela asked for this"


def test_a_policy_s_plan_is_refused_if_the_placement_has_changed(run: FakeRun, steering: Steering) -> None:
    proposal = decided(steering)
    run.changes.carry_out(set_instances(run.engine.planned, "rows", {A0: 1, B0: 1}))
    with pytest.raises(PenstockError, match="the placement has changed since stela decided") as caught:
        steering.desk.carry_out(proposal)
    assert caught.value.name == "PLACEMENT_CHANGED"
    assert run.engine.calls == ["place"], "nothing but what came in between"


def test_a_program_s_own_plan_is_rolled_back_at_the_end(run: FakeRun, steering: Steering) -> None:
    has_begun, outcomes = threading.Event(), []

    def until_it_is_cancelled(call: str) -> None:
        has_begun.set()
        if call == "place":
            assert run.changes._cancelled.wait(WAIT)

    def carry_out() -> None:
        outcomes.append(run.changes.carry_out(set_instances(run.engine.planned, "rows", {A0: 1, B0: 1})))

    run.engine.meanwhile = until_it_is_cancelled
    program = threading.Thread(target=carry_out)
    program.start()
    assert has_begun.wait(WAIT)
    steering.close()
    assert run.changes.step == ""
    program.join(WAIT)
    assert [outcome.error for outcome in outcomes] == ["CANCELLED"]


def test_an_operation_that_was_forgotten_is_over(run: FakeRun, steering: Steering) -> None:
    hands = DeskHands(run, steering.desk, Goal(throughput=1.0), "stela")  # type: ignore[arg-type]
    operation = hands.carry_out(decided(steering))
    assert steering.operations.wait(steering.operations.get(operation), WAIT)
    assert hands.fate(operation)[0] is Fate.DONE
    del steering.operations._known[operation]
    assert hands.fate(operation) == (Fate.NOTHING, "the operation is no longer known")


@pytest.mark.parametrize("chaining", ["on", "off"])
def test_a_mapping_is_told_of_chains_and_of_what_was_measured(
    run: FakeRun, steering: Steering, monkeypatch: pytest.MonkeyPatch, chaining: str
) -> None:
    asked: list[Wanted] = []

    def place(name: str, wanted: Wanted) -> NoRoom:
        asked.append(wanted)
        return NoRoom("all slots are full", 1)

    monkeypatch.setattr("penstock.plans.requests.place", place)
    run.settings = Settings(chaining=chaining, traffic_gain=0.5)
    with pytest.raises(PenstockError, match="all slots are full"):
        steering.set_instances("work", 9, dry_run=True)
    [wanted] = asked
    assert wanted.chains == (chaining == "on")
    assert wanted.snapshot is not None
    assert wanted.snapshot.operators["work"].rate == 50.0
    assert wanted.traffic_gain == 0.5


def test_who_names_the_slots_has_the_sizes_of_tasks_looked_at(
    steering: Steering, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Snapshot | None] = []

    def made(placement: Placement, operator: str, slots: Any, *, snapshot: Snapshot | None = None) -> Plan:
        asked.append(snapshot)
        return set_instances(placement, operator, slots, snapshot=snapshot)

    monkeypatch.setattr("penstock.api.steering.plans.set_instances", made)
    steering.set_instances("work", slots={A0.name: 1}, dry_run=True)
    [snapshot] = asked
    assert snapshot is not None
    assert snapshot.operators["work"].rate == 50.0


def test_a_note_is_told_with_nothing_to_do_too(steering: Steering, monkeypatch: pytest.MonkeyPatch) -> None:
    answering = SimpleNamespace(decide=lambda view: Nothing("it is fine", note="decided on 2 s of measurements"))
    monkeypatch.setattr("penstock.autoscaler.desk.policy", lambda name: answering)
    answer = steering.scale_out(dry_run=True)
    assert answer["note"] == "decided on 2 s of measurements"
    assert answer["plan"]["actions"] == []


def test_what_does_not_fit_is_an_error_for_the_person_who_asked(run: FakeRun, steering: Steering) -> None:
    run.settings = Settings(slot_instances=1)
    with pytest.raises(PenstockError) as caught:
        steering.scale_in(dry_run=True)
    assert caught.value.name == "SLOT_FULL"
    with pytest.raises(PenstockError) as caught:
        steering.scale_in(2)
    assert caught.value.name == "LAST_MACHINE"
    with pytest.raises(PenstockError) as caught:
        steering.scale_out(strategy="magic")
    assert caught.value.name == "UNKNOWN_STRATEGY"
    assert run.engine.calls == []
