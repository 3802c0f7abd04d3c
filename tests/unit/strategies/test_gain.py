"""`gain` on graphs small enough to follow by hand: what new machines get, and what they do not get."""

from __future__ import annotations

import pytest
from loads import CLUSTER, load, machine, placed

from penstock.cluster.model import Cluster, Placement, Slot
from penstock.strategies.decision import Decision, DoesNotFit, NothingToDo, answer_as_json
from penstock.strategies.gain.rates import beta, calibrated, learned, saturated
from penstock.strategies.gain.scale_out import scale_out
from penstock.strategies.load import Load, SlotLoad
from penstock.strategies.memory import EMPTY, Added, Memory
from penstock.strategies.rules import Rules
from penstock.strategies.stela import scale_out as stela

ONE = Cluster(CLUSTER.machines[:1])


def operators(decision: object) -> list[str]:
    assert isinstance(decision, Decision), decision
    return [step.operator for step in decision.steps]


# Rates.


def chain(**changes: dict[str, float]) -> Load:
    """s -> a -> t. a gets 300 and does 100; the others could do 400."""
    given = {"external": {"s": 300}, "capacity": {"s": 400, "a": 120, "t": 400}} | changes
    return load("s-a:300 a-t:100", {"s": 300, "a": 100, "t": 100}, **given)


def test_an_operator_is_saturated_if_it_gets_too_much_and_its_backlog_grows() -> None:
    assert [saturated(chain(), place) for place in range(3)] == [False, True, False]
    assert not saturated(chain(backlog_growth={"a": -5.0}), 1)
    assert saturated(chain(backlog_growth={"a": 200.0}), 1)
    assert saturated(chain(backlog_growth={"a": 0.0}, holds_others={"a": True}), 1)
    waits = {"executed": {"a": 50.0}}
    assert not saturated(chain(**waits), 1), "it waits for those behind it"
    assert saturated(chain(**waits, holds_others={"a": True}), 1)


def test_what_a_saturated_operator_does_is_remembered_and_corrects_the_others() -> None:
    before = placed(chain(), 2, ONE)
    memory = learned(chain(), before, EMPTY)
    assert dict(memory.rates) == {"a": 50}
    assert beta(chain(), [2, 2, 2], memory) == pytest.approx(100 / 120)
    assert calibrated(chain(), before, memory).rates == pytest.approx((400 / 2 * 100 / 120, 50, 400 / 2 * 100 / 120))
    assert calibrated(chain(), before, EMPTY).rates == pytest.approx((200, 60, 200))


def test_an_operator_that_does_more_than_was_remembered_can_do_that() -> None:
    known = Memory({"t": 10.0, "s": 1000.0})
    assert dict(learned(chain(), placed(chain(), 2, ONE), known).rates) == {"t": 50, "s": 1000, "a": 50}


def test_the_rate_of_a_keyed_instance_is_that_of_the_fullest_one() -> None:
    """Three instances of 4 tasks: one has two of them, so the three do what two could."""
    before = placed(chain(), 3, ONE, tasks={"a": 4})
    assert learned(chain(), before, EMPTY).rates["a"] == pytest.approx(100 / 2)


# New machines.


def test_instances_go_where_they_bring_most_and_the_rest_is_left_out() -> None:
    """a needs 300 / 50 = 6 instances: 4 more. s and t have enough, and more than 4 would bring nothing."""
    one = chain()
    decision = scale_out(one, placed(one, 2, ONE), ONE, [machine("n")], memory=Memory({"s": 200, "t": 200}))
    assert operators(decision) == ["a"] * 4
    assert isinstance(decision, Decision) and decision.projected is not None and decision.memory is not None
    assert decision.projected.throughput == 300
    assert "2 instances left out" in decision.reason
    assert decision.memory.added == (Added("n", {"a": 4}),)
    assert answer_as_json(decision)["projected_throughput"] == 300


def test_an_idle_operator_behind_gets_one_only_when_it_is_full() -> None:
    """b could do 1000: Stela takes it for congested as soon as a is faster, and gives it instances."""
    one = load(
        "s-a:300 a-b:100 b-t:100",
        {"s": 300, "a": 100, "b": 100, "t": 100},
        external={"s": 300},
        capacity={"s": 300, "a": 100, "b": 1000, "t": 150},
    )
    before = placed(one, 1, ONE)
    assert "b" in operators(stela.scale_out(one, before, ONE, [machine("n")]))
    assert sorted(operators(scale_out(one, before, ONE, [machine("n")]))) == ["a", "a", "t"]


def test_two_together_where_one_alone_brings_nothing() -> None:
    """Both a and b do 100 of 200: an instance for one of them changes nothing at the sink."""
    one = load(
        "s-a:200 a-b:100 b-t:100",
        {"s": 200, "a": 100, "b": 100, "t": 100},
        external={"s": 200},
        capacity={"s": 200, "a": 100, "b": 100, "t": 400},
    )
    decision = scale_out(one, placed(one, 1, ONE), ONE, [machine("n")])
    assert sorted(operators(decision)) == ["a", "b"]


