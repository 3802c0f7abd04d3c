"""The control loop: what a goal asks for, what guards refuse, and what is told of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from monitor_fakes import CLUSTER, DEFINITION, PLACEMENT

from penstock.autoscaler.goals import Goal, Grow, Shrink, Stay, require_machines, rules_for, wish
from penstock.autoscaler.guards import Situation, cooldown, first_veto, not_while_paused, one_at_a_time, quota
from penstock.autoscaler.loop import Controller
from penstock.autoscaler.measured_load import measured_load
from penstock.cluster.model import Cluster
from penstock.errors import PenstockError
from penstock.monitor.events import EventKind
from penstock.monitor.snapshot import Gap, OperatorSnapshot, Snapshot, StreamSnapshot
from penstock.strategies.scaling.rules import PAPER

CALM = Situation(1000.0, None, "", 2)


def snapshot(done: float = 100.0, *gaps: Gap, cpu: float | None = 0.1, machines: Cluster = CLUSTER) -> Snapshot:
    """A source that is offered and emits 100/s; `work` does so many of them, and they reach the sink (weight 3)."""
    operators = {
        "rows": OperatorSnapshot("rows", "source", 1, rate=100.0, input_rate=100.0, cpu_utilisation=cpu),
        "work": OperatorSnapshot("work", "map", 3, rate=done, input_rate=100.0, cpu_utilisation=cpu),
        "out": OperatorSnapshot("out", "sink", 1, rate=done, input_rate=done, utilisation=0.1),
    }
    streams = {
        "rows->work": StreamSnapshot("rows->work", "rows", "out", "work", emit_rate=100.0),
        "work->out": StreamSnapshot("work->out", "work", "out", "out", emit_rate=done),
    }
    return Snapshot(DEFINITION, machines, PLACEMENT, 0.0, 60.0, 6, operators, streams, {}, {}, {}, gaps)


def wished(goal: Goal, found: Snapshot):
    return wish(goal, found, measured_load(found))


# What a goal asks for


def test_a_throughput_that_is_missed_asks_for_a_machine() -> None:
    found = wished(Goal(throughput=300.0), snapshot(done=50.0))
    assert found == Grow(1, "150 rows/s are below the 300 that are required; congested: work")


def test_a_little_below_counts_as_held() -> None:
    assert isinstance(wished(Goal(throughput=300.0), snapshot(done=97.0, cpu=0.9)), Stay)


def test_no_machine_helps_if_the_sources_offer_no_more_and_those_that_idle_go() -> None:
    busy = wished(Goal(throughput=900.0), snapshot(cpu=0.9))
    assert isinstance(busy, Stay)
    assert "the sources offer no more" in busy.reason
    assert isinstance(wished(Goal(throughput=900.0), snapshot(cpu=0.1)), Shrink)


def test_what_may_not_be_lacking_is_not_left_lacking() -> None:
    goal = Goal(throughput=300.0)
    found = snapshot(done=90.0)  # a tenth too little: for the papers' alpha nothing is congested
    assert isinstance(wish(goal, found, measured_load(found), rules_for(goal, PAPER)), Grow)
    assert rules_for(Goal(machines_max=3), PAPER) == PAPER


def test_a_goal_needs_machines() -> None:
    require_machines(None, "local")
    require_machines(Goal(machines_max=3), "standalone")
    with pytest.raises(PenstockError, match="one machine"):
        require_machines(Goal(machines_max=3), "local")


def test_a_throughput_that_is_held_gives_a_machine_back_if_the_others_can_carry_it() -> None:
    goal = Goal(throughput=300.0)
    assert isinstance(wished(goal, snapshot(cpu=0.1)), Shrink)
    busy = wished(goal, snapshot(cpu=0.9))
    assert isinstance(busy, Stay), "3.7 cores are used, and one machine has 4"
    unknown = snapshot(cpu=None)
    assert "not known" in wished(goal, unknown).reason
    alone = Cluster(CLUSTER.machines[:1])
    assert isinstance(wished(goal, snapshot(machines=alone)), Stay)
    assert isinstance(wished(Goal(throughput=100.0), snapshot(done=50.0)), Stay), "operators are congested"


def test_without_a_throughput_machines_are_used_as_long_as_something_is_congested() -> None:
    assert isinstance(wished(Goal(machines_max=4), snapshot(done=50.0)), Grow)
    assert isinstance(wished(Goal(machines_max=4), snapshot()), Stay)
    assert wished(Goal(machines_max=1), snapshot()) == Shrink(1, "2 machines are more than 1")


@pytest.mark.parametrize("wrong", [{}, {"throughput": 0.0}, {"throughput": float("nan")}, {"machines_max": 0}])
def test_goals_that_make_no_sense(wrong: dict[str, float]) -> None:
    with pytest.raises(PenstockError) as error:
        Goal(**wrong)  # type: ignore[arg-type]
    assert error.value.name == "BAD_GOAL"


# Guards


def test_guards_say_why() -> None:
    guards = (one_at_a_time, cooldown(60), quota(Goal(machines_max=2)))
    grow = Grow(1, "")
    assert first_veto(guards, grow, CALM) == "2 machines are there, and 2 are the most"
    assert first_veto(guards, Shrink(1, ""), CALM) == ""
    assert first_veto(guards, grow, replace(CALM, machines=1)) == ""
    assert first_veto(guards, grow, replace(CALM, under_way="scale-in")) == "scale-in is under way"
    assert first_veto(guards, grow, replace(CALM, last_ended=990.0)) == "cooling down for another 50 s"
    assert first_veto(guards, Shrink(1, ""), replace(CALM, last_ended=940.0)) == ""
    assert not_while_paused(grow, CALM) == ""
    assert not_while_paused(grow, replace(CALM, paused=True)) == "the sources are paused"


# The loop


class Hands:
    """Records what it was told and asked."""

    def __init__(self) -> None:
        self.found = snapshot(done=50.0)
        self.now = CALM
        self.asked: list[tuple[str, int]] = []
        self.told: list[tuple[EventKind, str]] = []
        self.refuse: PenstockError | None = None

    def snapshot(self) -> Snapshot:
        return self.found

    def situation(self) -> Situation:
        return self.now

    def scale_out(self, machines: int) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.asked.append(("out", machines))

    def scale_in(self, machines: int) -> None:
        self.asked.append(("in", machines))

    def tell(self, kind: EventKind, reason: str) -> None:
        self.told.append((kind, reason))


@pytest.fixture
def hands() -> Hands:
    return Hands()


def controller(hands: Hands, goal: Goal | None = None) -> Controller:
    guards = (one_at_a_time, cooldown(60))
    return Controller(goal or Goal(throughput=300.0), hands, guards, every=0.01, retry_seconds=100.0)


def test_it_asks_for_what_the_goal_wants_and_says_why(hands: Hands) -> None:
    controller(hands).step()
    assert hands.asked == [("out", 1)]
    [(kind, reason)] = hands.told
    assert kind is EventKind.DECISION
    assert reason.startswith("1 machine more: 150 rows/s are below the 300")


def test_it_gives_machines_back(hands: Hands) -> None:
    hands.found = snapshot()
    controller(hands).step()
    assert hands.asked == [("in", 1)]


def test_a_veto_is_told_once(hands: Hands) -> None:
    loop = controller(hands)
    for second in range(3):
        hands.now = replace(CALM, last_ended=CALM.now - second)
        loop.step()
    assert hands.asked == []
    assert [kind for kind, _ in hands.told] == [EventKind.VETO], "that only the seconds differ is no news"


def test_it_decides_on_nothing_incomplete(hands: Hands) -> None:
    hands.found = snapshot(50.0, Gap("window", "", "it covers 1 of 20 samples", grave=True))
    controller(hands).step()
    assert hands.asked == []
    assert hands.told[0][0] is EventKind.VETO
    assert "INCOMPLETE_SNAPSHOT" in hands.told[0][1]


def test_a_refusal_is_a_veto_and_it_goes_on(hands: Hands) -> None:
    hands.refuse = PenstockError("FIXED_MACHINES", "there are none to be had.", "Choose another cluster.")
    loop = controller(hands)
    loop.step()
    assert hands.told[-1] == (EventKind.VETO, "FIXED_MACHINES: there are none to be had.")
    hands.refuse = None
    hands.now = replace(CALM, now=CALM.now + 99)
    loop.step()
    assert hands.asked == [], "it is not asked for again and again"
    hands.now = replace(CALM, now=CALM.now + 101)
    loop.step()
    assert hands.asked == [("out", 1)]


def test_a_machine_that_was_missed_is_not_given_back_so_soon_again(hands: Hands) -> None:
    loop = controller(hands)
    enough, missing = snapshot(cpu=0.1), snapshot(done=50.0)

    def at(second: float, found: Snapshot) -> list[tuple[str, int]]:
        hands.now, hands.found, hands.asked = replace(CALM, now=CALM.now + second), found, []
        loop.step()
        return hands.asked

    assert at(0, enough) == [("in", 1)]
    assert at(70, missing) == [("out", 1)]
    assert at(140, enough) == []
    assert at(180, enough) == [("in", 1)]
    assert at(250, missing) == [("out", 1)]
    assert at(440, enough) == [], "twice as long"
    assert at(460, enough) == [("in", 1)]


def test_a_mistake_in_one_round_does_not_end_the_rounds(hands: Hands) -> None:
    def broken() -> Snapshot:
        raise KeyError("work")

    hands.snapshot = broken  # type: ignore[method-assign]
    with controller(hands):
        while not hands.told:
            pass
        hands.snapshot = lambda: hands.found  # type: ignore[method-assign]
        while not hands.asked:
            pass
    assert hands.told[0] == (EventKind.FAULT, "the controller could not look: KeyError: 'work'")


def test_it_goes_round_by_itself_until_it_is_left(hands: Hands) -> None:
    hands.found = snapshot(cpu=0.9)
    with controller(hands):
        while not hands.told:
            pass
    [(kind, reason)] = hands.told
    assert kind is EventKind.DECISION
    assert reason.startswith("nothing to change: 300 rows/s are what is required")
