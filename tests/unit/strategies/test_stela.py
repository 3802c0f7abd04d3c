"""Stela's scale-out and scale-in, step by step, on graphs small enough to follow by hand."""

from __future__ import annotations

import pytest
from loads import CLUSTER, FIGURE_2, load, machine, placed

from penstock import PenstockError
from penstock.cluster.model import Cluster, Placement
from penstock.strategies.decision import Decision, DoesNotFit, NothingToDo
from penstock.strategies.rules import Rules
from penstock.strategies.stela.capacity import CapacityProjection
from penstock.strategies.stela.projection import PaperProjection, Projection
from penstock.strategies.stela.scale_in import etp_of, etp_sum, scale_in
from penstock.strategies.stela.scale_out import instances_a_machine, scale_out, scale_out_by_capacity


def operators(decision: object) -> list[str]:
    assert isinstance(decision, Decision), decision
    return [step.operator for step in decision.steps]


def test_figure_2_in_the_paper_s_order() -> None:
    """3, 4, 6, 1 (section II-D); 3 and 4 tie at 4/9, and 3 has the higher ratio here."""
    rules = Rules(alpha=1)
    shares = etp_of(FIGURE_2, rules)
    assert sorted(["1", "3", "4", "6"], key=lambda name: -shares[name]) == ["3", "4", "6", "1"]
    decision = scale_out(FIGURE_2, placed(FIGURE_2), CLUSTER, [machine("n")], rules)
    assert len(operators(decision)) == 10
    assert operators(decision)[0] == "3"
    assert isinstance(decision, Decision)
    assert dict(decision.steps[0].figures) == pytest.approx(
        {"input": 3000, "processing": 1500, "ratio": 2, "etp": 4 / 9, "instances": 2}
    )


def test_the_projection_by_hand() -> None:
    """s -> a -> t: a gets 300 and does 100. One instance doubles it; t then gets 200 and does 100."""
    chain = load("s-a:300 a-t:100", {"s": 300, "a": 100, "t": 100})
    one_each = Placement({name: {slot: 1} for name, slot in zip("sat", CLUSTER.slots, strict=False)})
    cluster = Cluster(CLUSTER.machines[:1])
    decision = scale_out(chain, one_each, cluster, [machine("n")])
    # a: ETP 1. Then t is congested (2.0) and a (1.5) is shut off from it: t. Then a again: 1.5, and t keeps up.
    assert operators(decision) == ["a", "t", "a"]
    assert isinstance(decision, Decision) and decision.projected is not None
    assert [one.processing for one in decision.projected.operators] == [300, 300, 200]
    assert decision.projected.inputs == (300, 300, 300)


def test_nothing_congested_gives_it_to_the_source_that_reaches_most() -> None:
    calm = load("p-t:10 q-t:10 q-u:10", {"p": 10, "q": 10, "t": 20, "u": 10})
    assert operators(scale_out(calm, placed(calm, 1), CLUSTER, [machine("n")]))[0] == "q"


def test_ties_go_to_the_higher_ratio_then_to_the_earlier_operator() -> None:
    tie = load("s-a:200 s-b:300 s-c:300 a-t:100 b-t:100 c-t:100", {"s": 800, "a": 100, "b": 100, "c": 100, "t": 300})
    assert operators(scale_out(tie, placed(tie, 1), CLUSTER, [machine("n")]))[0] == "b"


def test_instances_a_machine_is_rounded_down_and_at_least_one() -> None:
    one = load("s-t:1", {"s": 1, "t": 1})
    assert instances_a_machine(placed(one, 3, Cluster.of("abcd", 1)), Cluster.of("abcd", 1)) == 1
    assert instances_a_machine(placed(one, 1, Cluster.of("abcd", 1)), Cluster.of("abcd", 1)) == 1
    assert instances_a_machine(placed(one, 5, Cluster.of("abcd", 1)), Cluster.of("abcd", 1)) == 2


def test_new_machines_and_their_slots_are_filled_round_robin() -> None:
    decision = scale_out(FIGURE_2, placed(FIGURE_2), CLUSTER, [machine("n"), machine("o", 3)], Rules(alpha=1))
    assert isinstance(decision, Decision)
    assert [str(step.to) for step in decision.steps[:7]] == ["n/0", "o/0", "n/1", "o/1", "n/0", "o/2", "n/1"]


def test_a_keyed_operator_gets_no_more_instances_than_tasks() -> None:
    chain = load("s-k:300 k-t:100", {"s": 300, "k": 100, "t": 100})
    decision = scale_out(chain, placed(chain, 2, tasks={"k": 3}), CLUSTER, [machine("n")])
    assert isinstance(decision, Decision)
    assert decision.placement.total("k") == 3
    old = placed(chain, 2, tasks={"k": 3}).tasks["k"]
    moved = [now for was, now in zip(old, decision.placement.tasks["k"], strict=True) if was != now]
    assert moved == [decision.steps[0].to]


@pytest.mark.parametrize("project", [PaperProjection, CapacityProjection])
def test_a_keyed_operator_is_as_fast_as_its_fullest_instance(project: type[Projection]) -> None:
    """8 tasks on 4 instances are two each; only with 8 instances does none have two."""
    chain = load("s-k:300 k-t:100", {"s": 300, "k": 100, "t": 100}, capacity={"t": 400})
    projection = project(chain, [4, 4, 4], Rules(), [None, 8, None])
    done, arriving = [], []
    for _ in range(4):
        projection.give(1)
        done.append(projection.load().operators[1].processing)
        arriving.append(projection.load().inputs[2])
    assert done == arriving == [100, 100, 100, 200]


