"""From a snapshot to a load, and from a load to what a strategy proposes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from monitor_fakes import A0, A1, B0, B1, CLUSTER, DEFINITION, PLACEMENT

from penstock.autoscaler import proposals
from penstock.autoscaler.measured_load import bare_load, measured_load, youth
from penstock.cluster.model import Cluster
from penstock.errors import PenstockError
from penstock.monitor.snapshot import Gap, OperatorSnapshot, Snapshot, StreamSnapshot
from penstock.plans import requests as plans
from penstock.plans.plan import AddMachine, RemoveMachine, SetInstances
from penstock.strategies.scaling.rules import Rules

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
    return Snapshot(DEFINITION, CLUSTER, PLACEMENT, 100.0, 112.0, 1, operators, streams, {}, {}, {}, gaps)


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
    assert proposals.scale_out(snapshot(YOUNG), NEW, "stela").note == youth(snapshot(YOUNG))


def test_scale_out_brings_machines_and_what_the_strategy_puts_there() -> None:
    proposal = proposals.scale_out(snapshot(), NEW, "stela")
    assert proposal.plan.actions[0] == AddMachine(NEW[0])
    [first] = [one for one in proposal.plan.actions if isinstance(one, SetInstances) and one.operator == "work"]
    assert {slot: count for slot, count in first.slots.items() if slot in (A1, B0)} == {A1: 1, B0: 2}
    assert proposal.strategy == "stela"
    assert proposal.decision["steps"][0]["operator"] == "work"


def test_storm_needs_no_rates() -> None:
    nothing_known = snapshot(YOUNG, work=None)
    assert all(one.processing == 0 for one in bare_load(nothing_known).operators)
    assert proposals.scale_out(nothing_known, NEW, "storm").plan.actions[0] == AddMachine(NEW[0])


def test_scale_in_removes_the_machine_it_chose() -> None:
    proposal = proposals.scale_in(snapshot(), 1, "stela")
    [removed] = [one for one in proposal.plan.actions if isinstance(one, RemoveMachine)]
    assert removed.name in CLUSTER.names
    assert proposal.plan.actions[-1] == removed


def test_what_cannot_be_is_a_named_error() -> None:
    for machines in (2, 3):
        with pytest.raises(PenstockError) as error:
            proposals.scale_in(snapshot(), machines, "stela")
        assert error.value.name == "LAST_MACHINE"
    with pytest.raises(PenstockError) as error:
        proposals.scale_in(snapshot(), 1, "stela", Rules(slot_capacity=1))
    assert error.value.name == "SLOT_FULL"
    with pytest.raises(PenstockError) as error:
        proposals.scale_out(snapshot(), NEW, "magic")
    assert error.value.name == "UNKNOWN_STRATEGY"


def test_nothing_to_do_is_a_plan_without_actions() -> None:
    proposal = proposals.scale_out(replace(snapshot()), (), "stela")
    assert not proposal.plan
    assert proposal.plan.reason == "stela: no machine was added"


def test_so_many_instances_keep_those_there_are() -> None:
    more = plans.so_many_instances(PLACEMENT, CLUSTER, "work", 5)
    assert sum(more.values()) == 5
    assert more[A1] >= 1
    assert more[B0] >= 2
    fewer = plans.so_many_instances(PLACEMENT, CLUSTER, "work", 1)
    assert fewer == {A1: 1}, "the most loaded slot loses first"
    assert plans.so_many_instances(PLACEMENT, CLUSTER, "work", 3) == {A1: 1, B0: 2}
    assert plans.so_many_instances(PLACEMENT, CLUSTER, "rows", 2) in ({A0: 1, A1: 1}, {A0: 1, B1: 1}, {A0: 2})
