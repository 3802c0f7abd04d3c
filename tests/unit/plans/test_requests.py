"""Plans for what a person asks for."""

from __future__ import annotations

import pytest

from penstock import PenstockError
from penstock.cluster.model import Cluster, Placement, Slot
from penstock.plans import requests as plans
from penstock.plans.plan import AddMachine, MoveTask, RemoveMachine, SetInstances, apply

CLUSTER = Cluster.of(["a", "b", "c"], 1)
A, B, C = CLUSTER.slots
PLACEMENT = Placement({"m": {A: 1, B: 1}, "k": {A: 1, C: 1}}, {"k": (A, C, A, C)})


def test_tasks_follow_the_instances_of_a_keyed_operator() -> None:
    plan = plans.set_instances(PLACEMENT, "k", {A: 1, B: 1})
    assert plan.actions == (SetInstances("k", {A: 1, B: 1}), MoveTask("k", 1, B), MoveTask("k", 3, B))
    assert plans.set_instances(PLACEMENT, "m", {C: 2}).actions == (SetInstances("m", {C: 2}),)


def test_a_machine_leaves_with_nothing_on_it() -> None:
    plan = plans.remove_machines(PLACEMENT, CLUSTER, ["c"])
    assert plan.actions[-1] == RemoveMachine("c")
    after = apply(PLACEMENT, plan.actions)
    assert after.slots == {A, B}
    assert {name: after.total(name) for name in ("m", "k")} == {"m": 2, "k": 2}


def test_the_machine_with_the_least_on_it_is_chosen() -> None:
    assert plans.fewest_instances(PLACEMENT, CLUSTER, 2) == ["b", "c"]
    plan = plans.remove_any(PLACEMENT, CLUSTER, 1)
    assert plan.actions[-1] == RemoveMachine("b")
    chosen = plans.remove_any(PLACEMENT, CLUSTER, 1, lambda placement, cluster, count: ["a"])
    assert chosen.actions[-1] == RemoveMachine("a")


@pytest.mark.parametrize("count", [0, 3])
def test_at_least_one_goes_and_one_stays(count: int) -> None:
    with pytest.raises(PenstockError) as caught:
        plans.remove_any(PLACEMENT, CLUSTER, count)
    assert caught.value.name == "LAST_MACHINE"


def test_machines_are_added_and_tasks_are_moved_by_name() -> None:
    machines = Cluster.of(["d", "e"], 1).machines
    assert plans.add_machines(machines).actions == tuple(AddMachine(machine) for machine in machines)
    assert plans.move_tasks("k", {2: Slot("b", 0), 0: B}).actions == (MoveTask("k", 0, B), MoveTask("k", 2, B))
