"""From a snapshot to a load, and from a view to what Penstock's own policies answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_up import cluster, placed, seen
from monitor_fakes import A0, A1, B0, B1, CLUSTER, DEFINITION, PLACEMENT

from penstock.autoscaler.goals import Goal, Grow, Shrink
from penstock.autoscaler.measured_load import bare_load, measured_load, youth
from penstock.autoscaler.policy import Coming, View, decide, policy, view_of, why_not
from penstock.autoscaler.proposals import Answer, Nothing, Prediction, Proposal, action_of, in_words
from penstock.cluster.model import Cluster, ComingMachines, Placement, Slot
from penstock.errors import PenstockError
from penstock.monitor.snapshot import Gap, OperatorSnapshot, Snapshot, StreamSnapshot
from penstock.plans.plan import AddMachine, MoveTask, Plan, RemoveMachine, SetInstances, SetTasks
from penstock.settings import Settings

NEW = Cluster.of(["c"], 2).machines
YOUNG = Gap("window", "", "it covers 1 of 20 samples", grave=True)


def snapshot(*gaps: Gap, **rates: float | None) -> Snapshot:
    """rows emits 300/s of the 400/s that are due, work gets 300 and does 100: it is congested."""
    measured: dict[str, float | None] = {"rows": 300.0, "work": 100.0, "out": 400.0} | rates
    operators = {
        "rows": OperatorSnapshot("rows", "source", 1, rate=measured["rows"], input_rate=400.0, capacity=1000.0),
        "work": OperatorSnapshot("work", "map", 3, rate=measured["work"], input_rate=300.0, capacity=40.0),
        "out": OperatorSnapshot("out", "sink", 1, rate=measured["out"], input_rate=400.0),
    }
    emitted = {"rows->work": ("rows", "work", 300.0), "work->out": ("work", "out", 100.0)}
    emitted["rows->out"] = ("rows", "out", 300.0)
    streams = {name: StreamSnapshot(name, a, "out", b, emit_rate=rate) for name, (a, b, rate) in emitted.items()}
    coming = ComingMachines(NEW)
    return Snapshot(
        DEFINITION, CLUSTER, PLACEMENT, 100.0, 112.0, 1, operators, streams, {}, {}, {}, gaps, coming=coming
    )


def answer(found: Snapshot, request: Grow | Shrink, name: str = "stela", **settings: object) -> Answer:
    return decide(name, policy(name), view_of(found, Settings.of(settings), request=request))


def proposed(found: Snapshot, request: Grow | Shrink, name: str = "stela") -> Proposal:
    decided = answer(found, request, name)
    assert isinstance(decided, Proposal)
    return decided


def test_the_load_has_what_was_measured() -> None:
    load = measured_load(snapshot())
    by_name = {one.name: one for one in load.operators}
    assert [one.name for one in load.operators] == ["rows", "work", "out"]
    assert (by_name["rows"].processing, by_name["rows"].external) == (300.0, 400.0)
    assert by_name["work"].external is None
    assert by_name["work"].capacity == 120.0, "of all three instances"
    assert by_name["out"].capacity is None, "not measured is not 0"
    assert by_name["out"].weight == 3.0
    assert {(one.producer, one.consumer): one.rate for one in load.streams} == {
        ("rows", "work"): 300.0,
        ("work", "out"): 100.0,
        ("rows", "out"): 300.0,
    }


@pytest.mark.parametrize(
    ("duration", "overhead", "longest", "expected"),
    [
        (0.5, 0.1, 1.0, 0.9 * 120),  # a batch under full load takes 1 s, of which 0.1 s is not for rows
        (2.4, 0.4, 1.0, 2.0 / 2.4 * 120),  # they are longer already
        (0.9, 0.8, 1.0, 100.0),  # 0.5 / 1.3 of 120, but it was seen to do 100
        (0.5, 0.1, None, 120),
        (0.5, None, 1.0, 120),
    ],
)
def test_capacity_is_less_what_micro_batches_cost(duration, overhead, longest, expected) -> None:
    found = snapshot()
    work = replace(found.operators["work"], batch_duration=duration, batch_overhead=overhead)
    found = replace(found, operators={**found.operators, "work": work}, longest_batch=longest)
    by_name = {one.name: one for one in measured_load(found).operators}
    assert by_name["work"].capacity == pytest.approx(expected)


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (4.0, 120 * 3 / 4),  # shares are longer than the longest batch should be
        (2.0, 120 * 2 / 3),  # a full one would take 3 s
        (None, 120 * 11 / 12),  # nobody has told
    ],
)
def test_in_the_time_in_which_a_share_waits_to_be_published_no_rows_are_worked_on(share, expected) -> None:
    found = snapshot()
    work = replace(found.operators["work"], rate=1.0, batch_duration=12.0, batch_overhead=1.0, share_duration=share)
    found = replace(found, operators={**found.operators, "work": work}, longest_batch=3.0)
    by_name = {one.name: one for one in measured_load(found).operators}
    assert by_name["work"].capacity == pytest.approx(expected)


def test_what_was_not_heard_of_is_refused() -> None:
    silent = Gap("work", "", "nothing was heard of it for 40 s", grave=True)
    for found in (snapshot(silent), snapshot(work=None), snapshot(YOUNG)):
        with pytest.raises(PenstockError) as error:
            measured_load(found)
        assert error.value.name == "INCOMPLETE_SNAPSHOT"
        age = found.at - found.since
        assert f"in the {age:.0f} s since the topology was started, resumed or last changed" in error.value.message
    with pytest.raises(PenstockError):
        measured_load(snapshot(silent, YOUNG), on_demand=True)
    measured_load(snapshot(Gap("work", "cpu_utilisation", "not known", grave=False)))


def test_who_asks_gets_a_decision_on_a_young_window_and_is_told() -> None:
    assert measured_load(snapshot(YOUNG), on_demand=True)
    assert youth(snapshot(YOUNG)) == "decided on 12 s of measurements: it covers 1 of 20 samples"
    assert youth(snapshot()) == ""
    assert proposed(snapshot(YOUNG), Grow(1, "")).note == youth(snapshot(YOUNG))
    nobody_asked = replace(view_of(snapshot(YOUNG), Settings()), goal=Goal(throughput=900.0))
    refused = decide("stela", policy("stela"), nobody_asked)
    assert isinstance(refused, Nothing)
    assert refused.error == "INCOMPLETE_SNAPSHOT"


def test_scale_out_brings_machines_and_what_the_strategy_puts_there() -> None:
    proposal = proposed(snapshot(), Grow(1, "somebody asked"))
    assert proposal.plan.actions[0] == AddMachine(NEW[0])
    [first] = [one for one in proposal.plan.actions if isinstance(one, SetInstances) and one.operator == "work"]
    assert {slot: count for slot, count in first.slots.items() if slot in (A1, B0)} == {A1: 1, B0: 2}
    assert proposal.strategy == "stela"
    assert proposal.before == PLACEMENT
    assert proposal.reasons == ("somebody asked", proposal.plan.reason)
    assert proposal.decision["steps"][0]["operator"] == "work"
    throughput = proposal.decision["projected_throughput"]
    assert proposal.predictions == (Prediction("machines", 3.0), Prediction("throughput", throughput))


def test_slots_that_wait_for_work_are_not_there_twice() -> None:
    waits = Placement({"rows": {A0: 1}, "work": {A1: 1, B0: 2}, "out": {A0: 1}})
    known = replace(snapshot(), placement=waits, coming=ComingMachines(NEW, spare=(A0, B1)))
    coming = view_of(known, Settings()).coming(1)
    assert isinstance(coming, Coming)
    assert set(CLUSTER.slots) - set(coming.cluster.slots) == {B1}, "something is placed on the other one"
    [spare] = Cluster.of(["spare"], 2).machines
    found = replace(snapshot(), cluster=CLUSTER.plus([spare]), coming=ComingMachines(NEW, spare.slots))
    decided = decide("stela", policy("stela"), view_of(found, Settings(), request=Grow(1, "")))
    assert isinstance(decided, Proposal)
    assert decided.predictions[0] == Prediction("machines", 3.0)


def test_storm_needs_no_rates() -> None:
    nothing_known = snapshot(YOUNG, work=None)
    assert all(one.processing == 0 for one in bare_load(nothing_known).operators)
    assert proposed(nothing_known, Grow(1, ""), "storm").plan.actions[0] == AddMachine(NEW[0])
    assert isinstance(answer(nothing_known, Grow(1, "")), Nothing)


def test_scale_in_removes_the_machine_it_chose() -> None:
    proposal = proposed(snapshot(), Shrink(1, ""))
    [removed] = [one for one in proposal.plan.actions if isinstance(one, RemoveMachine)]
    assert removed.name in CLUSTER.names
    assert proposal.plan.actions[-1] == removed


def test_what_cannot_be_is_a_value_with_the_name_of_an_error() -> None:
    for machines in (2, 3):
        last = answer(snapshot(), Shrink(machines, ""))
        assert isinstance(last, Nothing)
        assert last.error == "LAST_MACHINE"
    full = answer(snapshot(), Shrink(1, ""), slot_instances=1)
    assert isinstance(full, Nothing)
    assert (full.error, full.as_error().name) == ("SLOT_FULL", "SLOT_FULL")
    assert full.reason.endswith("too many).")
    fixed = decide(
        "stela", policy("stela"), view_of(replace(snapshot(), coming=ComingMachines()), Settings(), request=Grow(1, ""))
    )
    assert isinstance(fixed, Nothing)
    assert fixed.error == "FIXED_MACHINES"


def test_without_a_goal_and_a_request_there_is_nothing_to_do() -> None:
    assert decide("stela", policy("stela"), view_of(snapshot(), Settings())) == Nothing(
        "the topology has no goal, and nobody has asked for machines"
    )


def test_nothing_to_do_is_a_value() -> None:
    view = view_of(snapshot(), Settings(), request=Grow(0, ""))
    assert decide("stela", policy("stela"), view) == Nothing("stela: no machine was added")
    young = replace(view, snapshot=snapshot(YOUNG))
    assert decide("stela", policy("stela"), young) == Nothing("stela: no machine was added", note=youth(young.snapshot))


# What strangers may answer


class Answering:
    def __init__(self, with_what: object) -> None:
        self.with_what = with_what

    def decide(self, view: View) -> Answer:
        if isinstance(self.with_what, Exception):
            raise self.with_what
        return self.with_what  # type: ignore[return-value]


def test_a_policy_may_ask_for_instances_and_tasks_too() -> None:
    where = cluster(2)
    placement, (here, _) = placed(where, rows=1, work=1, count=2, out=1), where.slots
    found = seen(placement, where, dict.fromkeys(("rows", "work", "count", "out"), 100.0), 50.0)
    view = view_of(found, Settings())
    for action, name, words in (
        (SetInstances("work", {here: 4}), "set-instances", "other instances of work"),
        (MoveTask("count", 1, here), "move", "1 task elsewhere"),
        (SetTasks("count", 8), "repartition", "count: 8 tasks"),
    ):
        plan = Plan((action,), "why not")
        decided = decide("mine", Answering(Proposal(plan)), view)
        assert isinstance(decided, Proposal)
        assert (decided.strategy, decided.before) == ("mine", placement)
        assert (action_of(plan), in_words(plan)) == (name, words)


def test_a_plan_that_could_not_run_is_nothing_with_the_name_of_an_error() -> None:
    view = view_of(snapshot(), Settings(slot_instances=4))
    for action, error in (
        (SetInstances("work", {A0: 9}), "SLOT_FULL"),
        (SetInstances("work", {Slot("c", 0): 1}), "BAD_PLACEMENT"),
        (RemoveMachine("c"), "NO_SUCH_MACHINE"),
        (MoveTask("work", 0, A0), "NO_SUCH_TASK"),
        (SetTasks("work", 8), "REPARTITION_FAILED"),
    ):
        decided = decide("mine", Answering(Proposal(Plan((action,)), note="it is early")), view)
        assert isinstance(decided, Nothing)
        assert (decided.error, decided.note) == (error, "it is early")
        assert why_not(Plan((action,)), view) == replace(decided, note="")


def test_an_error_with_a_name_is_a_refusal_and_any_other_a_mistake() -> None:
    view = view_of(snapshot(), Settings())
    refusal = PenstockError("BAD_GOAL", "it makes no sense.", "Give another.")
    assert decide("mine", Answering(refusal), view) == Nothing("it makes no sense.", "BAD_GOAL", "Give another.")
    assert decide("mine", Answering(Proposal(Plan((), "it is fine"))), view) == Nothing("it is fine")
    for mistake in (KeyError("work"), "a plan", None):
        with pytest.raises(PenstockError, match='"mine" failed') as error:
            decide("mine", Answering(mistake), view)
        assert error.value.name == "POLICY_FAILED"
