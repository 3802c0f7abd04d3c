"""Plans: a diff leads from one placement to the other, and applying it twice is applying it once."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import PenstockError, Topology, sinks, sources
from penstock.cluster.model import Cluster, Placement, Slot
from penstock.plans.plan import AddMachine, MoveTask, RemoveMachine, SetInstances, apply, check, diff, target
from penstock.strategies.mapping.round_robin import round_robin

CLUSTER = Cluster.of(["a", "b", "c"], 2)
SLOTS = CLUSTER.slots
TASKS = 6


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def keep(frame):
    return frame


def topology():
    declared = Topology("t")
    rows = declared.source("s", sources.rate(1, sources.numbers()))
    mapped = declared.map("m", same, inputs=[rows], schema="id long, value double", instances=2, min_instances=2)
    schema = "id long, value double"
    keyed = declared.keyed("k", keep, inputs=[mapped], key="id", schema=schema, tasks=TASKS, instances=2)
    declared.sink("out", sinks.noop(), inputs=[keyed])
    return declared.definition()


DEFINITION = topology()
spread = st.dictionaries(st.sampled_from(SLOTS), st.integers(1, 4), min_size=1)
placements = st.builds(
    lambda instances, tasks: Placement(instances, {"k": tuple(tasks)}),
    st.fixed_dictionaries({"s": spread, "m": spread, "k": spread, "out": spread}),
    st.lists(st.sampled_from(SLOTS), min_size=TASKS, max_size=TASKS),
)


@given(placements, placements)
def test_a_diff_leads_there_and_twice_is_once(before: Placement, after: Placement) -> None:
    actions = diff(before, after)
    assert apply(before, actions) == after
    assert apply(after, actions) == after
    assert diff(after, after) == ()


@given(placements, placements)
def test_what_an_action_does_not_touch_is_shared(before: Placement, after: Placement) -> None:
    """A controller's history has hundreds of placements, of hundreds of operators on dozens of slots."""
    [first, *_] = before.instances
    found = apply(before, [SetInstances(first, after.of(first))])
    assert found.of(first) == after.of(first)
    assert all(found.of(name) is before.of(name) for name in before.instances if name != first)


@given(placements, placements)
def test_a_diff_touches_only_what_differs(before: Placement, after: Placement) -> None:
    for action in diff(before, after):
        if isinstance(action, SetInstances):
            assert before.of(action.operator) != after.of(action.operator)
        else:
            assert before.tasks["k"][action.task] != action.slot == after.tasks["k"][action.task]


GOOD = round_robin(DEFINITION, CLUSTER)
NEW = Cluster.of(["d"], 2).machines[0]


def test_a_good_placement_passes() -> None:
    check(GOOD, DEFINITION, CLUSTER)


@pytest.mark.parametrize(
    ("action", "word"),
    [
        (SetInstances("m", {}), "no instance"),
        (SetInstances("m", {SLOTS[0]: 0, SLOTS[1]: 2}), "fewer than one"),
        (SetInstances("m", {SLOTS[0]: 1}), "at least 2"),
        (SetInstances("m", {Slot("z", 0): 2}), "z/0"),
        (SetInstances("k", {SLOTS[0]: TASKS + 1}), f"penstock repartition k {TASKS + 1}"),
        (SetInstances("nobody", {SLOTS[0]: 1}), "nobody"),
        (MoveTask("k", 0, Slot("z", 0)), "z/0"),
    ],
)
def test_what_does_not_fit_is_refused(action, word: str) -> None:
    with pytest.raises(PenstockError) as caught:
        check(apply(GOOD, (action,)), DEFINITION, CLUSTER)
    assert caught.value.name == "BAD_PLACEMENT"
    assert word in str(caught.value)


def refused(*actions, placement: Placement = GOOD, cluster: Cluster = CLUSTER, most: int = 100) -> str:
    with pytest.raises(PenstockError) as caught:
        target(actions, placement, cluster, DEFINITION, most)
    return caught.value.name


def test_what_a_plan_cannot_do_has_a_name_each() -> None:
    one = Cluster.of(["a"], 2)
    there = round_robin(DEFINITION, one)
    assert refused(RemoveMachine("a"), placement=there, cluster=one) == "LAST_MACHINE"
    assert refused(RemoveMachine("nobody")) == "NO_SUCH_MACHINE"
    assert refused(RemoveMachine("b")) == "BAD_PLACEMENT", "something is still placed there"
    assert refused(AddMachine(NEW), RemoveMachine("d")) == "BAD_PLACEMENT"
    assert refused(MoveTask("k", TASKS, SLOTS[0])) == "NO_SUCH_TASK"
    assert refused(MoveTask("k", -1, SLOTS[0])) == "NO_SUCH_TASK"
    assert refused(MoveTask("m", 0, SLOTS[0])) == "NO_SUCH_TASK"
    assert refused(SetInstances("m", {SLOTS[0]: 5}), most=4) == "SLOT_FULL"


def test_a_slot_that_is_too_full_already_may_be_relieved() -> None:
    crowded = apply(GOOD, (SetInstances("m", {SLOTS[0]: 9}),))
    leads_to = target((SetInstances("m", {SLOTS[0]: 8}),), crowded, CLUSTER, DEFINITION, 4)
    assert leads_to.placement.total("m") == 8


def test_a_plan_may_use_the_machine_that_it_adds() -> None:
    actions = (AddMachine(NEW), SetInstances("m", {NEW.slots[0]: 2}))
    leads_to = target(actions, GOOD, CLUSTER, DEFINITION, 100)
    assert leads_to.cluster.names == ("a", "b", "c", "d")
    assert target(actions, leads_to.placement, leads_to.cluster, DEFINITION, 100) == leads_to
