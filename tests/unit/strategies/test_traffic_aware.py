"""The scheduler of Xu et al. as a mapping: neighbours come together, and nothing moves if no less would cross."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitor_fakes import DEFINITION

from penstock.cluster.model import Cluster, Placement, Slot
from penstock.monitor.sample import StateSize
from penstock.monitor.snapshot import OperatorOnSlot, OperatorSnapshot, Snapshot, StreamSnapshot
from penstock.strategies.mapping import NoRoom, Wanted, place
from penstock.strategies.mapping.traffic import traffic_of

CLUSTER = Cluster.of(["a", "b"], slots=2, cores=4)
A0, A1, B0, B1 = CLUSTER.slots
#: rows -> work, work -> out, rows -> out.
ENDS = {"rows->work": ("rows", "work"), "work->out": ("work", "out"), "rows->out": ("rows", "out")}


def snapshot(
    placement: Placement,
    rows: Mapping[str, float | None],
    traffic: Mapping[str, float | None] | None = None,
    slots: Mapping[str, Mapping[str, OperatorOnSlot]] | None = None,
    chains: tuple[tuple[str, ...], ...] = (),
) -> Snapshot:
    streams = {
        name: StreamSnapshot(name, one, "out", two, emit_rate=rows[name], rate=rows[name])
        for name, (one, two) in ENDS.items()
    }
    bytes_read = traffic or {}
    operators = {
        name: OperatorSnapshot(
            name, "map", placement.total(name), traffic=bytes_read.get(name), slots=(slots or {}).get(name, {})
        )
        for name in ("rows", "work", "out")
    }
    return Snapshot(DEFINITION, CLUSTER, placement, 0.0, 60.0, 6, operators, streams, {}, {}, {}, chains=chains)


def answered(before: Placement, seen: Snapshot | None, **counts: int) -> Placement:
    wanted = Wanted.as_now(DEFINITION, CLUSTER, before)
    found = place("traffic_aware", replace(wanted, instances={**wanted.instances, **counts}, snapshot=seen))
    assert isinstance(found, Placement)
    return found


APART = Placement({"rows": {A0: 1, B0: 1}, "work": {A1: 1}, "out": {B1: 1}})


def test_those_that_exchange_most_come_together_on_one_slot_a_machine() -> None:
    """rows and out exchange most. Two of four instances may be on a machine."""
    before = Placement({"rows": {A0: 2}, "work": {B0: 1}, "out": {B1: 1}})
    seen = snapshot(before, {"rows->work": 10.0, "work->out": 10.0, "rows->out": 1000.0})
    after = answered(before, seen)
    machines = {name: {slot.machine for slot in after.of(name)} for name in after.instances}
    assert after.of("out") != after.of("work")
    assert machines["out"] < machines["rows"], "one of the two instances of rows is where out is"
    assert max(after.load().values()) == 2
    assert all(len({slot for slot in after.slots if slot.machine == name}) <= 1 for name in CLUSTER.names)


def test_nothing_moves_if_no_less_would_cross() -> None:
    good = Placement({"rows": {A0: 1}, "work": {A0: 1}, "out": {B0: 1}})
    assert answered(good, snapshot(good, {"rows->work": 100.0, "work->out": 1.0, "rows->out": 0.0})) == good
    nothing = snapshot(APART, dict.fromkeys(ENDS, 0.0))
    assert answered(APART, nothing) == APART
    assert answered(APART, snapshot(APART, {**dict.fromkeys(ENDS, 5.0), "rows->out": None})) == APART
    assert answered(APART, None) == APART


@pytest.mark.parametrize(("gain", "moves"), [(0.0, True), (0.3, True), (0.5, True), (0.51, False), (1.0, False)])
def test_what_runs_moves_only_if_so_much_less_crosses(gain: float, moves: bool) -> None:
    """100 rows a second cross from machine to machine, and 50 would."""
    before = Placement({"rows": {A0: 1}, "work": {B0: 1}, "out": {B0: 1}})
    seen = snapshot(before, {"rows->work": 100.0, "work->out": 50.0, "rows->out": 0.0})
    wanted = replace(Wanted.as_now(DEFINITION, CLUSTER, before), snapshot=seen, traffic_gain=gain)
    after = place("traffic_aware", wanted)
    assert isinstance(after, Placement)
    assert (after != before) == moves


def test_if_nothing_crosses_any_more_every_gain_is_reached() -> None:
    before = Placement({"rows": {A0: 1}, "work": {B0: 1}, "out": {A0: 1}})
    apart = snapshot(before, {"rows->work": 100.0, "work->out": 0.0, "rows->out": 0.0})
    wanted = replace(Wanted.as_now(DEFINITION, CLUSTER, before), snapshot=apart, traffic_gain=1.0)
    after = place("traffic_aware", wanted)
    assert isinstance(after, Placement)
    assert {slot.machine for slot in after.of("rows")} == {slot.machine for slot in after.of("work")}


def test_bytes_count_where_they_are_measured() -> None:
    rows = {"rows->work": 100.0, "work->out": 100.0, "rows->out": 300.0}
    seen = snapshot(APART, rows, {"rows": 0.0, "work": 5000.0, "out": 800.0})
    found = traffic_of(seen, APART)
    assert found is not None
    assert found.streams == {
        (("rows",), ("work",)): 5000.0,
        (("work",), ("out",)): pytest.approx(200.0),
        (("rows",), ("out",)): pytest.approx(600.0),
    }
    by_rows = traffic_of(snapshot(APART, rows, {"work": None, "out": 800.0}), APART)
    assert by_rows is not None
    assert sum(by_rows.streams.values()) == 500.0


def test_an_instance_has_its_part_of_the_traffic() -> None:
    slots = {"rows": {"a/0": OperatorOnSlot(1, rate=90.0), "b/0": OperatorOnSlot(1, rate=10.0)}}
    seen = snapshot(APART, dict.fromkeys(ENDS, 100.0), slots=slots)
    found = traffic_of(seen, APART)
    assert found is not None
    assert [one.part for one in found.instances if one.unit == ("rows",)] == pytest.approx([0.9, 0.1])
    parts = {("rows",): {"a": 0.9, "b": 0.1}, ("work",): {"a": 1.0}, ("out",): {"b": 1.0}}
    assert found.crossing(parts) == pytest.approx(10.0 + 100.0 + 90.0)


def test_a_chain_is_placed_as_one() -> None:
    before = Placement({"rows": {A0: 1, B0: 1}, "work": {A0: 1, B0: 1}, "out": {B0: 1}})
    seen = snapshot(before, dict.fromkeys(ENDS, 50.0), chains=(("rows", "work"),))
    found = traffic_of(seen, before)
    assert found is not None
    assert set(found.streams) == {(("rows", "work"), ("out",))}
    after = answered(before, seen)
    assert after.of("rows") == after.of("work")


def test_after_a_scaling_decision_only_what_changed_is_placed() -> None:
    seen = snapshot(APART, {"rows->work": 10.0, "work->out": 10.0, "rows->out": 1000.0})
    after = answered(APART, seen, work=2)
    assert (after.of("rows"), after.of("out")) == (APART.of("rows"), APART.of("out"))
    assert after.total("work") == 2


#: The paper's cluster: five nodes with four cores each, one worker a node.
NODES = Cluster.of(["a", "b", "c", "d", "e"], slots=1, cores=4)


def scaled_out(held: Sequence[int], had: Sequence[int], count: int) -> tuple[Placement, list[int]]:
    """`work` has 20 tasks and gets so many instances: where they go, and the tasks that move. Nodes hold `held` tasks
    and `had` instances of it. Task n has 100 + n bytes of state, and what crosses from node to node is known."""
    work = {slot: number for slot, number in zip(NODES.slots, had, strict=True) if number}
    tasks = tuple(slot for slot, number in zip(NODES.slots, held, strict=True) for _ in range(number))
    before = Placement({"rows": {NODES.slots[0]: 1}, "work": work, "out": {NODES.slots[4]: 1}}, {"work": tasks})
    seen = replace(snapshot(before, {"rows->work": 10.0, "work->out": 10.0, "rows->out": 1000.0}), cluster=NODES)
    state = {task: StateSize(bytes=100 + task) for task in range(20)}
    seen = replace(seen, operators={**seen.operators, "work": replace(seen.operators["work"], state=state)})
    wanted = Wanted.as_now(DEFINITION, NODES, before)
    after = place("traffic_aware", replace(wanted, instances={**wanted.instances, "work": count}, snapshot=seen))
    assert isinstance(after, Placement)
    return after, [task for task, slot in enumerate(after.tasks["work"]) if slot != tasks[task]]


@pytest.mark.parametrize(("had", "count"), [(1, 6), (1, 10), (2, 20), (1, 20)])
def test_a_scale_out_that_splits_instances_where_they_are_moves_no_state(had: int, count: int) -> None:
    """The paper's detector goes 5, 10, 20: 0% of its state moves."""
    after, moved = scaled_out([4] * 5, [had] * 5, count)
    assert (moved, after.total("work")) == ([], count)


