"""The policy `threshold`: what an instance uses, what is proposed, and which guards go with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_up import KEYED, cluster, placed, seen

from penstock.api.interface import STATUS_OF
from penstock.autoscaler.autonomy import check_goal, needs_no_goal, rounds_of
from penstock.autoscaler.goals import Goal, Grow
from penstock.autoscaler.instance_use import uses_of
from penstock.autoscaler.policy import View, decide, policy, view_of
from penstock.autoscaler.proposals import Answer, Nothing, Proposal
from penstock.autoscaler.threshold import CooldownRounds, Threshold
from penstock.cluster.model import Cluster, Placement
from penstock.cluster.readings import MachineUse
from penstock.errors import PenstockError
from penstock.monitor.snapshot import Gap, OperatorOnSlot, OperatorSnapshot, Snapshot
from penstock.plans.plan import AddMachine, MoveTask, Plan, SetInstances
from penstock.settings import Settings
from penstock.strategies.mapping import Wanted

TWO = cluster(2, cores=4)


def snapshot(
    where: Cluster = TWO, cpu: dict[str, float | None] | None = None, gaps: tuple[Gap, ...] = (), **counts: int
) -> Snapshot:
    """All instances of an operator use the same share of a core. Of `count`, the keyed one, busy time is known."""
    placement = placed(where, **({"rows": 1, "work": 2, "count": 2, "out": 1} | counts))
    shares: dict[str, float | None] = {"rows": 0.4, "work": 0.4, "count": 0.4, "out": 0.4} | (cpu or {})
    operators = {}
    for one in KEYED.operators:
        share = shares[one.name]
        busy = {"utilisation": share} if one.name == "count" else {"cpu_utilisation": share}
        on = {slot.name: OperatorOnSlot(n, **busy) for slot, n in placement.of(one.name).items()}
        operators[one.name] = OperatorSnapshot(
            one.name, one.kind, placement.total(one.name), slots=on, utilisation=share
        )
    return Snapshot(KEYED, where, placement, 0.0, 60.0, 6, operators, {}, {}, {}, {}, gaps)


def view(found: Snapshot, **more: Any) -> View:
    return View(found, Nothing("no rates are needed"), **more)


def answer(found: Snapshot, **more: Any) -> Answer:
    return decide("threshold", policy("threshold"), view(found, **more))


def counts_of(found: Answer) -> dict[str, int]:
    assert isinstance(found, Proposal)
    resized = [one for one in found.plan.actions if isinstance(one, SetInstances)]
    return {one.operator: sum(one.slots.values()) for one in resized}


# What is proposed


def test_between_the_thresholds_nothing_changes() -> None:
    assert answer(snapshot()) == Nothing("no threshold is crossed")


def test_overloaded_operators_grow_and_idle_ones_shrink_in_the_same_round() -> None:
    found = answer(snapshot(cpu={"work": 0.9, "count": 0.1}))
    assert counts_of(found) == {"work": 4, "count": 1}
    assert isinstance(found, Proposal)
    assert not any(isinstance(one, AddMachine) for one in found.plan.actions)
    assert {one.subject: one.value for one in found.predictions if one.metric == "utilisation"} == pytest.approx(
        {"work": 0.45, "count": 0.2}
    )
    assert "above 0.7: work from 2 to 4 instances (the busiest uses 90% of its CPU time)" in found.reasons[0]


def test_a_decision_says_what_throughput_it_expects_where_capacities_are_known() -> None:
    """Without that, no verdict could ever say that the decision brought nothing."""
    where = cluster(2)
    busy = seen(placed(where, rows=1, work=2, out=1), where, {"rows": 1e4, "work": 100.0, "out": 1e4}, 390.0)
    slots = {slot.name: OperatorOnSlot(1, cpu_utilisation=1.0) for slot in where.slots}
    busy = replace(busy, operators=busy.operators | {"work": replace(busy.operators["work"], slots=slots)})
    found = decide("threshold", policy("threshold"), view_of(busy, Settings()))
    assert counts_of(found)["work"] == 4
    assert isinstance(found, Proposal)
    assert [one.value for one in found.predictions if one.metric == "throughput"] == pytest.approx([390.0])


def test_a_keyed_operator_gets_no_more_instances_than_tasks() -> None:
    assert counts_of(answer(snapshot(cpu={"count": 0.9}, count=3))) == {"count": 4}
    found = answer(snapshot(cpu={"count": 0.9}, count=4))
    assert isinstance(found, Nothing)
    assert "penstock repartition count 8" in found.reason


def test_nothing_is_taken_below_the_minimum() -> None:
    idle = snapshot(cpu={"work": 0.0}, work=4)
    assert counts_of(answer(idle)) == {"work": 2}
    assert counts_of(answer(idle, settings=Settings(threshold_minimum=3))) == {"work": 3}
    assert isinstance(answer(idle, settings=Settings(threshold_minimum=4)), Nothing)


def test_what_is_not_known_is_not_zero() -> None:
    assert isinstance(answer(snapshot(cpu={"work": None})), Nothing)
    unheard = Gap("work", "utilisation", "it was heard of in 3 of 6 samples", grave=False)
    found = answer(snapshot(cpu={"work": 0.0}, gaps=(unheard,)))
    assert found == Nothing("no threshold is crossed; the utilisation of work is not known")
    assert counts_of(answer(snapshot(cpu={"work": 0.0, "count": 0.9}, gaps=(unheard,)))) == {"count": 4}


def test_a_young_window_is_no_reason_to_act() -> None:
    young = Gap("window", "", "it covers 1 of 20 samples", grave=True)
    found = answer(snapshot(cpu={"work": 0.9}, gaps=(young,)))
    assert isinstance(found, Nothing)
    assert "it covers 1 of 20 samples" in found.reason


def test_machines_are_not_its_business() -> None:
    """The control interface lists `threshold` among the strategies that a request may name: the request is right."""
    found = answer(snapshot(), request=Grow(1, ""))
    assert isinstance(found, Nothing)
    assert found.error == "STRATEGY_WITHOUT_MACHINES"
    assert found.error not in STATUS_OF, "the topology cannot do this now: 409"


def test_the_mapping_says_where_and_a_chain_stays_one() -> None:
    found = replace(snapshot(cpu={"rows": 0.3, "work": 0.5}, rows=2), chains=(("rows", "work"),))
    after = answer(found, settings=Settings(mapping="fewest_moves"))
    assert counts_of(after) == {"rows": 4, "work": 4}, "an instance of the chain uses 80%"
    assert isinstance(after, Proposal)
    slots = {one.operator: dict(one.slots) for one in after.plan.actions if isinstance(one, SetInstances)}
    assert slots["rows"] == slots["work"]


def test_a_chain_that_does_not_fit_on_one_slot_is_no_plan() -> None:
    """The mapping has room for each of its operators, but not for both on the same slot. As a plan that would be
    refused in every round."""
    one, two = TWO.slots
    instances = {"rows": {one: 2}, "work": {one: 2}, "count": {two: 2}, "out": {two: 1}}
    found = replace(
        snapshot(cpu={"rows": 0.4, "work": 0.5}, rows=2),
        placement=Placement(instances, {"count": (two,) * 4}),
        chains=(("rows", "work"),),
    )
    refused = answer(found, settings=Settings(mapping="fewest_moves", slot_instances=6))
    assert isinstance(refused, Nothing)
    assert refused.error == "SLOT_FULL"
    assert isinstance(answer(found, settings=Settings(mapping="fewest_moves", slot_instances=8)), Proposal)


def test_slots_that_are_full_are_an_answer() -> None:
    found = answer(snapshot(cpu={"work": 0.9}), settings=Settings(mapping="fewest_moves", slot_instances=3))
    assert isinstance(found, Nothing)
    assert found.error == "SLOT_FULL"


class Elsewhere:
    """A mapping that has another idea."""

    def place(self, wanted):
        assert wanted.before is not None
        tasks = {"count": tuple(sorted(wanted.before.tasks["count"]))}
        return Placement(wanted.before.instances, tasks)


def test_where_nothing_is_scaled_a_scheduler_may_still_move_something(monkeypatch) -> None:
    monkeypatch.setattr("penstock.strategies.mapping.protocol.mapping", lambda _: Elsewhere())
    found = answer(snapshot())
    assert isinstance(found, Proposal)
    assert all(isinstance(one, MoveTask) for one in found.plan.actions)
    assert found.reasons[0] == "no threshold is crossed"


def test_the_mapping_is_told_by_how_much_traffic_must_fall(monkeypatch) -> None:
    asked: list[Wanted] = []

    class Asked:
        def place(self, wanted: Wanted) -> Placement:
            asked.append(wanted)
            assert wanted.before is not None
            return wanted.before

    monkeypatch.setattr("penstock.strategies.mapping.protocol.mapping", lambda _: Asked())
    answer(snapshot())
    answer(snapshot(), settings=Settings(traffic_gain=0.25))
    assert [wanted.traffic_gain for wanted in asked] == [0.0, 0.25]


# What an instance uses


def test_more_instances_than_cores_share_them() -> None:
    [use] = uses_of(snapshot(cluster(1, cores=1), cpu={"work": 0.45}), ("work",))
    assert use.share == pytest.approx(0.9), "two instances on one core could have had half of it each"
    [use] = uses_of(snapshot(cluster(1, cores=4), cpu={"work": 0.45}), ("work",))
    assert use.share == pytest.approx(0.45)


def lab(found: Snapshot, cores: float, used: float) -> Snapshot:
    use = MachineUse(10.0, used, 0.0, 1, 0.0, 0.0, cores, 1, 1.0)
    return replace(found, machine_uses={machine.name: use for machine in found.cluster.machines})


def test_on_a_machine_of_a_lab_it_is_a_share_of_what_the_group_has() -> None:
    found = snapshot(cluster(2, cores=4), cpu={"work": 0.2, "rows": 0.02, "out": 0.02})
    # On each machine one instance of work and one of count; rows and out are on the first.
    quiet = uses_of(lab(found, 0.25, 0.2), ("work",))
    assert [use.share for use in quiet] == pytest.approx([0.2 / 0.25, 0.2 / 0.25])
    idle = uses_of(lab(found, 1.0, 0.2), ("work",))
    assert [use.share for use in idle] == pytest.approx([0.2, 0.2]), "it could have had a whole core"
    full = lab(found, 0.25, 0.25)
    assert [use.share for use in uses_of(full, ("work",))] == [1.0, 1.0]
    assert [use.share for use in uses_of(full, ("out",))] == pytest.approx([0.02 / (0.25 / 4)]), "less than its part"


# Rounds and guards


@pytest.mark.parametrize(
    ("gone", "waits"), [(0.0, True), (115.0, True), (119.99, True), (120.0, False), (500.0, False)]
)
def test_the_cooldown_is_counted_in_rounds(gone: float, waits: bool) -> None:
    guard, proposal = CooldownRounds(12, 10.0), Proposal(Plan(()))
    found = view(snapshot(), now=1000.0 + gone, last_ended=1000.0)
    assert bool(guard(proposal, found)) == waits
    assert not guard(replace(proposal, undo=True), found)
    assert not guard(proposal, view(snapshot(), now=1000.0))


def test_it_has_rounds_and_guards_of_its_own_and_needs_no_goal() -> None:
    settings = Settings(threshold_period=5.0)
    every, guards = rounds_of("threshold", Threshold(), None, settings)
    names = [getattr(guard, "__name__", type(guard).__name__) for guard in guards]
    assert every == 5.0
    assert names == [
        "not_while_paused", "one_at_a_time", "Freeze", "CooldownRounds", "Budget", "Failures", "Harmful"
    ]  # fmt: skip
    assert needs_no_goal("threshold")
    assert not needs_no_goal("stela")
    check_goal("threshold", None, settings)
    for strategy, goal in (("threshold", Goal(throughput=5.0)), ("stela", None)):
        with pytest.raises(PenstockError) as caught:
            rounds_of(strategy, policy(strategy), goal, settings)
        assert caught.value.name == "BAD_GOAL"
