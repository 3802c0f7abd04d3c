"""Storm's default and the topology-aware alternatives, and all strategies by name."""

from __future__ import annotations

from collections import Counter

import pytest
from loads import CLUSTER, load, machine, placed

from penstock.autoscaler.strategies import STRATEGIES
from penstock.cluster.model import Cluster, Placement, Slot
from penstock.strategies.baselines.migration import Migration
from penstock.strategies.baselines.priorities import PRIORITIES
from penstock.strategies.baselines.storm import scale_in, scale_out
from penstock.strategies.decision import Decision, DoesNotFit, NothingToDo
from penstock.strategies.load import Load
from penstock.strategies.rules import Rules

#: s -> a -> b -> t and s -> u; the busiest streams are around b.
GRAPH = load(
    "s-a:10 s-u:5 a-b:50 b-t:100",
    {"s": 10, "a": 10, "b": 50, "t": 100, "u": 5},
)
FOUR = Cluster.of("abcd", 1)


def order(name: str) -> list[str]:
    numbers = PRIORITIES[name][0](GRAPH)
    return [GRAPH.operators[place].name for place in sorted(range(5), key=lambda place: numbers[place])]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nearest_to_source", "s a u b t"),
        ("nearest_to_sink", "t u s b a"),
        ("most_descendants", "s a b t u"),
        ("centrality", "s a b t u"),
        ("least_link_load", "u s a t b"),
        ("most_link_load", "b t a s u"),
    ],
)
def test_the_order_of_importance(name: str, expected: str) -> None:
    assert order(name) == expected.split()


def test_alternatives_move_existing_instances_of_the_most_important_operators() -> None:
    before = placed(GRAPH, 2)
    decision = Migration("nearest_to_source").scale_out(GRAPH, before, CLUSTER, [machine("n")])
    assert isinstance(decision, Decision)
    assert [step.operator for step in decision.steps] == ["s", "s", "a", "a", "u"]
    assert all(step.to.machine == "n" and step.origin is not None for step in decision.steps)
    assert all(decision.placement.total(one.name) == 2 for one in GRAPH.operators)


A0, A1, B0, B1 = CLUSTER.slots
#: s and a are on machine a; b, t and u are on machine b.
APART = Placement({"s": {A0: 2}, "a": {A1: 2}, "b": {B0: 2}, "t": {B1: 2}, "u": {B0: 2}})


def test_least_link_load_brings_neighbours_together_and_most_brings_them_apart() -> None:
    """One machine more, five instances move. u is first by least link load; s, its only neighbour, comes after it, and
    then a, the other neighbour of s."""
    least = Migration("least_link_load").scale_out(GRAPH, APART, CLUSTER, [machine("n")])
    assert isinstance(least, Decision)
    assert [step.operator for step in least.steps] == ["u", "u", "s", "s", "a"]
    # b is first by most link load. Every s that goes leaves two a behind and meets nobody: apart.
    most = Migration("most_link_load").scale_out(GRAPH, APART, CLUSTER, [machine("n")])
    assert isinstance(most, Decision)
    assert [step.operator for step in most.steps][:3] == ["b", "b", "s"]
    assert neighbour_pairs(GRAPH, most.placement) < neighbour_pairs(GRAPH, APART)
    assert neighbour_pairs(GRAPH, most.placement) < neighbour_pairs(GRAPH, least.placement)


def neighbour_pairs(load: Load, placement: Placement) -> int:
    """Pairs of instances of adjacent operators that are on the same machine."""
    on = [
        Counter(slot.machine for slot, count in placement.of(one.name).items() for _ in range(count))
        for one in load.operators
    ]
    return sum(
        count * on[child][machine]
        for place, children in enumerate(load.children)
        for child in children
        for machine, count in on[place].items()
    )


@pytest.mark.parametrize(("name", "better"), [("least_link_load", max), ("most_link_load", min)])
def test_each_move_by_link_load_is_the_one_with_the_most_or_fewest_neighbours(name: str, better) -> None:
    """Every move after the first of a machine, beside all others that were possible then."""
    new = [machine("n"), machine("o")]
    decision = Migration(name).scale_out(GRAPH, placed(GRAPH, 3), CLUSTER, new)
    assert isinstance(decision, Decision)
    now, begun = placed(GRAPH, 3), set[str]()
    room = Counter({one.name: len(decision.steps) // 2 for one in new})
    for step in decision.steps:
        assert step.origin is not None and step.to is not None
        tried = {
            (one.name, slot.machine, target.name): neighbour_pairs(GRAPH, moved(now, one.name, slot, target.slots[0]))
            for one in GRAPH.operators
            for slot in now.of(one.name)
            for target in new
            if slot.machine in "ab" and room[target.name]
        }
        now = moved(now, step.operator, step.origin, step.to)
        if len(begun) == 2:
            assert neighbour_pairs(GRAPH, now) == better(tried.values())
        begun.add(step.to.machine)
        room[step.to.machine] -= 1
    assert now.instances == decision.placement.instances


def moved(placement: Placement, operator: str, origin: Slot, to: Slot) -> Placement:
    counts = Counter(dict(placement.of(operator)))
    counts[origin] -= 1
    counts[to] += 1
    return Placement({**placement.instances, operator: {slot: count for slot, count in counts.items() if count}})


def test_storm_deals_everything_out_again_and_adds_nothing() -> None:
    before = placed(GRAPH, 2, tasks={"b": 4})
    decision = scale_out(GRAPH, before, CLUSTER, [machine("n")])
    assert isinstance(decision, Decision)
    assert {slot.machine for slots in decision.placement.instances.values() for slot in slots} == {"a", "b", "n"}
    assert all(decision.placement.total(one.name) == 2 for one in GRAPH.operators)
    assert len(decision.placement.tasks["b"]) == 4
    assert all(step.origin is not None for step in decision.steps)


def test_storm_draws_the_machines_that_go() -> None:
    before = placed(GRAPH, 2, FOUR)
    drawn = set()
    for seed in range(20):
        decision = scale_in(GRAPH, before, FOUR, 2, Rules(seed=seed))
        assert isinstance(decision, Decision)
        assert decision == scale_in(GRAPH, before, FOUR, 2, Rules(seed=seed))
        used = {slot.machine for slots in decision.placement.instances.values() for slot in slots}
        assert used.isdisjoint(decision.removed)
        drawn.add(decision.removed)
    assert len(drawn) > 2


@pytest.mark.parametrize("name", STRATEGIES)
def test_all_answer_with_values(name: str) -> None:
    before, one = placed(GRAPH, 2), STRATEGIES[name]
    assert isinstance(one.scale_out(GRAPH, before, CLUSTER, [machine("n")]), Decision)
    assert isinstance(one.scale_in(GRAPH, before, CLUSTER, 1), Decision)
    small = Rules(slot_capacity=1)
    for outcome, kind in (
        (one.scale_out(GRAPH, before, CLUSTER, []), NothingToDo),
        (one.scale_in(GRAPH, before, CLUSTER, 0), NothingToDo),
        (one.scale_in(GRAPH, before, CLUSTER, 2), DoesNotFit),
        (one.scale_out(GRAPH, before, CLUSTER, [machine("n", 1)], small), DoesNotFit),
        (one.scale_in(GRAPH, before, CLUSTER, 1, small), DoesNotFit),
    ):
        assert isinstance(outcome, kind)
        assert outcome.strategy == name
