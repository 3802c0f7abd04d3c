"""What must hold for ETP and for every scaling decision, on any graph."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.autoscaler.strategies import STRATEGIES
from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.strategies.decision import Decision, DoesNotFit, NothingToDo
from penstock.strategies.load import Load, OperatorLoad, StreamLoad
from penstock.strategies.mapping.round_robin import deal
from penstock.strategies.mapping.tasks import follow
from penstock.strategies.rules import Rules
from penstock.strategies.stela.congestion import congested
from penstock.strategies.stela.etp import etp, sink_units
from penstock.strategies.stela.projection import PaperProjection
from penstock.strategies.stela.reach import Reach
from penstock.strategies.stela.scale_out import instances_a_machine, scale_out

rates = st.sampled_from([0.0, 1.0, 50.0, 100.0, 100.0, 130.0, 1000.0])


@st.composite
def loads(draw, most: int = 12) -> Load:
    count = draw(st.integers(1, most))
    names = [f"o{index}" for index in range(count)]
    # Long files, wide fans and dense graphs all come up: the chance of a stream depends on how far it leads.
    reach = draw(st.integers(1, count))
    pairs = [(one, other) for one in range(count) for other in range(one + 1, min(count, one + reach + 1))]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    fed = {other for _, other in edges}
    operators = tuple(
        OperatorLoad(
            name,
            draw(rates),
            external=None if place in fed else draw(st.none() | rates),
            weight=draw(st.sampled_from([1.0, 1.0, 0.0, 2.5])),
            most_instances=draw(st.sampled_from([None, None, None, 4])),
        )
        for place, name in enumerate(names)
    )
    streams = tuple(StreamLoad(names[one], names[other], draw(rates)) for one, other in edges)
    return Load(operators, streams)


def found_sinks(load: Load, shut: list[bool], place: int) -> set[int]:
    """The paper's definition, word by word: a search from one operator."""
    if not load.children[place]:
        return {place}
    return set().union(*(found_sinks(load, shut, child) for child in load.children[place] if not shut[child]))


def naive_etp(load: Load, shut: list[bool]) -> list[float]:
    throughput = [operator.weight * operator.processing for operator in load.operators]
    if not load.throughput:
        return [0.0] * len(load.operators)
    return [
        sum(throughput[sink] for sink in found_sinks(load, shut, place)) / load.throughput
        for place in range(len(load.operators))
    ]


@given(loads())
def test_etp_is_the_definition_s_and_within_0_and_1(load: Load) -> None:
    shut = list(congested(load))
    values = etp(load, shut)
    assert all(0 <= value <= 1 for value in values)
    assert list(values) == pytest.approx(naive_etp(load, shut), abs=1e-9)


@given(loads(), st.data())
def test_an_uncongested_path_more_never_lowers_etp(load: Load, data) -> None:
    shut = list(congested(load))
    inner = [place for place in range(len(load.operators)) if load.children[place]]
    ends = [(one, other) for one in inner for other in range(one + 1, len(shut)) if not shut[other]]
    if not ends:
        return
    one, other = data.draw(st.sampled_from(ends))
    # A stream without rows: nothing gets congested by it, it is only a path. A source with an external rate stays one.
    if load.operators[other].external is not None:
        return
    stream = StreamLoad(load.operators[one].name, load.operators[other].name, 0.0)
    more = etp(Load(load.operators, (*load.streams, stream)), shut)
    assert all(after >= before - 1e-9 for before, after in zip(etp(load, shut), more, strict=True))


@given(loads(most=24), st.data())
def test_incremental_etp_is_that_of_a_search(load: Load, data) -> None:
    places = range(len(load.operators))
    shut = np.array(congested(load))
    units = dict(zip(load.sinks, sink_units(load).tolist(), strict=True))
    reach = Reach(load, shut, sink_units(load))
    for _ in range(data.draw(st.integers(1, 6))):
        flipped = data.draw(st.lists(st.sampled_from(places), unique=True, max_size=4))
        shut[flipped] = ~shut[flipped]
        reach.changed(flipped)
        sink = data.draw(st.sampled_from(load.sinks))
        units[sink] = float(data.draw(st.integers(0, 5)))
        reach.faster(sink, units[sink])
        asked = data.draw(st.lists(st.sampled_from(places), unique=True))
        expected = [sum(units[one] for one in found_sinks(load, shut.tolist(), place)) for place in asked]
        assert reach.values(np.array(asked, dtype=np.intp)).tolist() == expected
        assert reach.total() == sum(units.values())


