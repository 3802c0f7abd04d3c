"""Operators that can do without an instance give it away, where slots have no room for more."""

from __future__ import annotations

from made_up import cluster, decided, placed, seen, view

from penstock.autoscaler.goals import Goal
from penstock.autoscaler.measured_load import measured_load
from penstock.autoscaler.policy import decide, policy
from penstock.autoscaler.proposals import Proposal
from penstock.autoscaler.rearrangement import Rearranged, Stuck, rearranged
from penstock.cluster.model import Placement
from penstock.plans.plan import SetInstances, apply
from penstock.settings import Settings

SPEEDS = {"rows": 10_000.0, "work": 100.0, "count": 1_000.0, "out": 10_000.0}
#: One slot that takes eight instances, of which most are where they are not needed.
WHERE = cluster(1, cores=8)
FULL = Settings.of({"slot_instances": 8, "chaining": "off"})
IDLE = placed(WHERE, rows=3, work=2, out=3)


def found(offered: float, placement: Placement = IDLE, settings: Settings = FULL) -> Rearranged | Stuck:
    slow = seen(placement, WHERE, SPEEDS, offered)
    return rearranged(slow, measured_load(slow), None, settings)


def test_idle_operators_give_instances_to_the_bottleneck() -> None:
    other = found(390.0)
    assert isinstance(other, Rearranged)
    assert {name: other.placement.total(name) for name in IDLE.instances} == {"rows": 2, "work": 4, "out": 2}
    assert other.expected.throughput == 390.0
    assert dict(other.added) == {"out": -1, "rows": -1, "work": 2}
    assert str(other) == "1 fewer of out, 2 more of work, 1 fewer of rows"


def test_where_there_is_room_nobody_gives_anything() -> None:
    other = found(390.0, settings=Settings.of({"chaining": "off"}))
    assert isinstance(other, Rearranged)
    assert dict(other.added) == {"work": 2}


def test_nobody_gives_what_it_needs_itself() -> None:
    other = found(800.0, placed(WHERE, rows=1, work=6, out=1))
    assert isinstance(other, Stuck)
    assert other.reason == "no slot has idle cores and room for another instance of work"


def test_what_was_given_away_comes_back_when_it_is_not_needed_any_more() -> None:
    other = found(390.0)
    assert isinstance(other, Rearranged)
    actions = [SetInstances(name, other.placement.of(name)) for name in IDLE.instances]
    history = (decided(1, seen(IDLE, WHERE, SPEEDS, 390.0), *actions),)
    calm = view(
        seen(other.placement, WHERE, SPEEDS, 100.0),
        Goal(throughput=390.0),
        history=history,
        now=5 * 3600.0,
        settings=FULL,
    )
    answer = decide("stela", policy("stela"), calm)
    assert isinstance(answer, Proposal)
    assert answer.reverts == (1,)
    assert apply(other.placement, answer.plan.actions) == IDLE
