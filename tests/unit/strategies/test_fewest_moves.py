"""The mapping `fewest_moves`: what stays, on which machines the rest goes, and how long it takes to say so."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import replace

import pytest
from monitor_fakes import DEFINITION

from penstock.cluster.model import Cluster, Placement
from penstock.monitor.sample import StateSize
from penstock.monitor.snapshot import OperatorSnapshot, Snapshot
from penstock.strategies.mapping import Wanted, place
from penstock.strategies.mapping.tasks import deal_tasks

#: The paper's cluster: five nodes with four cores each, one worker a node.
NODES = Cluster.of(["a", "b", "c", "d", "e"], slots=1, cores=4)


def detectors(count: int, tasks: int = 20) -> Placement:
    work = Counter(NODES.slots[number % 5] for number in range(count))
    first, last = NODES.slots[0], NODES.slots[-1]
    return Placement({"rows": {first: 1}, "work": work, "out": {last: 1}}, {"work": deal_tasks(tasks, work)})


def moved(before: Placement, after: Placement) -> int:
    return sum(one != two for one, two in zip(before.tasks["work"], after.tasks["work"], strict=True))


def scaled(before: Placement, count: int, cluster: Cluster = NODES) -> Placement:
    wanted = Wanted.as_now(DEFINITION, cluster, before)
    after = place("fewest_moves", replace(wanted, instances={**wanted.instances, "work": count}))
    assert isinstance(after, Placement)
    return after


@pytest.mark.parametrize(("count", "then"), [(5, 10), (10, 20), (5, 20), (20, 10), (10, 5), (20, 5)])
def test_in_the_paper_s_experiment_no_task_moves_at_all(count: int, then: int) -> None:
    """The paper: 0% of the state on scale-out, 37.5% on scale-in."""
    before = detectors(count)
    after = scaled(before, then)
    assert moved(before, after) == 0
    assert after.total("work") == then


def test_an_instance_more_on_a_slot_without_idle_cores_would_bring_nothing() -> None:
    narrow = Cluster.of([f"m{number}" for number in range(10)], slots=1, cores=1)
    work = dict.fromkeys(narrow.slots[:5], 1)
    before = Placement({"rows": {narrow.slots[9]: 1}, "work": work}, {"work": deal_tasks(20, work)})
    after = scaled(before, 9, narrow)
    assert moved(before, after) == 5, "each of the five has four tasks and keeps three"
    assert set(after.of("work")) == set(narrow.slots[:9])


def test_a_scale_in_frees_machines() -> None:
    before = detectors(5, tasks=5)
    after = scaled(before, 2)
    assert set(after.of("work")) == {NODES.slots[0], NODES.slots[-1]}, "where the other operators are anyway"
    assert moved(before, after) == 3


def test_without_state_instances_stay_and_new_ones_use_machines_that_are_in_use() -> None:
    first, second = NODES.slots[:2]
    before = Placement({"rows": {first: 1}, "work": {first: 1, second: 1}, "out": {first: 1}})
    after = scaled(before, 5)
    assert after.of("work") == {first: 2, second: 3} or after.of("work") == {first: 1, second: 4}
    assert scaled(after, 2).of("work").keys() <= {first, second}


def test_what_costs_least_moves() -> None:
    first, second = NODES.slots[:2]
    before = Placement({"work": {first: 2}}, {"work": (first,) * 4})
    state = {task: StateSize(bytes=size) for task, size in enumerate((900, 10, 20, 800))}
    seen = {"work": OperatorSnapshot("work", "keyed", 2, state=state)}
    snapshot = Snapshot(DEFINITION, NODES, before, 0.0, 60.0, 6, seen, {}, {}, {}, {})
    small = Cluster.of(["a", "b"], slots=1, cores=1)
    one = replace(before, instances={"work": {first: 1}})
    wanted = replace(Wanted.as_now(DEFINITION, small, one), instances={"work": 2}, snapshot=snapshot)
    after = place("fewest_moves", wanted)
    assert isinstance(after, Placement)
    assert after.tasks["work"] == (first, second, second, first)


def test_a_slot_counts_by_the_largest_tasks_that_it_may_keep() -> None:
    """Three slots become two, with at most three tasks each: the one with 103 bytes in four tasks keeps 102 of them."""
    narrow = Cluster.of(["a", "b", "c"], slots=1, cores=1)
    a, b, c = narrow.slots
    before = Placement({"work": {a: 1, b: 1, c: 1}}, {"work": (a, a, a, a, b, c)})
    state = {task: StateSize(bytes=size) for task, size in enumerate((1, 1, 1, 100, 50, 60))}
    seen = {"work": OperatorSnapshot("work", "keyed", 3, state=state)}
    snapshot = Snapshot(DEFINITION, narrow, before, 0.0, 60.0, 6, seen, {}, {}, {}, {})
    wanted = Wanted.as_now(DEFINITION, narrow, before)
    after = place("fewest_moves", replace(wanted, instances={"work": 2}, snapshot=snapshot))
    assert isinstance(after, Placement)
    assert set(after.of("work")) == {a, c}
    assert after.tasks["work"][3:] == (a, c, c)
    assert moved(before, after) == 2


def test_an_instance_that_keeps_nothing_goes_where_it_needs_no_task_from_elsewhere() -> None:
    wide = Cluster.of(["a"], slots=3, cores=2)
    first, second, _ = wide.slots
    before = Placement({"work": {first: 1, second: 1}}, {"work": (first, first, first, second, second)})
    after = scaled(before, 4, wide)
    assert moved(before, after) == 0
    assert after.of("work") == {first: 2, second: 2}


# Bar: 200 tasks on 50 slots below 0.1 s, and 10,000 tasks on 1,000 slots below 2 s


@pytest.mark.parametrize(("tasks", "slots", "bar"), [(200, 50, 0.1), (10_000, 1000, 2.0)])
@pytest.mark.parametrize("sized", [False, True])
def test_it_is_quick(tasks: int, slots: int, bar: float, sized: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """CPU time, because others use the cores too while tests run. Out, in, and the loss of a tenth of the machines."""
    draw = random.Random(tasks)
    cluster = Cluster.of([f"m{number:04}" for number in range(slots // 2)], slots=2, cores=4)
    work = Counter(draw.choices(cluster.slots, k=tasks // 4))
    before = Placement({"rows": {cluster.slots[0]: 1}, "work": work}, {"work": deal_tasks(tasks, work)})
    state = {task: StateSize(bytes=draw.randrange(1 << 24)) for task in range(tasks if sized else 0)}
    seen = {name: OperatorSnapshot(name, "keyed", 1, state=state) for name in before.instances}
    snapshot = Snapshot(DEFINITION, cluster, before, 0.0, 60.0, 6, seen, {}, {}, {}, {})
    as_now = replace(Wanted.as_now(DEFINITION, cluster, before), snapshot=snapshot, slot_instances=128)
    lost = cluster.minus([machine.name for machine in cluster.machines[::10]])
    for what, wanted in (
        ("out", replace(as_now, instances={**as_now.instances, "work": tasks // 2})),
        ("in", replace(as_now, instances={**as_now.instances, "work": tasks // 8})),
        ("lost", replace(as_now, cluster=lost)),
    ):
        seconds = []
        for _ in range(3):
            began = time.process_time()
            after = place("fewest_moves", wanted)
            seconds.append(time.process_time() - began)
        assert isinstance(after, Placement)
        with capsys.disabled():
            share = moved(before, after) / tasks
            print(
                f"\n{tasks} tasks on {slots} slots, {what}: {min(seconds):.4f} s, {share:.0%} of the tasks move", end=""
            )
        assert min(seconds) < bar


@pytest.mark.parametrize(("operators", "bar"), [(3, 2.0), pytest.param(4, 5.0, marks=pytest.mark.live)])
def test_trying_every_order_is_quick(operators: int, bar: float, capsys: pytest.CaptureFixture[str]) -> None:
    """10,000 tasks in all on 1,000 slots, where operators compete for cores. CPU time, as above."""
    draw, names = random.Random(4), ("rows", "work", "out", "more")[:operators]
    cluster = Cluster.of([f"m{number:04}" for number in range(500)], slots=2, cores=2)
    work = {name: Counter(draw.choices(cluster.slots, k=2400 // operators)) for name in names}
    before = Placement(work, {name: deal_tasks(10_000 // operators, work[name]) for name in names})
    wanted = replace(Wanted.as_now(DEFINITION, cluster, before), instances=dict.fromkeys(names, 3200 // operators))
    began = time.process_time()
    after = place("fewest_moves", wanted)
    seconds = time.process_time() - began
    assert isinstance(after, Placement)
    with capsys.disabled():
        print(f"\n{operators} operators in every order: {seconds:.2f} s", end="")
    assert seconds < bar


def test_of_two_operators_that_change_the_one_that_can_stay_comes_first() -> None:
    """Five instances on four cores. If `work` comes first, it takes the idle core of b, with a task, and `out` shares
    cores. If `out` comes first, it has both cores of b, and `work` shares those of a: nothing moves."""
    narrow = Cluster.of(["a", "b"], slots=1, cores=2)
    a, b = narrow.slots
    before = Placement({"rows": {a: 1}, "work": {a: 1}, "out": {b: 1}}, {"work": (a, a), "out": (b, b)})
    wanted = Wanted(DEFINITION, narrow, {"rows": 1, "work": 2, "out": 2}, {"work": 2, "out": 2}, before)
    after = place("fewest_moves", wanted)
    assert isinstance(after, Placement)
    assert after.tasks == before.tasks
    assert after.instances == {"rows": {a: 1}, "work": {a: 2}, "out": {b: 2}}
    assert list(after.instances) == ["rows", "work", "out"]


def test_no_order_counts_that_leaves_more_instances_without_a_core() -> None:
    """If `out` came first, it would have both cores of b, and the instance of `work` would stay there as a third:
    nothing would move, and the new instance would have no core."""
    narrow = Cluster.of(["a", "b"], slots=1, cores=2)
    a, b = narrow.slots
    before = Placement({"rows": {a: 1}, "work": {b: 2}, "out": {b: 1}}, {"work": (b, b), "out": (b, b)})
    wanted = Wanted(DEFINITION, narrow, {"rows": 1, "work": 1, "out": 2}, {"work": 2, "out": 2}, before)
    for order in (("rows", "work", "out"), ("rows", "out", "work")):
        after = place("fewest_moves", replace(wanted, instances={name: wanted.instances[name] for name in order}))
        assert isinstance(after, Placement)
        assert after.load() == {a: 2, b: 2}
