"""The control loop: what a goal asks for, what guards refuse, and what is told of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from monitor_fakes import CLUSTER, DEFINITION, PLACEMENT

from penstock.autoscaler.balance import balance_of
from penstock.autoscaler.goals import Goal, Grow, Shrink, Stay, rules_for, wish
from penstock.autoscaler.guards import Cooldown, Quota, guards_for, not_while_paused, one_at_a_time, reviewed
from penstock.autoscaler.lessons import Failures, Regret
from penstock.autoscaler.loop import Controller
from penstock.autoscaler.measured_load import measured_load
from penstock.autoscaler.policy import Decided, Fate, View, policy, view_of
from penstock.autoscaler.proposals import Proposal
from penstock.autoscaler.records import Record, Verdict
from penstock.cluster.model import Cluster, ComingMachines
from penstock.errors import PenstockError
from penstock.monitor.events import EventKind
from penstock.monitor.snapshot import Backlog, Gap, OperatorSnapshot, Snapshot, StreamSnapshot
from penstock.plans.plan import AddMachine, Plan, RemoveMachine
from penstock.settings import Settings
from penstock.strategies.rules import PAPER


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


#: The same machines with half of the cores.
SMALL = Cluster.of(["a", "b"], 2, cores=1)


def crowded(done: float = 50.0) -> Snapshot:
    """No core is idle, so only machines can help."""
    found = snapshot(done, cpu=1.0, machines=SMALL)
    return replace(found, operators={**found.operators, "out": replace(found.operators["out"], utilisation=1.0)})


def wished(goal: Goal, found: Snapshot):
    return wish(goal, found, measured_load(found))


# What a goal asks for


def test_a_throughput_that_is_missed_asks_for_a_machine() -> None:
    found = wished(Goal(throughput=300.0), snapshot(done=50.0))
    assert found == Grow(
        1, "the throughput of 150 rows/s is below the goal of 300; these operators are congested: work"
    )


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
    assert isinstance(wish(goal, found, measured_load(found), rules_for(PAPER, balance_of(found))), Grow)
    most = Goal(machines_max=3)
    assert isinstance(wish(most, found, measured_load(found), rules_for(PAPER, balance_of(found))), Grow), (
        "the backlog would only grow"
    )
    assert isinstance(wish(most, found, measured_load(found), PAPER), Stay), "with the papers' alpha it would not grow"


@pytest.mark.parametrize("goal", [Goal(throughput=300.0), Goal(machines_max=3)])
def test_a_small_lack_is_answered_once_minutes_of_rows_wait_and_become_more(goal: Goal) -> None:
    def wished_with(rows: int, growth: float):
        found = snapshot(done=96.0, cpu=0.9)
        behind = replace(found.operators["work"], backlog=Backlog(rows, rows * 8, rows / 96.0, growth))
        found = replace(found, operators=found.operators | {"work": behind})
        return wish(goal, found, measured_load(found), rules_for(PAPER, balance_of(found)))

    assert isinstance(wished_with(96 * 60, 4.0), Stay), "a minute may be a fluctuation"
    assert isinstance(wished_with(96 * 400, 4.0), Grow)
    assert isinstance(wished_with(96 * 400, -40.0), Stay), "it will be gone in a quarter of an hour"


def test_a_throughput_that_is_held_gives_a_machine_back_if_the_others_can_carry_it() -> None:
    goal = Goal(throughput=300.0)
    assert isinstance(wished(goal, snapshot(cpu=0.1)), Shrink)
    busy = wished(goal, snapshot(cpu=0.9))
    assert isinstance(busy, Stay), "3.7 cores are used, and one machine has 4"
    unknown = snapshot(cpu=None)
    assert "does not know" in wished(goal, unknown).reason
    alone = Cluster(CLUSTER.machines[:1])
    assert isinstance(wished(goal, snapshot(machines=alone)), Stay)
    assert isinstance(wished(Goal(throughput=100.0), snapshot(done=50.0)), Stay), "operators are congested"


def test_without_a_throughput_machines_are_used_as_long_as_something_is_congested() -> None:
    assert isinstance(wished(Goal(machines_max=4), snapshot(done=50.0)), Grow)
    assert isinstance(wished(Goal(machines_max=4), snapshot()), Stay)
    assert wished(Goal(machines_max=1), snapshot()) == Shrink(
        1, "the topology has 2 machines, more than the 1 that the goal allows"
    )


@pytest.mark.parametrize("wrong", [{}, {"throughput": 0.0}, {"throughput": float("nan")}, {"machines_max": 0}])
def test_goals_that_make_no_sense(wrong: dict[str, float]) -> None:
    with pytest.raises(PenstockError) as error:
        Goal(**wrong)  # type: ignore[arg-type]
    assert error.value.name == "BAD_GOAL"


# Guards


COMING = ComingMachines.only(Cluster.of(["c", "d", "e"], 2, cores=2).machines)
MORE = Proposal(Plan((AddMachine(COMING.machines[0]),)))
FEWER = Proposal(Plan((RemoveMachine("a"),)))


def calm() -> View:
    return replace(view_of(replace(snapshot(done=50.0), coming=COMING), Settings()), now=1000.0)


def test_guards_say_why() -> None:
    view = calm()
    guards = (one_at_a_time, Cooldown(60), Quota(2))
    assert reviewed(guards, MORE, view).veto == "the topology has 2 machines, and the goal allows 2"
    assert reviewed(guards, FEWER, view).veto == ""
    assert reviewed((Quota(3), Quota(None)), MORE, view).veto == ""
    assert reviewed(guards, FEWER, replace(view, under_way="scale-in")).veto == "the operation scale-in is under way"
    assert (
        reviewed(guards, FEWER, replace(view, last_ended=990.0)).veto
        == "the last operation ended a moment ago; the next one may begin in 50 s"
    )
    assert reviewed(guards, FEWER, replace(view, last_ended=940.0)).veto == ""
    assert not_while_paused(MORE, view) == ""
    assert not_while_paused(MORE, replace(view, paused=True)) == "the sources are paused"


def test_guards_know_what_was_decided_before() -> None:
    refused = Decided(950.0, MORE, Fate.REFUSED)
    view = replace(calm(), history=(refused,))
    assert Failures(60)(MORE, view) == "the last proposal was refused; the next one may begin in 10 s"
    assert Failures(40)(MORE, view) == ""
    missed = replace(view, history=(Decided(900.0, FEWER, Fate.DONE), Decided(950.0, MORE, Fate.DONE)))
    assert Regret(60)(FEWER, missed)
    assert Regret(60)(MORE, missed) == ""
    assert Regret(60)(FEWER, replace(missed, history=(Decided(900.0, FEWER, Fate.DONE), refused))) == ""


def test_the_guards_can_be_read() -> None:
    names = [getattr(guard, "__name__", repr(guard)) for guard in guards_for(Goal(machines_max=3), Settings())]
    assert names == [
        "Patience(windows=1.25)",
        "not_while_paused",
        "one_at_a_time",
        "Freeze(windows=())",
        "Cooldown(seconds=120.0)",
        "not_judged_yet",
        "Quota(machines_max=3)",
        "Budget(changes=12)",
        "Failures(seconds=120.0)",
        "Harmful()",
        "Capped()",
        "Regret(seconds=120.0)",
    ]


# The loop


class Hands:
    """Records what it was told and asked."""

    def __init__(self) -> None:
        self.found = crowded()
        self.goal = Goal(throughput=300.0)
        self.now = 1000.0
        self.last_ended: float | None = None
        self.asked: list[tuple[str, int]] = []
        self.proposals: list[Proposal] = []
        self.told: list[tuple[EventKind, str]] = []
        self.refuse: PenstockError | None = None
        self.looks = 0
        self.histories: list[tuple[Decided, ...]] = []
        self.fates: dict[int, tuple[Fate, str]] = {}
        self.kept: list[Record] = []

    def snapshot(self) -> Snapshot:
        return self.found

    def look(self, history: tuple[Decided, ...]) -> View:
        self.looks += 1
        self.histories.append(history)
        seen = view_of(replace(self.snapshot(), coming=COMING), Settings())
        return replace(seen, goal=self.goal, history=history, now=self.now, last_ended=self.last_ended)

    def carry_out(self, proposal: Proposal) -> int:
        if self.refuse is not None:
            raise self.refuse
        kinds = [type(action) for action in proposal.plan.actions]
        if AddMachine in kinds:
            self.asked.append(("out", kinds.count(AddMachine)))
        else:
            self.asked.append(("in", kinds.count(RemoveMachine)))
        self.proposals.append(proposal)
        return len(self.proposals)

    def fate(self, operation: int) -> tuple[Fate, str]:
        return self.fates.get(operation, (Fate.DONE, ""))

    def keep(self, record: Record) -> Record:
        self.kept.append(record)
        return record

    def tell(self, kind: EventKind, reason: str) -> None:
        self.told.append((kind, reason))


@pytest.fixture
def hands() -> Hands:
    return Hands()


def controller(hands: Hands) -> Controller:
    guards = (one_at_a_time, Cooldown(60), Failures(100.0), Regret(100.0))
    return Controller("stela", policy("stela"), hands, guards, every=0.01)


def test_it_asks_for_what_the_goal_wants_and_says_why(hands: Hands) -> None:
    controller(hands).step()
    assert hands.asked == [("out", 2)], "as many as the work needs, but never more than there are"
    [(kind, reason)] = hands.told
    assert kind is EventKind.DECISION
    assert reason.startswith("2 machines more: the throughput of 150 rows/s is below the goal of 300")


def test_one_decision_is_made_on_one_look(hands: Hands) -> None:
    controller(hands).step()
    assert hands.looks == 1
    [proposal] = hands.proposals
    assert proposal.before == PLACEMENT
    assert proposal.strategy == "stela"


def test_it_gives_machines_back(hands: Hands) -> None:
    hands.found = snapshot()
    controller(hands).step()
    assert hands.asked == [("in", 1)]


def test_the_policy_sees_what_became_of_its_decisions(hands: Hands) -> None:
    loop = controller(hands)
    hands.fates[1] = (Fate.RUNNING, "")
    loop.step()
    hands.last_ended = hands.now  # so that nothing more is asked for
    loop.step()
    hands.fates[1] = (Fate.ROLLED_BACK, "NOT_OBSERVED: it was not seen in time.")
    loop.step()
    loop.step()
    assert [[one.fate for one in seen] for seen in hands.histories] == [
        [],
        [Fate.RUNNING],
        [Fate.ROLLED_BACK],
        [Fate.ROLLED_BACK],
    ]
    [decided] = hands.histories[-1]
    assert (decided.at, decided.operation) == (1000.0, 1)
    assert decided.reason.startswith("NOT_OBSERVED")


def test_a_guard_of_one_s_own(hands: Hands) -> None:
    loop = controller(hands)
    loop.guards.append(lambda proposal, view: "it is night")
    loop.step()
    assert hands.asked == []
    assert hands.told == [(EventKind.VETO, "2 machines more is not done now: it is night")]


def test_a_veto_is_told_once(hands: Hands) -> None:
    loop = controller(hands)
    for second in range(3):
        hands.last_ended = hands.now - second
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
    hands.now += 99
    loop.step()
    assert hands.asked == [], "it is not asked for again and again"
    hands.now += 2
    loop.step()
    assert hands.asked == [("out", 2)]


def test_a_machine_that_was_missed_is_kept_while_the_load_is_the_same(hands: Hands) -> None:
    loop = controller(hands)
    enough, missing = snapshot(cpu=0.1), crowded()

    def at(second: float, found: Snapshot) -> list[str]:
        hands.now, hands.found, hands.asked = 1000.0 + second, found, []
        loop.step()
        return [kind for kind, _ in hands.asked]

    assert at(0, enough) == ["in"]
    assert at(70, missing) == ["out"]
    assert at(140, enough) == []
    assert at(50_000, enough) == [], "the same load would miss it again"
    assert at(100_000, enough) == ["in"], "a day later that is forgotten"


def test_an_operation_that_fails_in_the_queue_is_noticed(hands: Hands) -> None:
    loop = controller(hands)
    loop.step()
    hands.fates[1] = (Fate.ROLLED_BACK, "CLUSTER_FAILED: it died")
    hands.now += 10
    loop.step()
    assert hands.asked == [("out", 2)], "it is not asked for again at once"
    notice = (
        EventKind.NOTICE,
        "operation 1 (2 machines more) was not carried out; rolled back: CLUSTER_FAILED: it died",
    )
    assert hands.told.count(notice) == 1
    assert hands.kept[-1].verdict is Verdict.NOT_APPLIED


def test_a_mistake_in_one_round_does_not_end_the_rounds(hands: Hands, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Snapshot:
        raise KeyError("work")

    hands.snapshot = broken  # type: ignore[method-assign]
    with controller(hands):
        while not hands.told:
            pass
        hands.snapshot = lambda: hands.found  # type: ignore[method-assign]
        while not hands.asked:
            pass
    assert any(record.exc_info for record in caplog.records)
    assert hands.told[0] == (EventKind.FAULT, "a round of the controller failed: KeyError: 'work'")


def test_it_goes_round_by_itself_until_it_is_left(hands: Hands) -> None:
    hands.found = snapshot(cpu=0.9)
    with controller(hands):
        while not hands.told:
            pass
    [(kind, reason)] = hands.told
    assert kind is EventKind.DECISION
    assert reason.startswith("nothing to change: the throughput of 300 rows/s reaches the goal")