def test_what_nobody_can_use_is_left_out() -> None:
    full = load("s-t:1", {"s": 1, "t": 1}, most_instances={"s": 3, "t": 2})
    decision = scale_out(full, placed(full, 2), CLUSTER, [machine("n")])
    assert operators(decision) == ["s"]
    assert isinstance(scale_out(full, placed(full, 3), CLUSTER, [machine("n")]), NothingToDo)


def test_no_machine_nothing_to_do_and_too_small_a_machine_does_not_fit() -> None:
    assert isinstance(scale_out(FIGURE_2, placed(FIGURE_2), CLUSTER, []), NothingToDo)
    outcome = scale_out(FIGURE_2, placed(FIGURE_2), CLUSTER, [machine("n")], Rules(slot_capacity=4))
    assert isinstance(outcome, DoesNotFit)
    assert outcome.missing == 2


def test_a_machine_that_is_there_already_or_has_no_slot_is_an_error() -> None:
    for new in (machine("a"), machine("n", 0)):
        with pytest.raises(PenstockError) as caught:
            scale_out(FIGURE_2, placed(FIGURE_2), CLUSTER, [new])
        assert caught.value.name == "BAD_CLUSTER"


def test_a_placement_without_an_operator_is_an_error() -> None:
    with pytest.raises(PenstockError) as caught:
        scale_out(FIGURE_2, Placement({}), CLUSTER, [machine("n")])
    assert caught.value.name == "BAD_PLACEMENT"


def test_by_capacity_an_idle_operator_is_passed_over() -> None:
    """b does 100 because it gets 100; it could do 1000. The paper takes it for congested as soon as a is faster."""
    chain = load(
        "s-a:300 a-b:100 b-t:100",
        {"s": 300, "a": 100, "b": 100, "t": 100},
        capacity={"s": 300, "a": 100, "b": 1000, "t": 1000},
    )
    cluster = Cluster(CLUSTER.machines[:1])
    one_each = placed(chain, 1, cluster)
    assert "b" in operators(scale_out(chain, one_each, cluster, [machine("n")]))
    assert operators(scale_out_by_capacity(chain, one_each, cluster, [machine("n")]))[:2] == ["a", "a"]


def test_by_capacity_back_pressure_is_not_taken_for_calm() -> None:
    """The outside offers 300; a does 100, so the source was slowed down to 100 and nothing inside looks congested."""
    throttled = load(
        "s-a:100 a-t:100",
        {"s": 100, "a": 100, "t": 100},
        external={"s": 300},
        capacity={"s": 400, "a": 100, "t": 400},
    )
    cluster = Cluster(CLUSTER.machines[:1])
    one_each = placed(throttled, 1, cluster)
    assert operators(scale_out(throttled, one_each, cluster, [machine("n")]))[0] == "s"
    assert operators(scale_out_by_capacity(throttled, one_each, cluster, [machine("n")]))[:2] == ["a", "a"]


# Scale-in. s -> a -> t, a congested: ETP s 0, a 1, t 1.

CHAIN = load("s-a:300 a-t:100", {"s": 300, "a": 100, "t": 100})
THREE = Cluster.of("abc", 1)
A, B, C = THREE.slots


def test_the_machine_with_the_lowest_etp_sum_goes_and_its_instances_in_increasing_order() -> None:
    placement = Placement({"s": {A: 1, C: 3}, "a": {A: 2}, "t": {B: 1}})
    shares = etp_of(CHAIN)
    assert shares == {"s": 0, "a": 1, "t": 1}
    assert [etp_sum(one, placement.instances, shares) for one in THREE.machines] == [2, 1, 0]
    decision = scale_in(CHAIN, placement, THREE, 1)
    assert isinstance(decision, Decision)
    assert decision.removed == ("c",)
    assert [(step.origin, step.to) for step in decision.steps] == [(C, B), (C, A), (C, B)]
    assert decision.placement == Placement({"s": {A: 2, B: 2}, "a": {A: 2}, "t": {B: 1}})


def test_one_machine_at_a_time_what_moved_counts_where_it_is() -> None:
    placement = Placement({"s": {A: 1}, "a": {B: 1}, "t": {C: 2}})
    decision = scale_in(CHAIN, placement, THREE, 2)
    assert isinstance(decision, Decision)
    assert decision.removed == ("a", "b")
    assert decision.placement == Placement({"s": {C: 1}, "a": {C: 1}, "t": {C: 2}})


def test_full_slots_are_passed_over() -> None:
    placement = Placement({"s": {C: 2}, "a": {A: 1}, "t": {B: 3}})
    decision = scale_in(CHAIN, placement, THREE, 1, Rules(slot_capacity=3))
    assert isinstance(decision, Decision)
    assert [step.to for step in decision.steps] == [A, A]


def test_what_does_not_fit_and_the_last_machine_are_results() -> None:
    placement = Placement({"s": {C: 2}, "a": {A: 2}, "t": {B: 3}})
    outcome = scale_in(CHAIN, placement, THREE, 1, Rules(slot_capacity=3))
    assert isinstance(outcome, DoesNotFit) and outcome.missing == 1
    outcome = scale_in(CHAIN, placement, THREE, 3)
    assert isinstance(outcome, DoesNotFit) and outcome.missing == 7
    assert isinstance(scale_in(CHAIN, placement, THREE, 0), NothingToDo)


def test_tasks_leave_with_the_machine() -> None:
    placement = Placement({"s": {C: 1}, "a": {A: 2, C: 1}, "t": {B: 3}}, {"a": (A, C, A, C)})
    decision = scale_in(CHAIN, placement, THREE, 1)
    assert isinstance(decision, Decision)
    assert decision.removed == ("c",)
    assert decision.placement.tasks["a"][0::2] == (A, A)
    assert set(decision.placement.tasks["a"]) <= set(decision.placement.of("a"))
