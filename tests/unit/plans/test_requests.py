"""Plans for what a person asks for."""

from __future__ import annotations

import pytest
from monitor_fakes import A0, A1, B0, B1, DEFINITION
from monitor_fakes import CLUSTER as FOUR_SLOTS
from monitor_fakes import PLACEMENT as FOUR

from penstock.cluster.model import Cluster, Placement, Slot
from penstock.plans import requests as plans
from penstock.plans.plan import AddMachine, MoveTask, Plan, RemoveMachine, SetInstances, apply
from penstock.strategies.mapping import NoRoom, Wanted

CLUSTER = Cluster.of(["a", "b", "c"], 1)
A, B, C = CLUSTER.slots
PLACEMENT = Placement({"m": {A: 1, B: 1}, "k": {A: 1, C: 1}}, {"k": (A, C, A, C)})


def test_tasks_follow_the_instances_of_a_keyed_operator() -> None:
    plan = plans.set_instances(PLACEMENT, "k", {A: 1, B: 1})
    assert plan.actions == (SetInstances("k", {A: 1, B: 1}), MoveTask("k", 1, B), MoveTask("k", 3, B))
    assert plans.set_instances(PLACEMENT, "m", {C: 2}).actions == (SetInstances("m", {C: 2}),)


def test_so_many_instances_keep_those_there_are() -> None:
    def resized(operator: str, count: int) -> dict[Slot, int]:
        plan = plans.so_many_instances(DEFINITION, FOUR, FOUR_SLOTS, operator, count)
        assert isinstance(plan, Plan)
        [action] = plan.actions
        assert isinstance(action, SetInstances)
        return dict(action.slots)

    more = resized("work", 5)
    assert sum(more.values()) == 5
    assert more[A1] >= 1
    assert more[B0] >= 2
    assert resized("work", 1) == {A1: 1}, "the most loaded slot loses first"
    assert resized("work", 3) == {A1: 1, B0: 2}
    assert resized("rows", 2) in ({A0: 1, A1: 1}, {A0: 1, B1: 1}, {A0: 2})
    assert resized("rows", 0) == {}, "which the check of the plan refuses"


def test_the_mapping_is_told_by_how_much_traffic_must_fall(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asked:
        def place(self, wanted: Wanted) -> NoRoom:
            return NoRoom(f"{wanted.traffic_gain}")

    monkeypatch.setattr("penstock.strategies.mapping.protocol.mapping", lambda _: Asked())
    assert plans.so_many_instances(DEFINITION, FOUR, FOUR_SLOTS, "work", 2) == NoRoom("0.0")
    assert plans.so_many_instances(DEFINITION, FOUR, FOUR_SLOTS, "work", 2, traffic_gain=0.5) == NoRoom("0.5")


def test_a_machine_leaves_with_nothing_on_it() -> None:
    plan = plans.remove_machines(PLACEMENT, CLUSTER, ["c"])
    assert plan.actions[-1] == RemoveMachine("c")
    after = apply(PLACEMENT, plan.actions)
    assert after.slots == {A, B}
    assert {name: after.total(name) for name in ("m", "k")} == {"m": 2, "k": 2}


def test_machines_are_added_and_tasks_are_moved_by_name() -> None:
    machines = Cluster.of(["d", "e"], 1).machines
    assert plans.add_machines(machines).actions == tuple(AddMachine(machine) for machine in machines)
    assert plans.move_tasks("k", {2: Slot("b", 0), 0: B}).actions == (MoveTask("k", 0, B), MoveTask("k", 2, B))