@pytest.mark.parametrize(("count", "moves"), [(7, 3), (8, 2), (9, 1)])
def test_a_scale_out_that_does_not_double_moves_what_an_instance_has_above_an_even_deal(count: int, moves: int) -> None:
    """At most three tasks an instance: a slot that stays with one instance gives one of its four tasks away."""
    after, moved = scaled_out([4] * 5, [1] * 5, count)
    assert len(moved) == moves == list(after.of("work").values()).count(1)
    assert all(task % 4 == 0 for task in moved), "each is the smallest task of its slot"
    held = Counter(after.tasks["work"])
    assert max(-(-held[slot] // number) for slot, number in after.of("work").items()) == 3


def test_a_scale_out_moves_tasks_to_idle_cores_where_others_have_none() -> None:
    """All 18 cores that the other operators leave get an instance, also those of a slot with two tasks."""
    after, moved = scaled_out([6, 4, 4, 4, 2], [3, 2, 2, 2, 1], 18)
    assert [after.of("work")[slot] for slot in NODES.slots] == [3, 4, 4, 4, 3]
    assert moved == [0], "the third instance of the last slot has no task otherwise"


def test_at_the_start_one_slot_of_each_machine_is_used() -> None:
    wanted = Wanted(DEFINITION, CLUSTER, {"rows": 1, "work": 2, "out": 1}, {"work": 4})
    found = place("traffic_aware", wanted)
    assert isinstance(found, Placement)
    assert found.slots == {A0, B0}
    assert isinstance(place("traffic_aware", replace(wanted, slot_instances=1)), NoRoom)


rates = st.fixed_dictionaries({name: st.floats(0.0, 1000.0) for name in ENDS})
placements = st.fixed_dictionaries(
    {
        name: st.dictionaries(st.sampled_from(CLUSTER.slots), st.integers(1, 3), min_size=1)
        for name in ("rows", "work", "out")
    }
)


@given(placements, rates)
def test_what_it_moves_reduces_what_crosses_and_it_stays_within_its_bound(
    instances: dict[str, dict[Slot, int]], found: dict[str, float | None]
) -> None:
    before = Placement(instances)
    seen = snapshot(before, found)
    after = answered(before, seen)
    traffic = traffic_of(seen, before)
    assert traffic is not None

    def crossing(placement: Placement) -> float:
        parts: dict[tuple[str, ...], dict[str, float]] = {}
        for name in placement.instances:
            here: dict[str, float] = {}
            for slot, count in placement.of(name).items():
                here[slot.machine] = here.get(slot.machine, 0.0) + count / placement.total(name)
            parts[(name,)] = here
        return traffic.crossing(parts)

    if after != before:
        assert crossing(after) < crossing(before)
        load = after.load()
        assert max(load.values()) <= -(-sum(load.values()) // 2)
