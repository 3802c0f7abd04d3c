"""Storm's default scheduler as a mapping: an even deal at the start, and what a rebalance frees and deals again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from monitor_fakes import DEFINITION

from penstock.cluster.model import Cluster, Placement, Slot
from penstock.strategies.mapping import NoRoom, Wanted, place

CLUSTER = Cluster.of(["a", "b"], slots=2)
A0, A1, B0, B1 = CLUSTER.slots


def answered(wanted: Wanted) -> Placement:
    found = place("storm_default", wanted)
    assert isinstance(found, Placement)
    return found


def resized(before: Placement, cluster: Cluster = CLUSTER, **counts: int) -> Placement:
    wanted = Wanted.as_now(DEFINITION, cluster, before)
    return answered(replace(wanted, instances={**wanted.instances, **counts}))


def test_at_the_start_machines_take_turns() -> None:
    found = answered(Wanted(DEFINITION, CLUSTER, {"rows": 1, "work": 3, "out": 1}))
    assert found.instances == {"rows": {A0: 1}, "work": {B0: 1, A1: 1, B1: 1}, "out": {A0: 1}}


def test_what_is_even_stays_and_the_rest_is_dealt_again() -> None:
    before = answered(Wanted(DEFINITION, CLUSTER, {"rows": 1, "work": 3, "out": 1}))
    # Five instances become six: of a/0 (two) and one-instance slots, Storm keeps what an even deal has.
    after = resized(before, work=4)
    assert after.of("rows") == after.of("out") == {A0: 1}, "a/0 has two, and two of four slots are to have two"
    assert after.of("work") == {B0: 2, A1: 1, B1: 1}


def test_a_slot_that_has_too_many_is_emptied() -> None:
    before = Placement({"rows": {A0: 1}, "work": {A0: 2}, "out": {A0: 1}})
    after = resized(before)
    assert after.load() == {A0: 1, B0: 1, A1: 1, B1: 1}
    assert resized(after) == after, "now everything is as Storm wants it"


def test_a_machine_that_comes_gets_its_share() -> None:
    small = Cluster.of(["a"], slots=2)
    before = answered(Wanted(DEFINITION, small, {"rows": 2, "work": 4, "out": 2}))
    assert set(resized(before).load().values()) == {2}


def test_tasks_follow_and_a_full_cluster_is_an_answer() -> None:
    before = answered(Wanted(DEFINITION, CLUSTER, {"rows": 1, "work": 2, "out": 1}, {"work": 6}))
    after = resized(before, work=4)
    assert set(after.tasks["work"]) == set(after.of("work"))
    full = Wanted(DEFINITION, CLUSTER, {"rows": 1, "work": 9, "out": 1}, slot_instances=2)
    assert place("storm_default", full) == NoRoom("the topology has more instances than its slots have room for", 3)


placements = st.fixed_dictionaries(
    {
        name: st.dictionaries(st.sampled_from(CLUSTER.slots), st.integers(1, 4), min_size=1)
        for name in ("rows", "work", "out")
    }
)


@given(placements, st.integers(1, 12))
def test_after_a_change_all_slots_have_the_same_or_one_more(instances: dict[str, dict[Slot, int]], count: int) -> None:
    before = Placement(instances)
    after = resized(before, work=count)
    if count != before.total("work"):
        load = Counter({slot: after.load()[slot] for slot in CLUSTER.slots})
        assert max(load.values()) - min(load.values()) <= 1
    assert resized(after) == after


def test_without_slots_there_is_no_room() -> None:
    """All machines may be gone for a while."""
    before = answered(Wanted(DEFINITION, CLUSTER, {"rows": 1, "work": 3, "out": 1}))
    found = place("storm_default", Wanted.as_now(DEFINITION, Cluster(()), before))
    assert isinstance(found, NoRoom)
    assert found.missing == 5
