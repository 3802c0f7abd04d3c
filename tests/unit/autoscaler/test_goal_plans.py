"""What a goal leads to, on made-up loads and without a loop."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_up import PLAIN, TASKS, cluster, decided, placed, seen, view

from penstock.autoscaler.goals import Goal, Grow, Shrink, Stay, wish
from penstock.autoscaler.measured_load import measured_load
from penstock.autoscaler.policy import View, decide, policy
from penstock.autoscaler.proposals import Answer, Nothing, Proposal, machines_fewer, machines_more
from penstock.autoscaler.records import Verdict
from penstock.autoscaler.steps import open_steps
from penstock.cluster.model import Cluster, Placement
from penstock.plans.plan import AddMachine, SetInstances, apply, apply_to_cluster
from penstock.settings import Settings
from penstock.strategies.mapping.chains import chains_of

SPEEDS = {"rows": 10_000.0, "work": 100.0, "count": 1_000.0, "out": 10_000.0}
HOUR = 3600.0
#: Operators that use a core do what they can; `out` and `rows` hardly anything.
ONE = cluster(1)


def answer(seen_by: View, strategy: str = "stela") -> Answer:
    return decide(strategy, policy(strategy), seen_by)


def after(seen_by: View, strategy: str = "stela") -> tuple[Placement, Cluster]:
    """Where the proposal leads."""
    found = answer(seen_by, strategy)
    assert isinstance(found, Proposal), found
    actions = found.plan.actions
    return apply(seen_by.snapshot.placement, actions), apply_to_cluster(seen_by.snapshot.cluster, actions)


# 1: what the sinks measured counts


def test_a_goal_is_not_met_by_a_projection() -> None:
    busy = seen(placed(ONE, rows=1, work=2, out=1), ONE, SPEEDS | {"out": 150.0}, 1100.0)
    load = measured_load(busy)
    assert busy.operators["out"].rate == 150
    found = wish(Goal(throughput=200.0), busy, load)
    assert isinstance(found, Grow)
    assert found.reason.startswith("the throughput of 150 rows/s is below the goal of 200")


def test_sources_that_offer_less_are_no_reason_to_grow() -> None:
    calm = seen(placed(ONE, rows=1, work=2, out=1), ONE, SPEEDS, 150.0)
    found = wish(Goal(throughput=1000.0), calm, measured_load(calm))
    assert isinstance(found, Stay)
    assert "the sources offer no more rows" in found.reason


# 2: what a scale-out added is taken back


@pytest.mark.parametrize("strategy", ["stela", "gain"])
def test_four_cycles_leave_what_there_was(strategy: str) -> None:
    where, placement = cluster(1), placed(cluster(1), rows=1, work=2, out=1)
    start, history = placement, ()
    counts = []
    for cycle in range(4):
        high = view(seen(placement, where, SPEEDS, 390.0), Goal(throughput=390.0), history=history)
        placement, where, history = carried_out(high, 2 * cycle + 1, strategy)
        counts.append(sum(placement.load().values()))
        low = view(seen(placement, where, SPEEDS, 100.0), Goal(throughput=390.0), history=history)
        placement, where, history = carried_out(low, 2 * cycle + 2, strategy)
        counts.append(sum(placement.load().values()))
    assert counts[::2] == counts[:1] * 4
    assert placement == start
    assert where.names == ("m1",)


def carried_out(seen_by: View, number: int, strategy: str = "stela"):
    found = answer(seen_by, strategy)
    assert isinstance(found, Proposal), found
    one = decided(number, seen_by.snapshot, *found.plan.actions, reverts=found.reverts, memory=found.memory)
    placement = apply(seen_by.snapshot.placement, found.plan.actions)
    return placement, apply_to_cluster(seen_by.snapshot.cluster, found.plan.actions), (*seen_by.history, one)


def test_what_a_scale_in_took_away_comes_back_as_it_was() -> None:
    where = cluster(2)
    start = placed(where, rows=1, work=4, out=1)
    calm = view(seen(start, where, SPEEDS, 100.0), Goal(throughput=390.0))
    placement, fewer, history = carried_out(calm, 1)
    assert fewer.names == ("m2",) or fewer.names == ("m1",)
    again = view(seen(placement, fewer, SPEEDS | {"work": 50.0}, 390.0), Goal(throughput=390.0), history=history)
    back, more, _ = carried_out(again, 2)
    assert {name: back.total(name) for name in start.instances} == {name: start.total(name) for name in start.instances}
    assert len(more.machines) == 2


# 6: backlog that drains


def test_a_backlog_that_is_worked_off_is_no_spare_capacity() -> None:
    where = cluster(2)
    catching_up = seen(placed(where, rows=1, work=4, out=1), where, SPEEDS, 100.0, waiting=50_000)
    found = wish(Goal(throughput=90.0), catching_up, measured_load(catching_up))
    assert isinstance(found, Stay)
    assert "50,000 rows wait" in found.reason


# 7: other instances on the machines that are there


def test_idle_cores_are_used_before_machines_come() -> None:
    where = cluster(1, cores=8)
    slow = view(seen(placed(where, rows=1, work=2, out=1), where, SPEEDS, 390.0), Goal(throughput=390.0))
    placement, machines = after(slow)
    assert machines == where
    assert placement.total("work") == 4
    assert answer(slow).predictions[1].value == 390.0  # type: ignore[union-attr]


def test_operators_that_wait_need_no_cores() -> None:
    slow = view(seen(placed(ONE, rows=1, work=2, out=1), ONE, SPEEDS, 390.0, cpu=0.01), Goal(throughput=390.0))
    placement, machines = after(slow)
    assert machines == ONE
    assert placement.total("work") == 4


def test_a_cluster_without_machines_to_come_does_what_it_can() -> None:
    where = cluster(1, cores=3)
    slow = view(seen(placed(where, rows=1, work=1, out=1), where, SPEEDS, 900.0), Goal(throughput=900.0), machines=0)
    placement, _ = after(slow)
    assert placement.total("work") == 3
    full = seen(placed(ONE, rows=1, work=2, out=1), ONE, SPEEDS, 900.0)
    found = answer(view(full, Goal(throughput=900.0), machines=0))
    assert isinstance(found, Nothing)
    assert "no slot has idle cores" in found.reason
    assert "this cluster has no more machines" in found.reason


def test_the_most_for_a_number_of_machines_means_other_instances_when_they_are_all_there() -> None:
    where = cluster(2, cores=8)
    slow = view(seen(placed(where, rows=1, work=2, out=1), where, SPEEDS, 1e6), Goal(machines_max=2))
    placement, machines = after(slow)
    assert machines == where
    assert placement.total("work") > 2


def test_no_core_is_idle_so_machines_come_as_many_as_the_work_needs() -> None:
    where = cluster(2)
    slow = view(seen(placed(where, rows=1, work=4, out=1), where, SPEEDS, 800.0), Goal(throughput=800.0))
    found = answer(slow)
    assert isinstance(found, Proposal)
    assert machines_more(found.plan) == 2, "four cores are busy with half of the work"
    capped = replace(slow, goal=Goal(throughput=800.0, machines_max=3))
    assert machines_more(answer(capped).plan) == 1  # type: ignore[union-attr]


def test_instances_that_were_added_go_when_they_are_idle() -> None:
    where = cluster(1, cores=8)
    before, more = placed(where, rows=1, work=2, out=1), placed(where, rows=1, work=4, out=1)
    busy = seen(before, where, SPEEDS, 390.0)
    history = (decided(1, busy, SetInstances("work", more.of("work"))),)
    still = view(seen(more, where, SPEEDS, 350.0), Goal(throughput=390.0), history=history)
    assert isinstance(answer(still), Nothing)
    idle = view(seen(more, where, SPEEDS, 100.0), Goal(throughput=390.0), history=history, now=5 * HOUR)
    assert isinstance(answer(replace(idle, now=2 * HOUR)), Nothing), "they cost nothing, and may be needed again"
    placement, _ = after(idle)
    assert placement == before
    assert answer(idle).reverts == (1,)  # type: ignore[union-attr]


# 9: as many instances as tasks


def test_a_machine_that_would_bring_nothing_does_not_come() -> None:
    where = cluster(2)
    slow = seen(
        placed(where, rows=1, work=1, count=TASKS, out=1), where, SPEEDS | {"count": 20.0, "work": 900.0}, 500.0
    )
    found = answer(view(slow, Goal(throughput=500.0)))
    assert isinstance(found, Nothing), "the instances would all go to a source that is idle"
    assert "count has 4 tasks and 4 instances: penstock repartition count 8" in found.reason


def test_an_operator_at_its_limit_is_moved_to_idle_cores() -> None:
    where = cluster(2)
    first = where.slots[0]
    placement = Placement(
        {"rows": {first: 1}, "work": {first: 1}, "count": {first: 4}, "out": {first: 1}}, {"count": (first,) * TASKS}
    )
    slow = seen(placement, where, SPEEDS | {"count": 20.0, "work": 900.0}, 500.0)
    moved = view(slow, Goal(throughput=500.0), machines=0)
    found, _ = after(moved)
    assert found.of("count") == {where.slots[0]: 2, where.slots[1]: 2}
    assert found.tasks["count"].count(where.slots[1]) == 2
    alone = cluster(1)
    found, machines = after(view(seen(placement, alone, SPEEDS | {"count": 20.0, "work": 900.0}, 500.0), moved.goal))
    assert len(machines.machines) == 2, "a machine for its cores"
    assert found.of("count") == {where.slots[0]: 2, where.slots[1]: 2}


# Chains


def test_a_chain_is_taken_apart_for_the_operator_that_needs_it_and_only_then() -> None:
    where, chain = cluster(1, cores=8), tuple(one.name for one in PLAIN.operators)
    together = placed(where, rows=1, work=1, out=1)
    met = view(seen(together, where, SPEEDS, 90.0, chains=(chain,)), Goal(throughput=90.0))
    assert isinstance(answer(met), Nothing)
    slow = view(seen(together, where, SPEEDS, 250.0, chains=(chain,)), Goal(throughput=250.0))
    placement, _ = after(slow)
    assert placement.total("work") == 3
    assert placement.total("rows") == placement.total("out") == 1


def test_a_chain_that_is_too_slow_as_a_whole_grows_as_a_whole() -> None:
    where, chain = cluster(1, cores=8), tuple(one.name for one in PLAIN.operators)
    together = placed(where, rows=1, work=1, out=1)
    even = dict.fromkeys(chain, 300.0)
    slow = view(seen(together, where, even, 180.0, chains=(chain,)), Goal(throughput=180.0))
    assert slow.balance.throughput == 100.0
    placement, _ = after(slow)
    assert {name: placement.total(name) for name in chain} == dict.fromkeys(chain, 2)


@pytest.mark.parametrize("strategy", ["stela", "gain"])
def test_a_chain_that_is_too_slow_as_a_whole_gets_machines_for_all_of_it(strategy: str) -> None:
    """Each of its operators by itself would be fast enough, so a strategy that looks at them one by one sees none that
    is too slow."""
    where, chain = cluster(1, cores=1), tuple(one.name for one in PLAIN.operators)
    together = placed(where, rows=1, work=1, out=1)
    slow = view(
        seen(together, where, dict.fromkeys(chain, 300.0), 180.0, chains=(chain,)),
        Goal(throughput=180.0),
        settings=Settings(strategy=strategy),
    )
    placement, machines = after(slow, strategy)
    assert len(machines.machines) == 2
    assert {name: placement.total(name) for name in chain} == dict.fromkeys(chain, 2)
    assert chains_of(PLAIN, placement) == (chain,)


@pytest.mark.parametrize("strategy", ["stela", "gain"])
def test_a_chain_that_grew_as_a_whole_keeps_what_it_needs_as_a_whole(strategy: str) -> None:
    """One instance of each does 100 rows a second as a chain, two do 200, and 150 come. Each operator by itself could
    do 300, so none of them needs more than the others."""
    one, two, chain = cluster(1, cores=4), cluster(2, cores=4), tuple(one.name for one in PLAIN.operators)
    speeds = dict.fromkeys(chain, 300.0)
    before = placed(one, rows=1, work=1, out=1)
    more = Placement({name: {two.slots[0]: 2, two.slots[1]: 1} for name in chain})
    sets = [SetInstances(name, more.of(name)) for name in chain]
    slow = seen(before, one, speeds, 290.0, chains=(chain,))
    history = (decided(1, slow, AddMachine(two.machines[1]), *sets),)
    calm = view(
        seen(more, two, speeds, 150.0, chains=(chain,)),
        Goal(throughput=290.0),
        history=history,
        settings=Settings(strategy=strategy),
    )
    placement, machines = after(calm, strategy)
    assert len(machines.machines) == 1
    assert {name: placement.total(name) for name in chain} == dict.fromkeys(chain, 2)
    assert chains_of(PLAIN, placement) == (chain,)


def test_a_chain_is_put_together_again() -> None:
    where, chain = cluster(1, cores=8), tuple(one.name for one in PLAIN.operators)
    together = placed(where, rows=1, work=1, out=1)
    apart = placed(where, rows=1, work=3, out=1)
    busy = seen(together, where, SPEEDS, 250.0, chains=(chain,))
    history = (decided(1, busy, SetInstances("work", apart.of("work"))),)
    idle = view(seen(apart, where, SPEEDS, 50.0), Goal(throughput=250.0), history=history, now=1.1 * HOUR)
    assert after(idle)[0] == together
    nearly = replace(
        idle, snapshot=seen(apart, where, SPEEDS, 90.0), load=measured_load(seen(apart, where, SPEEDS, 90.0))
    )
    assert isinstance(answer(nearly), Nothing), "as a chain it would do 98"


# The settings of a run with a goal


def test_scale_in_does_not_take_back_instances_that_are_needed() -> None:
    where = cluster(2, cores=4)
    before, more = placed(cluster(1, cores=4), rows=1, work=1, out=1), placed(where, rows=1, work=3, out=1)
    busy = seen(before, cluster(1, cores=4), SPEEDS, 290.0)
    history = (decided(1, busy, AddMachine(where.machines[1]), SetInstances("work", more.of("work"))),)
    held = view(seen(more, where, SPEEDS, 250.0), Goal(throughput=250.0), history=history, settings=Settings())
    found = answer(held)
    assert isinstance(found, Proposal)
    assert machines_fewer(found.plan) == 1
    assert apply(more, found.plan.actions).total("work") == 3
    assert found.reverts == ()


def scaled_out(load: float) -> tuple[View, Placement]:
    """One machine with one instance of each, where two instances of work and one of out came with a second machine; a
    slot takes four instances. They ran as a chain before."""
    one, two = cluster(1, cores=4), cluster(2, cores=4)
    before, more = placed(one, rows=1, work=1, out=1), placed(two, rows=1, work=3, out=2)
    sets = [SetInstances(name, more.of(name)) for name in ("work", "out")]
    history = (decided(1, seen(before, one, SPEEDS, 290.0), AddMachine(two.machines[1]), *sets),)
    settings = Settings(slot_instances=4)
    calm = seen(more, two, SPEEDS, load, cpu=0.01)
    return view(calm, Goal(throughput=290.0), history=history, settings=settings), more


def test_scale_in_keeps_as_many_instances_as_are_needed_where_all_have_no_room() -> None:
    """Without any of them, work would be busy for 86% of its time; all of them do not fit on one machine."""
    calm, more = scaled_out(86.0)
    found = answer(calm)
    assert isinstance(found, Proposal), found
    assert machines_fewer(found.plan) == 1
    left = apply(more, found.plan.actions)
    assert {name: left.total(name) for name in left.instances} == {"rows": 1, "work": 2, "out": 1}
    assert found.reverts == (1,)


def test_what_a_scale_in_kept_goes_when_it_is_idle() -> None:
    calm, more = scaled_out(86.0)
    _, where, history = carried_out(calm, 2)
    left = apply(more, history[-1].proposal.plan.actions)
    settings, later = replace(calm.settings, chaining="on"), 100 * HOUR
    asleep = seen(left, where, SPEEDS, 40.0, cpu=0.01)
    again = view(asleep, Goal(throughput=290.0), history=history, settings=settings, now=later)
    placement, machines = after(again)
    assert machines == where
    assert {name: placement.total(name) for name in placement.instances} == {"rows": 1, "work": 1, "out": 1}


def test_instances_that_a_person_set_are_not_taken_for_what_a_scale_in_kept() -> None:
    calm, _ = scaled_out(40.0)
    where = calm.snapshot.cluster
    one_more = replace(calm, snapshot=seen(placed(where, rows=1, work=4, out=2), where, SPEEDS, 40.0, cpu=0.01))
    placement, _, history = carried_out(one_more, 2)
    assert placement.total("work") == 2
    assert history[-1].proposal.reverts == (1,)
    assert open_steps(history) == []


def test_a_machine_that_came_without_instances_is_taken_back_too() -> None:
    """Instances only moved there: there are none to take back, but the machine is the one that came."""
    one, two = cluster(1), cluster(2)
    before, moved = placed(one, rows=1, work=2, out=1), placed(two, rows=1, work=2, out=1)
    scaled = decided(
        1, seen(before, one, SPEEDS, 200.0), AddMachine(two.machines[1]), SetInstances("work", moved.of("work"))
    )
    calm = view(seen(moved, two, SPEEDS, 40.0, cpu=0.01), Goal(throughput=200.0), history=(scaled,))
    _, where, history = carried_out(calm, 2)
    assert len(where.machines) == 1
    assert history[-1].proposal.reverts == (1,)
    assert open_steps(history) == []


def test_a_proposal_says_what_it_expects() -> None:
    slow = view(seen(placed(ONE, rows=1, work=2, out=1), ONE, SPEEDS, 390.0), Goal(throughput=390.0))
    found = answer(slow)
    assert isinstance(found, Proposal)
    said = {(one.metric, one.subject): one.value for one in found.predictions}
    assert said["machines", ""] == 2
    assert said["throughput", ""] > 200
    assert 0 < said["utilisation", "work"] <= 1
    assert Verdict.PENDING.judged is False


def test_gain_is_handed_the_rates_that_it_has_learned() -> None:
    slow = seen(placed(ONE, rows=1, work=2, out=1), ONE, SPEEDS, 390.0)
    first = answer(view(slow, Goal(throughput=390.0)), "gain")
    assert isinstance(first, Proposal)
    assert first.memory is not None
    done = decided(1, slow, *first.plan.actions, memory=replace(first.memory, rates={"work": 77.0}))
    where = apply_to_cluster(ONE, first.plan.actions)
    after_it = seen(apply(slow.placement, first.plan.actions), where, SPEEDS | {"work": 60.0}, 2000.0)
    again = answer(view(after_it, Goal(throughput=2000.0), history=(done,)), "gain")
    assert isinstance(again, Proposal)
    assert again.memory is not None
    assert again.memory.rates["work"] in (60.0, 77.0)


def test_a_strategy_that_would_take_away_what_is_needed_does_not_get_its_way() -> None:
    where = cluster(2)
    ready = view(seen(placed(where, rows=1, work=4, out=1), where, SPEEDS, 150.0), Goal(throughput=400.0))
    placement, machines = after(ready, "gain")
    assert len(machines.machines) == 1
    assert placement.total("work") * SPEEDS["work"] >= 150


def test_a_strategy_that_would_leave_no_time_to_spare_does_not_get_its_way() -> None:
    """One instance of work would do 100 rows/s: enough for 98, and then every fluctuation is a backlog."""
    where = cluster(2)
    ready = view(seen(placed(where, rows=1, work=4, out=1), where, SPEEDS, 98.0), Goal(throughput=400.0))
    placement, machines = after(ready, "gain")
    assert len(machines.machines) == 1
    assert placement.total("work") * SPEEDS["work"] * 0.85 >= 98


def test_two_machines_that_came_together_go_with_what_came_with_them() -> None:
    """What is left is not halved once more for the second machine."""
    start, three = placed(ONE, rows=1, work=2, out=1), cluster(3)
    high = seen(start, ONE, SPEEDS, 800.0)
    more = placed(three, rows=1, work=6, out=1)
    came = decided(
        1, high, AddMachine(three.machines[1]), AddMachine(three.machines[2]), SetInstances("work", more.of("work"))
    )
    low = view(seen(more, three, SPEEDS, 100.0), Goal(machines_max=1), history=(came,))
    placement, machines = after(low, "gain")
    assert len(machines.machines) == 1
    assert placement.total("work") == 2


def test_machines_that_came_together_go_one_by_one_with_what_came_with_them_and_no_more() -> None:
    """All that came goes with the first machine; with the second one nothing more goes."""
    two, four = cluster(2), cluster(4)
    start, more = placed(two, rows=2, work=4, out=2), placed(four, rows=2, work=10, out=2)
    came = decided(
        1,
        seen(start, two, SPEEDS, 1000.0),
        *(AddMachine(machine) for machine in four.machines[2:]),
        SetInstances("work", more.of("work")),
    )
    placement, where, history = more, four, (came,)
    for number in (2, 3):
        low = view(seen(placement, where, SPEEDS, 50.0, cpu=0.01), Goal(throughput=50.0), history=history)
        placement, where, history = carried_out(low, number, "gain")
    assert len(where.machines) == 2
    totals = {name: placement.total(name) for name in placement.instances}
    assert totals == {"rows": 2, "work": 4, "out": 2}


def test_a_machine_goes_with_as_many_instances_kept_as_there_is_room_for_and_need_of() -> None:
    """All four of work would not fit on the slot that stays; two do, and are busy half of their time."""
    where = cluster(2)
    settings = Settings(slot_instances=4)
    calm = seen(placed(where, rows=1, work=4, out=1), where, SPEEDS, 98.0)
    placement, machines = after(view(calm, Goal(throughput=98.0), settings=settings), "gain")
    assert len(machines.machines) == 1
    assert placement.total("work") == 2


@pytest.mark.parametrize("strategy", ["stela", "gain"])
def test_instances_are_not_taken_back_where_a_chain_would_be_too_slow_as_a_whole(strategy: str) -> None:
    """Taken back, all three would be one chain again, whose first operator would hold the others back. Seen while the
    last rows of a backlog are worked off: a row of the first operator is then more than one of the others, and to those
    fewer rows would come than they can do."""
    one, two = cluster(1, cores=1), cluster(2, cores=1)
    first, second = two.slots
    alone = placed(one, rows=1, work=1, out=1)
    more = Placement({"rows": {first: 1}, "work": {first: 1, second: 2}, "out": {first: 1, second: 1}})
    speeds = SPEEDS | {"work": 250.0}
    came = decided(
        1,
        seen(alone, one, speeds, 600.0, chains=(("rows", "work", "out"),)),
        AddMachine(two.machines[1]),
        SetInstances("work", more.of("work")),
        SetInstances("out", more.of("out")),
    )
    settings = Settings(chaining="on", slot_instances=4)
    busy = seen(more, two, speeds, 600.0, cpu=0.01, waiting=2_000)
    faster = {name: replace(busy.operators[name], rate=740.0, input_rate=740.0) for name in ("work", "out")}
    busy = replace(busy, operators=busy.operators | faster)
    found = answer(view(busy, Goal(throughput=600.0), history=(came,), settings=settings), strategy)
    left = more if isinstance(found, Nothing) else apply(more, found.plan.actions)
    assert left.total("work") == 3, found


def test_gain_leaves_as_many_instances_as_the_user_wants_at_least() -> None:
    where = cluster(2)
    calm = seen(placed(where, rows=1, work=4, out=1), where, SPEEDS, 10.0)
    operators = [replace(one, min_instances=3) if one.name == "work" else one for one in calm.definition.operators]
    wanted = replace(calm, definition=replace(calm.definition, operators=tuple(operators)))
    placement, machines = after(view(wanted, Goal(throughput=10.0)), "gain")
    assert len(machines.machines) == 1
    assert placement.total("work") == 3


def test_a_machine_for_its_cores_comes_with_gain_too() -> None:
    first = ONE.slots[0]
    placement = Placement(
        {"rows": {first: 1}, "work": {first: 1}, "count": {first: 4}, "out": {first: 1}}, {"count": (first,) * TASKS}
    )
    slow = view(seen(placement, ONE, SPEEDS | {"count": 20.0, "work": 900.0}, 500.0), Goal(throughput=500.0))
    found, machines = after(slow, "gain")
    assert len(machines.machines) == 2
    assert sorted(found.of("count").values()) == [2, 2]


def test_what_gain_added_on_request_it_takes_back_on_request() -> None:
    """Without its memory it would take away as many instances as a machine has on average."""
    start = placed(ONE, rows=1, work=2, out=1)
    more = view(seen(start, ONE, SPEEDS, 390.0), request=Grow(1, ""))
    found = answer(more, "gain")
    assert isinstance(found, Proposal)
    assert found.memory is not None
    grown, where = after(more, "gain")
    assert grown.total("work") > 2
    less = view(seen(grown, where, SPEEDS, 90.0), request=Shrink(1, ""), memory=found.memory)
    placement, machines = after(less, "gain")
    assert placement == start
    assert machines == ONE
