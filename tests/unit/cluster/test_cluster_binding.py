"""Slots and executors: who gets which, and who keeps what."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.binding import assign_slots, cluster_of, discover_slots
from penstock.cluster.model import Cluster, Slot
from penstock.cluster.provider import Executor

TWO_BY_TWO = Cluster.of(["a", "b"], slots=2)


def executor(number: int, host: str) -> Executor:
    return Executor(str(number), host, 2)


def test_executors_take_the_slots_of_their_host_by_numeric_id():
    bound = assign_slots(TWO_BY_TWO, [executor(10, "a"), executor(9, "a"), executor(2, "b"), executor(0, "b")], {})
    assert {slot.name: who.id for slot, who in bound.items()} == {"a/0": "9", "a/1": "10", "b/0": "0", "b/1": "2"}


def test_a_slot_without_an_executor_is_left_out():
    assert assign_slots(TWO_BY_TWO, [executor(0, "b")], {}) == {Slot("b", 0): executor(0, "b")}


def test_a_replaced_executor_gets_the_free_slot_and_the_others_stay():
    before = assign_slots(TWO_BY_TWO, [executor(0, "a"), executor(1, "a"), executor(2, "b"), executor(3, "b")], {})
    after = assign_slots(TWO_BY_TWO, [executor(4, "a"), executor(1, "a"), executor(2, "b"), executor(3, "b")], before)
    assert after == before | {Slot("a", 0): executor(4, "a")}


def test_executors_elsewhere_and_surplus_ones_are_ignored():
    given_executors = [executor(0, "elsewhere"), executor(1, "a"), executor(2, "a"), executor(3, "a")]
    assert [who.id for who in assign_slots(TWO_BY_TWO, given_executors, {}).values()] == ["1", "2"]


def test_a_machine_that_left_keeps_nothing():
    before = assign_slots(TWO_BY_TWO, [executor(0, "a"), executor(1, "b")], {})
    assert assign_slots(Cluster.of(["b"], 2), [executor(0, "a"), executor(1, "b")], before) == {
        Slot("b", 0): executor(1, "b")
    }


def test_ids_that_are_no_numbers_come_last():
    bound = assign_slots(Cluster.of(["a"], 2), [Executor("x", "a", 1), executor(7, "a")], {})
    assert [who.id for who in bound.values()] == ["7", "x"]


def test_discovered_slots_keep_their_index_when_another_leaves():
    first = discover_slots([executor(0, "a"), executor(1, "a"), executor(2, "b")], {}, cores=3)
    assert [slot.name for slot in first] == ["a/0", "a/1", "b/0"]
    assert all(slot.cores == 3 for slot in first)
    second = discover_slots([executor(1, "a")], first, cores=3)
    assert second == {Slot("a", 1): executor(1, "a")}
    third = discover_slots([executor(1, "a"), executor(5, "a"), executor(6, "a")], second, cores=3)
    assert {slot.name: who.id for slot, who in third.items()} == {"a/0": "5", "a/1": "1", "a/2": "6"}


def test_the_cluster_of_slots_groups_them_by_machine():
    assert cluster_of([Slot("b", 0), Slot("a", 1), Slot("a", 0)]).slots == (Slot("a", 0), Slot("a", 1), Slot("b", 0))


some_executors = st.sets(st.builds(executor, st.integers(0, 30), st.sampled_from(["a", "b", "c"])), max_size=8)


@given(some_executors, some_executors)
def test_binding_holds_what_it_promises(before: set[Executor], after: set[Executor]):
    first = assign_slots(TWO_BY_TWO, before, {})
    second = assign_slots(TWO_BY_TWO, after, first)
    assert len(set(second.values())) == len(second), "an executor has one slot"
    assert all(slot.machine == who.host and who in after for slot, who in second.items())
    assert all(second[slot] == who for slot, who in first.items() if who in after), "who stays keeps the slot"
    for machine in TWO_BY_TWO.machines:
        there = [who for who in after if who.host == machine.name]
        filled = [slot for slot in machine.slots if slot in second]
        assert len(filled) == min(len(there), len(machine.slots)), "no slot is empty while an executor waits"
    assert assign_slots(TWO_BY_TWO, after, second) == second, "binding again changes nothing"


@given(some_executors, some_executors)
def test_discovery_gives_every_executor_a_slot(before: set[Executor], after: set[Executor]):
    first = discover_slots(before, {}, cores=1)
    second = discover_slots(after, first, cores=1)
    assert set(second.values()) == after
    assert all(second[slot] == who for slot, who in first.items() if who in after)