def test_new_machines_are_filled_round_robin() -> None:
    one = chain()
    two = [machine("n"), machine("o")]
    decision = scale_out(one, placed(one, 1, ONE), ONE, two, memory=Memory({"s": 400, "t": 400}))
    assert isinstance(decision, Decision) and decision.memory is not None
    assert [step.to.machine for step in decision.steps if step.to] == ["n", "o"]
    assert decision.memory.added == (Added("n", {"a": 1}), Added("o", {"a": 1}))


def test_nothing_is_done_where_the_sources_offer_no_more() -> None:
    calm = load("s-t:100", {"s": 100, "t": 100}, external={"s": 100}, capacity={"s": 500, "t": 500})
    answer = scale_out(calm, placed(calm, 2), CLUSTER, [machine("n")])
    assert isinstance(answer, NothingToDo)
    assert "sources offer no more" in answer.reason


def test_a_source_without_an_external_rate_that_is_idle_reads_all_there_is() -> None:
    calm = load("s-t:100", {"s": 100, "t": 100}, capacity={"s": 500, "t": 500})
    assert isinstance(scale_out(calm, placed(calm, 2), CLUSTER, [machine("n")]), NothingToDo)
    busy = load("s-t:100", {"s": 100, "t": 100}, capacity={"s": 100, "t": 500})
    assert "s" in operators(scale_out(busy, placed(busy, 2), CLUSTER, [machine("n")]))


def test_too_small_a_machine_does_not_fit() -> None:
    one = chain()
    outcome = scale_out(one, placed(one, 2, ONE), ONE, [machine("n")], Rules(slot_capacity=2))
    assert isinstance(outcome, DoesNotFit)
    assert outcome.missing == 2


# Operators by key.


def keyed(**changes: dict[str, float]) -> Load:
    """As on Nexmark's q9: count has as many instances as tasks and is the bottleneck, the sources are idle."""
    given = {"external": {"s": 400}, "capacity": {"s": 4000, "count": 100, "t": 4000}} | changes
    return load("s-count:400 count-t:100", {"s": 400, "count": 100, "t": 100}, **given)


def test_an_operator_at_its_task_limit_gets_no_machine_but_advice() -> None:
    one = keyed()
    before = placed(one, 4, ONE, tasks={"count": 4})
    # The papers' rule gives all of them to the source.
    assert set(operators(stela.scale_out(one, before, ONE, [machine("n")]))) == {"s"}
    answer = scale_out(one, before, ONE, [machine("n")])
    assert isinstance(answer, NothingToDo)
    assert "a machine would bring nothing" in answer.reason
    assert "count has 4 tasks and 4 instances: `penstock repartition count 8` would help" in answer.reason


def full_slots(used: float) -> Load:
    """count's four instances get a quarter of a core each on slot a/0."""
    measured = keyed(cpu={"s": 0.1, "count": 1.0, "t": 0.1})
    return Load(measured.operators, measured.streams, (SlotLoad("a/0", 1, used),))


def test_an_operator_at_its_task_limit_moves_where_cores_are_what_lacks() -> None:
    slot = Slot("a", 0)
    before = Placement({name: {slot: 4} for name in ("s", "count", "t")}, {"count": (slot,) * 4})
    cluster = Cluster.of(["a"], 1)
    decision = scale_out(full_slots(1.0), before, cluster, [machine("n", 2)])
    assert isinstance(decision, Decision) and decision.projected is not None
    # One stays with the core that the four had, three go: two slots more are three times the cores.
    assert {step.operator for step in decision.steps} == {"count"}
    assert all(step.origin == slot for step in decision.steps)
    assert decision.placement.total("count") == 4
    moved = [now for now in decision.placement.tasks["count"] if now != slot]
    assert len(moved) == len(decision.steps)
    assert decision.projected.throughput == pytest.approx(200)
    assert decision.memory is not None and decision.memory.added == (Added("n", {}),)
    # With cores to spare, or without figures about cores, a move brings nothing.
    for other in (full_slots(0.5), keyed()):
        answer = scale_out(other, before, cluster, [machine("n", 2)])
        assert isinstance(answer, NothingToDo) and "penstock repartition" in answer.reason


def test_a_keyed_operator_gets_as_many_as_make_it_faster_or_none() -> None:
    """8 tasks on 4 instances are two each; with 5, 6 or 7 some instance still has two."""
    one = keyed()
    before = Placement({"s": {Slot("a", 0): 1}, "count": {Slot("a", 0): 4}, "t": {Slot("a", 0): 1}},
                       {"count": (Slot("a", 0),) * 8})  # fmt: skip
    small = Cluster.of(["a"], 1)
    decision = scale_out(one, before, small, [machine("n")])
    assert operators(decision) == ["count"] * 4
    assert isinstance(decision, Decision) and decision.projected is not None
    assert decision.projected.throughput == pytest.approx(200)
    assert sorted(decision.placement.tasks["count"]).count(Slot("a", 0)) == 4
    two = Cluster.of(["a", "b"], 1)
    answer = scale_out(one, before, two, [machine("n")])
    assert isinstance(answer, NothingToDo)
    assert "count gets faster with 8 instances" in answer.reason
