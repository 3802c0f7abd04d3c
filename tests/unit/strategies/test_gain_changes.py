"""`gain` takes machines and instances away, and corrects itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loads import load, machine

from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.strategies.decision import Decision, DoesNotFit, NothingToDo
from penstock.strategies.fluid import Pipes, flow
from penstock.strategies.gain.correction import Trial, correct
from penstock.strategies.gain.rates import counts, tasks_of
from penstock.strategies.gain.scale_in import scale_in
from penstock.strategies.gain.scale_out import scale_out
from penstock.strategies.load import Load, SlotLoad
from penstock.strategies.mapping.round_robin import deal
from penstock.strategies.memory import EMPTY, Added, Memory
from penstock.strategies.rules import Rules

#: s -> a -> b -> t; an instance of s, a, b, t does so many rows a second.
CHAIN = load("s-a:1 a-b:1 b-t:1", {"s": 1, "a": 1, "b": 1, "t": 1})
RATES = (200.0, 50.0, 80.0, 200.0)
A, B, C = Cluster.of("abc", 1).slots


def under(offered: float, placement: Placement, rates: tuple[float, ...] = RATES) -> Load:
    """The load that a topology with these rates shows when so many rows a second are offered."""
    graph = load("s-a:1 a-b:1 b-t:1", {"s": 1, "a": 1, "b": 1, "t": 1}, external={"s": offered})
    return flow(Pipes.of(graph, rates, tasks_of(graph, placement)), counts(graph, placement))


def instances(placement: Placement) -> dict[str, int]:
    return {name: placement.total(name) for name in placement.instances}


def decided(answer: object) -> Decision:
    assert isinstance(answer, Decision), answer
    return answer


# Scale-in.


@pytest.mark.parametrize("remembers", [True, False])
@pytest.mark.parametrize(("day", "night"), [(1000.0, 60.0), (400.0, 400.0), (900.0, 900.0)])
def test_cycles_of_growing_and_shrinking_come_back_to_the_same_instances(
    remembers: bool, day: float, night: float
) -> None:
    cluster, memory = Cluster.of(["m0"], 2), EMPTY
    placement = deal(dict.fromkeys("sabt", 2), {"a": 16}, cluster)
    mornings = []
    for number in range(6):
        mornings.append(instances(placement))
        new = [machine(f"m{number + 1}")]
        grown = decided(scale_out(under(day, placement), placement, cluster, new, memory=memory))
        assert grown.memory is not None
        memory = grown.memory if remembers else EMPTY
        cluster = cluster.plus(new)
        back = decided(scale_in(under(night, grown.placement), grown.placement, cluster, 1, memory=memory))
        assert back.memory is not None and len(back.removed) == 1
        memory = back.memory if remembers else EMPTY
        cluster, placement = cluster.minus(back.removed), back.placement
    # At night, when nothing is needed, what was added goes, and nothing else. Where rows are lost with the machine, the
    # first cycle may find other operators to be missed least, or without a memory that fewer instances are enough; from
    # then on nothing changes.
    start = 0 if remembers and night < 100 else 1
    assert mornings[start:] == [mornings[start]] * len(mornings[start:])
    total = sum(mornings[-1].values())
    assert total == 8 if remembers else total <= 8
    assert remembers is False or memory.added == ()


def test_the_machine_that_came_last_goes_with_what_it_brought() -> None:
    placement = Placement({"s": {A: 1}, "a": {A: 1, B: 3}, "b": {A: 1, C: 1}, "t": {C: 1}})
    memory = Memory({}, (Added("b", {"a": 3}),))
    answer = decided(scale_in(under(40, placement), placement, Cluster.of("abc", 1), 1, memory=memory))
    assert answer.removed == ("b",)
    assert answer.placement == Placement({"s": {A: 1}, "a": {A: 1}, "b": {A: 1, C: 1}, "t": {C: 1}})
    assert [step.to for step in answer.steps] == [None] * 3
    assert answer.memory is not None and answer.memory.added == ()
    assert answer.projected is not None and answer.projected.throughput == 40


def test_what_is_still_needed_moves_and_what_is_not_goes() -> None:
    """a is the bottleneck with 4 instances. Others were added to b, but b is idle: b's go, and a's move."""
    placement = Placement({"s": {A: 1}, "a": {A: 1, B: 3}, "b": {A: 4, C: 4}, "t": {C: 1}})
    memory = Memory({}, (Added("b", {"a": 3}),))
    answer = decided(scale_in(under(200, placement), placement, Cluster.of("abc", 1), 1, memory=memory))
    assert answer.removed == ("b",)
    assert instances(answer.placement) == {"s": 1, "a": 4, "b": 5, "t": 1}
    assert answer.projected is not None and answer.projected.throughput == 200


def test_without_a_memory_as_many_go_as_a_machine_has() -> None:
    placement = Placement({"s": {A: 1, B: 1, C: 1}, "a": {A: 2, B: 2, C: 2}, "b": {A: 1, B: 1, C: 1}, "t": {C: 3}})
    answer = decided(scale_in(under(100, placement), placement, Cluster.of("abc", 1), 1))
    assert sum(instances(answer.placement).values()) == 10
    assert answer.projected is not None and answer.projected.throughput == 100


def test_an_operator_keeps_the_instances_that_it_has_to_have_whoever_added_them() -> None:
    placement = Placement({"s": {A: 1}, "a": {A: 2, B: 2}, "b": {A: 1, B: 2}, "t": {A: 1}})
    calm = under(10, placement)
    operators = tuple(replace(one, least_instances=3) if one.name == "a" else one for one in calm.operators)
    wanted = Load(operators, calm.streams, calm.slots)
    memory = Memory(added=(Added("b", {"a": 2, "b": 2}),))
    answer = decided(scale_in(wanted, placement, Cluster.of("ab", 1), 1, memory=memory))
    assert instances(answer.placement) == {"s": 1, "a": 3, "b": 1, "t": 1}
    answer = decided(scale_in(wanted, placement, Cluster.of("ab", 1), 1))
    assert instances(answer.placement)["a"] == 3, "also where nobody knows what came"


def test_a_machine_that_came_without_instances_takes_none_with_it() -> None:
    placement = Placement({name: {A: 2} for name in "sabt"})
    memory = EMPTY.with_added(Added("a", {}), Added("b", {}))
    answer = decided(scale_in(under(10, placement), placement, Cluster.of("abc", 1), 2, memory=memory))
    assert set(instances(answer.placement).values()) == {2}


def test_of_machines_with_other_numbers_of_cores_the_small_one_goes() -> None:
    big, small = Slot("big", 0, 4), Slot("small", 0, 1)
    cluster = Cluster((Machine("big", (big,)), Machine("small", (small,))))
    placement = Placement({name: {big: 1, small: 1} for name in "sabt"})
    busy = under(100, placement)
    operators = tuple(replace(one, cpu=0.8) for one in busy.operators)
    measured = Load(operators, busy.streams, (SlotLoad("big/0", 4, 2.4), SlotLoad("small/0", 1, 0.8)))
    answer = decided(scale_in(measured, placement, cluster, 1))
    assert answer.removed == ("small",)
    assert answer.projected is not None and answer.projected.throughput == pytest.approx(100 * 3 / 4, rel=0.5)


def test_scale_in_answers_with_values() -> None:
    placement = Placement({name: {A: 1, B: 1} for name in "sabt"})
    two = Cluster.of("ab", 1)
    assert isinstance(scale_in(under(10, placement), placement, two, 0), NothingToDo)
    assert isinstance(scale_in(under(10, placement), placement, two, 2), DoesNotFit)
    fits = decided(scale_in(under(10, placement), placement, two, 1, Rules(slot_capacity=4)))
    assert instances(fits.placement) == dict.fromkeys("sabt", 1)
    too_small = scale_in(under(10, placement), placement, two, 1, Rules(slot_capacity=3))
    assert isinstance(too_small, DoesNotFit) and too_small.missing == 1


def test_the_tasks_of_a_keyed_operator_leave_with_the_machine_and_are_spread_evenly() -> None:
    placement = Placement(
        {"s": {A: 1}, "a": {A: 1, B: 1, C: 2}, "b": {B: 1}, "t": {A: 1}}, {"a": (A, A, B, B, C, C, C, C)}
    )
    memory = Memory({}, (Added("c", {"a": 2}),))
    answer = decided(scale_in(under(50, placement), placement, Cluster.of("abc", 1), 1, memory=memory))
    assert answer.removed == ("c",)
    assert sorted(answer.placement.tasks["a"]) == [A] * 4 + [B] * 4


# The second step.


def test_a_wrong_estimate_is_corrected_by_what_was_measured() -> None:
    """b's capacity was taken for 400, and is 80: two new instances went to a, and b is now the bottleneck."""
    one, new = Cluster.of("a", 1), Slot("n", 0)
    before = Placement({name: {A: 1} for name in "sabt"})
    truth = under(150, before)
    believed = _with_capacity(truth, {"s": 200, "a": 50, "b": 400, "t": 200})
    first = decided(scale_out(believed, before, one, [Machine("n", (new,))], memory=EMPTY))
    assert instances(first.placement) == {"s": 1, "a": 3, "b": 1, "t": 1}
    assert first.memory is not None and first.projected is not None
    shown = _with_capacity(under(150, first.placement), {"s": 200, "a": 150, "b": 400, "t": 200})
    assert first.projected.throughput == 150 and shown.throughput == 80
    trial = Trial.of(before, first.placement, shown.throughput)
    second = decided(correct(shown, [trial], memory=first.memory))
    assert instances(second.placement) == {"s": 1, "a": 2, "b": 2, "t": 1}
    assert second.placement.of("b")[new] == 1
    assert second.memory is not None and second.memory.added == (Added("n", {"a": 1, "b": 1}),)
    assert second.projected is not None and second.projected.throughput == pytest.approx(100)
    # As expected: nothing more is done. Worse than before: back.
    after = under(150, second.placement)
    better = Trial.of(before, second.placement, after.throughput)
    assert isinstance(correct(after, [trial, better], memory=second.memory), NothingToDo)
    worse = Trial.of(before, second.placement, 70.0)
    back = decided(correct(after, [trial, worse], memory=second.memory))
    assert back.placement == first.placement
    assert back.memory is not None and back.memory.added == (Added("n", {"a": 2}),)
    assert back.projected is not None