@pytest.mark.parametrize("children", [17, 300])
def test_many_children_are_looked_at_through_helpers(children: int) -> None:
    middle = [OperatorLoad(f"m{index}", 100.0) for index in range(children)]
    sinks = [OperatorLoad(f"t{index}", float(index)) for index in range(children)]
    out = [StreamLoad("s", one.name, 100.0) for one in middle]
    in_ = [StreamLoad(f"m{index}", f"t{index}", float(index)) for index in range(children)]
    load = Load((OperatorLoad("s", 100.0), *middle, *sinks), (*out, *in_))
    shut = np.array(congested(load))
    reach = Reach(load, shut, sink_units(load))
    for place in (1, children, children // 2):
        shut[place] = ~shut[place]
        reach.changed([place])
        assert reach.values(np.array([0]))[0] / reach.total() == pytest.approx(naive_etp(load, shut.tolist())[0])


@given(loads(), st.lists(st.integers(0, 11), min_size=1, max_size=30))
def test_the_projection_is_the_load_that_it_projects(load: Load, gives: list[int]) -> None:
    """Instance by instance: ETP, ratios and congestion are those of the projected rates, looked at afresh."""
    projection = PaperProjection(load, [2] * len(load.operators), Rules())
    for give in gives:
        place = give % len(load.operators)
        before = projection.load()
        projection.give(place)
        now = projection.load()
        count = projection.instances[place]
        assert now.operators[place].processing == pytest.approx(
            before.operators[place].processing * count / (count - 1)
        )
        known = [
            one for one in range(len(load.operators)) if load.parents[one] or now.operators[one].external is not None
        ]
        assert projection.input[known].tolist() == pytest.approx([now.inputs[one] for one in known])
        values = [projection.etp(place) for place in range(len(load.operators))]
        assert values == pytest.approx(naive_etp(now, projection.congested.tolist()), abs=1e-8)


# Decisions.


@st.composite
def situations(draw) -> tuple[Load, Placement, Cluster]:
    load = draw(loads(most=8))
    cluster = Cluster.of([f"m{index}" for index in range(draw(st.integers(1, 4)))], draw(st.integers(1, 3)))
    instances = {one.name: draw(st.integers(1, 4)) for one in load.operators}
    keyed = draw(st.lists(st.sampled_from(list(instances)), unique=True))
    tasks = {name: draw(st.integers(instances[name], 9)) for name in keyed}
    return load, deal(instances, tasks, cluster), cluster


def new_machines(count: int, slots: int) -> list[Machine]:
    names = [f"new{index}" for index in range(count)]
    return [Machine(name, tuple(Slot(name, index) for index in range(slots))) for name in names]


def on_slots(placement: Placement) -> Counter[Slot]:
    found: Counter[Slot] = Counter()
    for slots in placement.instances.values():
        found.update(slots)
    return found


def check_placed(before: Placement, after: Placement, slots: tuple[Slot, ...], capacity: int | None) -> None:
    """Every instance at least once, every task once, where its operator has instances; no slot past its capacity."""
    assert set(after.instances) == set(before.instances)
    assert all(placed and min(placed.values()) > 0 for placed in after.instances.values())
    assert set(on_slots(after)) <= set(slots)
    assert capacity is None or max(on_slots(after).values()) <= capacity
    for name, tasks in after.tasks.items():
        assert len(tasks) == len(before.tasks[name]) >= after.total(name)
        assert set(tasks) == set(after.of(name))


@given(situations(), st.integers(1, 3), st.integers(1, 3), st.none() | st.integers(1, 12))
def test_stela_adds_exactly_its_instances_and_moves_nothing(situation, count: int, slots: int, capacity) -> None:
    load, before, cluster = situation
    machines = new_machines(count, slots)
    outcome = scale_out(load, before, cluster, machines, Rules(slot_capacity=capacity))
    wanted = instances_a_machine(before, cluster)
    if isinstance(outcome, DoesNotFit):
        assert capacity is not None and capacity * slots < wanted
        return
    bounded = any(one.most_instances is not None for one in load.operators) or before.tasks
    if isinstance(outcome, NothingToDo):
        assert bounded
        return
    after = outcome.placement
    added = sum(on_slots(after).values()) - sum(on_slots(before).values())
    assert added == len(outcome.steps) <= wanted * count
    assert added == wanted * count or bounded
    new = {slot for machine in machines for slot in machine.slots}
    for name, slots_ in before.instances.items():
        assert {slot: number for slot, number in after.of(name).items() if slot not in new} == dict(slots_)
    for name, tasks in before.tasks.items():
        moved = [now for was, now in zip(tasks, after.tasks[name], strict=True) if was != now]
        assert set(moved) <= new
        if after.of(name) == before.of(name):
            assert not moved
    a_machine = Counter(step.to.machine for step in outcome.steps)
    assert max(a_machine.values()) - min(a_machine.get(machine.name, 0) for machine in machines) <= 1
    check_old = None if capacity is None else max(capacity, *on_slots(before).values())
    check_placed(before, after, (*cluster.slots, *new), check_old)
    assert capacity is None or all(on_slots(after)[slot] <= capacity for slot in new)


@given(st.sampled_from(sorted(STRATEGIES)), situations(), st.integers(1, 3), st.none() | st.integers(1, 12))
def test_scale_in_leaves_everything_placed_on_what_stays(name: str, situation, count: int, capacity) -> None:
    load, before, cluster = situation
    if capacity is not None:
        capacity = max(capacity, *on_slots(before).values())
    outcome = STRATEGIES[name].scale_in(load, before, cluster, count, Rules(slot_capacity=capacity))
    if not isinstance(outcome, Decision):
        assert isinstance(outcome, DoesNotFit) and outcome.missing > 0
        assert capacity is not None or count >= len(cluster.machines)
        return
    assert len(outcome.removed) == count
    left = tuple(slot for slot in cluster.slots if slot.machine not in outcome.removed)
    check_placed(before, outcome.placement, left, capacity)
    if name != "gain":  # which also takes instances away
        assert all(outcome.placement.total(one) == before.total(one) for one in before.instances)


@given(st.sampled_from(sorted(set(STRATEGIES) - {"gain", "stela", "stela_capacity"})), situations(), st.integers(1, 3))
def test_baselines_move_and_never_add(name: str, situation, count: int) -> None:
    load, before, cluster = situation
    machines = new_machines(count, 2)
    outcome = STRATEGIES[name].scale_out(load, before, cluster, machines)
    if isinstance(outcome, NothingToDo):
        return
    assert isinstance(outcome, Decision)
    check_placed(before, outcome.placement, (*cluster.slots, *(s for one in machines for s in one.slots)), None)
    assert all(outcome.placement.total(one) == before.total(one) for one in before.instances)


spread = st.dictionaries(st.sampled_from(Cluster.of(["a", "b", "c"], 2).slots), st.integers(1, 4), min_size=1)


@given(spread, spread, st.integers(0, 20))
def test_every_task_follows_once(before: dict, after: dict, more: int) -> None:
    count = max(sum(before.values()), sum(after.values())) + more
    tasks = deal({"k": sum(before.values())}, {"k": count}, Cluster.of(["a", "b", "c"], 2)).tasks["k"]
    old = Counter(tasks)
    now = follow(tasks, dict(old), after)
    assert len(now) == count
    assert set(now) <= set(after)
    dealt = Counter(now)
    for slot, instances in after.items():
        if instances > old.get(slot, 0):
            assert dealt[slot] >= count * instances // sum(after.values())
