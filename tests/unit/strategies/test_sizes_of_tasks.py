"""Whoever changes the instances of a keyed operator: of the tasks that could as well move, the smallest do, where the
sizes of all tasks are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loads import load, machine
from monitor_fakes import DEFINITION

from penstock.autoscaler.measured_load import bare_load, measured_load
from penstock.autoscaler.rearrangement import Rearranged, rearranged
from penstock.autoscaler.steps import Step, taken_back
from penstock.autoscaler.strategies import STRATEGIES
from penstock.cluster.model import Cluster, Placement
from penstock.monitor.sample import StateSize
from penstock.monitor.snapshot import OperatorSnapshot, Snapshot, StreamSnapshot
from penstock.plans import requests as plans
from penstock.plans.plan import MoveTask
from penstock.strategies.decision import Decision
from penstock.strategies.mapping import Wanted, place

CLUSTER = Cluster.of("ab", 1, cores=4)
A, B = CLUSTER.slots
#: Eight tasks on two slots; the first of each slot is the smallest.
TASKS = (A, B) * 4
SIZES = (1, 2, 70, 80, 50, 60, 30, 40)
BEFORE = Placement({"rows": {A: 1}, "work": {A: 1, B: 1}, "out": {B: 1}}, {"work": TASKS})


def seen(sizes: tuple[int | None, ...] = SIZES, before: Placement = BEFORE) -> Snapshot:
    """`work` executes 100 of the 300 rows a second that it gets."""
    state = {task: StateSize(bytes=size) for task, size in enumerate(sizes)}
    operators = {
        "rows": OperatorSnapshot("rows", "source", 1, rate=300.0, input_rate=300.0, capacity=900.0, utilisation=0.3),
        "work": OperatorSnapshot("work", "keyed", 2, rate=100.0, capacity=50.0, utilisation=1.0, state=state),
        "out": OperatorSnapshot("out", "sink", 1, rate=100.0, capacity=900.0, utilisation=0.1),
    }
    streams = {
        "rows->work": StreamSnapshot("rows->work", "rows", "out", "work", emit_rate=300.0),
        "work->out": StreamSnapshot("work->out", "work", "out", "out", emit_rate=100.0),
    }
    return Snapshot(DEFINITION, CLUSTER, before, 0.0, 60.0, 6, operators, streams, {}, {}, {})


def moved(after: Placement, before: Placement = BEFORE) -> set[int]:
    return {task for task, slot in enumerate(before.tasks["work"]) if after.tasks["work"][task] != slot}


def assert_the_smallest_move(after: Placement) -> None:
    new = moved(after)
    assert new
    for slot in CLUSTER.slots:
        sizes = sorted(SIZES[task] for task in range(8) if TASKS[task] == slot)
        left = sorted(SIZES[task] for task in new if TASKS[task] == slot)
        assert left == sizes[: len(left)]


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - {"storm"}))
def test_a_strategy_has_the_smallest_tasks_moved(name: str) -> None:
    """Storm's default is left out: it unassigns everything, and deals it out again."""
    given = load("rows-work:300 work-out:100", {"rows": 300, "work": 100, "out": 100}, state={"work": SIZES})
    found = STRATEGIES[name].scale_out(given, BEFORE, CLUSTER, [machine("c", 1)])
    assert isinstance(found, Decision)
    assert_the_smallest_move(found.placement)


def test_the_load_has_the_sizes_if_all_are_known() -> None:
    for made in (measured_load, bare_load):
        assert [one.state for one in made(seen()).operators] == [None, SIZES, None]
        assert [one.state for one in made(seen((*SIZES[:7], None))).operators] == [None, None, None]
        assert [one.state for one in made(seen(SIZES[:7])).operators] == [None, None, None]


@pytest.mark.parametrize("mapping", ["round_robin", "chained", "storm_default", "fewest_moves", "traffic_aware"])
def test_a_mapping_has_the_smallest_tasks_moved(mapping: str) -> None:
    wide = Cluster.of("abc", 1, cores=1)
    wanted = replace(Wanted.as_now(DEFINITION, wide, BEFORE), snapshot=seen())
    after = place(mapping, replace(wanted, instances={"rows": 1, "work": 3, "out": 1}))
    assert isinstance(after, Placement)
    assert_the_smallest_move(after)


def test_a_person_who_names_the_slots_has_the_smallest_tasks_moved() -> None:
    one = plans.set_instances(BEFORE, "work", {A: 1, B: 3}, snapshot=seen())
    assert [action.task for action in one.actions if isinstance(action, MoveTask)] == [0, 6]


def test_instances_that_are_taken_back_leave_the_largest_tasks_where_they_are() -> None:
    now = Placement({**BEFORE.instances, "work": {A: 1, B: 3}}, {"work": (A, B, B, B, A, B, B, B)})
    step = Step(1, 0.0, 0, BEFORE, now)
    after = taken_back(seen(before=now), [step])
    assert after.of("work") == {A: 1, B: 1}
    assert moved(after, now) == {1, 6}, "of 2, 70, 80, 60, 30 and 40 bytes"


def test_instances_on_idle_cores_take_the_smallest_tasks() -> None:
    before = Placement({**BEFORE.instances, "work": {A: 1}}, {"work": (A,) * 8})
    snapshot = seen(before=before)
    found = rearranged(snapshot, measured_load(snapshot), None)
    assert isinstance(found, Rearranged)
    new = sorted(SIZES[task] for task in moved(found.placement, before))
    assert new
    assert new == sorted(SIZES)[: len(new)]


def test_sizes_from_before_a_repartition_to_fewer_tasks_do_not_count() -> None:
    """The first ten of twenty tasks are other tasks than the ten that were made of them."""
    measured = OperatorSnapshot("count", "keyed", 1, state={task: StateSize(1, task) for task in range(20)})
    assert measured.state_sizes(20) == tuple(range(20))
    assert measured.state_sizes(10) is None
