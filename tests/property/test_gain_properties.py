"""What must hold for every decision of `gain`, and how near it comes to the best assignment."""

from __future__ import annotations

import random
import statistics
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_stela_properties import check_placed, new_machines, on_slots, situations

from penstock.cluster.model import Placement
from penstock.strategies.decision import Decision, NothingToDo
from penstock.strategies.draft import most_instances
from penstock.strategies.gain.allocation import allocate
from penstock.strategies.gain.rates import calibrated, counts, learned
from penstock.strategies.gain.scale_in import scale_in
from penstock.strategies.gain.scale_out import scale_out
from penstock.strategies.memory import EMPTY
from penstock.strategies.rules import Rules
from penstock.strategies.stela.scale_out import instances_a_machine

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from stela_fluid import TOPOLOGIES, one_draw


def within_bounds(load, before: Placement, after: Placement) -> None:
    for one, most in zip(load.operators, most_instances(load, before), strict=True):
        assert after.total(one.name) <= max(most, before.total(one.name))


@given(situations(), st.integers(1, 3), st.integers(1, 3), st.none() | st.integers(1, 12))
def test_a_scale_out_adds_only_what_brings_something(situation, count: int, slots: int, capacity) -> None:
    load, before, cluster = situation
    machines = new_machines(count, slots)
    answer = scale_out(load, before, cluster, machines, Rules(slot_capacity=capacity))
    wanted = instances_a_machine(before, cluster)
    if not isinstance(answer, Decision):
        assert isinstance(answer, NothingToDo) or (capacity is not None and capacity * slots < wanted)
        return
    after = answer.placement
    new = {slot for machine in machines for slot in machine.slots}
    assert sum(on_slots(after).values()) - sum(on_slots(before).values()) <= wanted * count
    for name, placed in before.instances.items():
        assert {slot: number for slot, number in after.of(name).items() if slot not in new} == dict(placed)
    within_bounds(load, before, after)
    check_placed(before, after, (*cluster.slots, *new), None)
    assert capacity is None or all(on_slots(after)[slot] <= capacity for slot in new)
    assert answer.memory is not None and answer.projected is not None
    pipes = calibrated(load, before, learned(load, before, EMPTY))
    assert answer.projected.throughput > allocate(pipes, counts(load, before), 0, [99] * 12).throughput


@given(situations(), st.none() | st.integers(1, 12))
def test_what_came_with_a_machine_goes_with_it(situation, capacity) -> None:
    """Grow and shrink again: as many instances as before, and nothing is left to remember."""
    load, before, cluster = situation
    machines = new_machines(1, 2)
    grown = scale_out(load, before, cluster, machines, Rules(slot_capacity=capacity))
    if not isinstance(grown, Decision):
        return
    assert grown.memory is not None
    back = scale_in(load, grown.placement, cluster.plus(machines), 1, memory=grown.memory)
    assert isinstance(back, Decision) and back.memory is not None
    assert sum(on_slots(back.placement).values()) == sum(on_slots(before).values())
    assert back.memory.added == ()


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_it_comes_near_to_the_best_assignment(name: str) -> None:
    """Some of the draws of benchmarks/stela_fluid.py, which makes 200."""
    found = [one_draw(name, random.Random(seed), ("gain", "stela")) for seed in range(40)]
    gain = [one["gain"] for one in found]
    assert statistics.mean(gain) >= 0.998
    assert min(gain) >= 0.93
    assert statistics.mean(gain) >= statistics.mean(one["stela"] for one in found)
