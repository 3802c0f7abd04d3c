"""Storm's default and the topology-aware alternatives, and all strategies by name."""

from __future__ import annotations

import pytest
from loads import CLUSTER, load, machine, placed

from penstock.cluster.model import Cluster
from penstock.strategies.baselines.migration import Migration
from penstock.strategies.baselines.priorities import PRIORITIES
from penstock.strategies.baselines.storm import scale_in, scale_out
from penstock.strategies.decision import Decision, DoesNotFit, NothingToDo
from penstock.strategies.registry import STRATEGIES
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


def test_link_load_brings_neighbours_together() -> None:
    before = placed(GRAPH, 2)
    decision = Migration("most_link_load").scale_out(GRAPH, before, CLUSTER, [machine("n"), machine("o")])
    assert isinstance(decision, Decision)
    # b's two go one to each; then t's find a b on both.
    assert [(step.operator, step.to.machine) for step in decision.steps[:4]] == [
        ("b", "n"), ("b", "o"), ("t", "n"), ("t", "o"),
    ]  # fmt: skip


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