def test_what_a_scale_out_left_out_may_come_with_a_correction() -> None:
    """a was taken for faster than it is: one new instance seemed enough, and two were at hand."""
    before = Placement({name: {A: 1} for name in "sabt"})
    after = Placement({"s": {A: 1}, "a": {A: 1, B: 1}, "b": {A: 2}, "t": {A: 1}})
    before = Placement({**before.instances, "b": {A: 2}})
    shown = under(150, after)
    assert isinstance(correct(shown, [Trial.of(before, after, shown.throughput)]), NothingToDo)
    more = decided(correct(shown, [Trial.of(before, after, shown.throughput, at_hand=2)]))
    assert more.placement.of("a") == {A: 1, B: 2}
    assert more.memory is not None and more.memory.added == (Added("b", {"a": 2}),)
    assert more.projected is not None and more.projected.throughput == 150


def test_a_scale_out_is_corrected_twice_at_most() -> None:
    before = Placement({name: {A: 1} for name in "sabt"})
    after = Placement({"s": {A: 1}, "a": {A: 1}, "b": {A: 1}, "t": {A: 1, B: 1}})
    trial = Trial.of(before, after, 50.0)
    shown = under(150, after)
    assert isinstance(correct(shown, [trial]), Decision)
    assert isinstance(correct(shown, [trial] * 2), Decision)
    assert isinstance(correct(shown, [trial] * 3), NothingToDo)
    assert isinstance(correct(shown, []), NothingToDo)


def _with_capacity(one: Load, capacity: dict[str, float]) -> Load:
    return one.at(tuple(replace(op, capacity=capacity[op.name]) for op in one.operators), one.streams)
