"""What a controller learns from its earlier decisions, and guards of the user's own."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from made_up import TASKS, cluster, decided, placed, seen, view

from penstock.autoscaler.goals import Goal
from penstock.autoscaler.guards import Budget, Cooldown, Freeze, reviewed
from penstock.autoscaler.lessons import DAY, HOUR, Capped, Failures, Harmful, Patience, Regret, not_judged_yet
from penstock.autoscaler.policy import Decided, Fate, View
from penstock.autoscaler.proposals import Proposal
from penstock.autoscaler.records import Verdict
from penstock.errors import PenstockError
from penstock.freeze import freeze_windows
from penstock.plans.plan import AddMachine, Plan, RemoveMachine

SPEEDS = {"rows": 10_000.0, "work": 900.0, "count": 20.0, "out": 10_000.0}
TWO, THREE = cluster(2), cluster(3)
FULL = placed(TWO, rows=1, work=1, count=TASKS, out=1)
SLOW, LESS = seen(FULL, TWO, SPEEDS, 500.0), seen(FULL, TWO, SPEEDS, 300.0)
GOAL = Goal(throughput=500.0)
MORE = Proposal(Plan((AddMachine(THREE.machines[2]),)), before=FULL)
FEWER = Proposal(Plan((RemoveMachine("m2"),)), before=FULL)
UNDO = replace(FEWER, undo=True)


def out(number: int, at: float, verdict: Verdict = Verdict.AS_EXPECTED) -> Decided:
    return decided(number, SLOW, AddMachine(THREE.machines[2]), at=at, verdict=verdict, measured=SLOW)


def in_(number: int, at: float) -> Decided:
    return decided(number, SLOW, RemoveMachine("m2"), at=at, measured=SLOW)


def now(at: float, *history: Decided, snapshot=SLOW) -> View:
    return view(snapshot, GOAL, history=history, now=at)


# No effect


def test_two_machines_without_effect_are_enough_until_the_load_changes() -> None:
    twice = (out(1, 0.0, Verdict.NONE), out(2, 500.0, Verdict.NONE))
    text = Capped()(MORE, now(1000.0, *twice))
    assert text.startswith("operations 1 and 2 brought nothing, and the load is the same; count has 4 tasks and 4")
    assert text.endswith("penstock repartition count 8")
    assert Capped()(FEWER, now(1000.0, *twice)) == ""
    assert Capped()(MORE, now(1000.0, *twice, snapshot=LESS)) == ""
    assert Capped()(MORE, now(1000.0, twice[0])) == ""
    assert Capped()(MORE, now(1000.0, twice[0], out(2, 500.0))) == "", "the second one helped"
    unclear = out(2, 200.0, Verdict.UNCLEAR)
    assert Capped()(MORE, now(1000.0, twice[0], unclear, twice[1])), "one that nobody could judge is no sign of effect"


def test_what_was_harmful_is_not_done_again_at_the_same_load() -> None:
    once = out(1, 0.0, Verdict.HARMFUL)
    assert "operation 1 of this kind was harmful" in Harmful()(MORE, now(1000.0, once))
    assert Harmful()(FEWER, now(1000.0, once)) == ""
    assert Harmful()(MORE, now(1000.0, once, snapshot=LESS)) == ""
    assert Harmful()(MORE, now(DAY + 1, once)) == ""


def test_the_effect_of_one_change_is_measured_before_the_next() -> None:
    pending = out(1, 0.0, Verdict.PENDING)
    assert not_judged_yet(MORE, now(1.0, pending)) == "what operation 1 brought is not measured yet"
    assert not_judged_yet(UNDO, now(1.0, pending)) == ""
    assert not_judged_yet(MORE, now(1.0, out(1, 0.0))) == ""


def test_a_change_is_made_only_if_it_is_wanted_for_longer_than_a_window() -> None:
    guard, burst = Patience(1.25), view(SLOW, GOAL, now=1000.0, wanted_since=900.0)
    assert guard(MORE, burst) == "it is wanted for 100 s only; 150 s more are waited for"
    assert guard(MORE, replace(burst, wanted_since=750.0)) == ""
    assert guard(UNDO, burst) == ""


# What was learned before a restart


LEARNED = "(known from before the restart: if you have removed the cause, start with --forget-decisions)"


def before_the_restart(*history: Decided) -> tuple[Decided, ...]:
    return tuple(replace(one, recalled=True) for one in history)


def test_a_veto_that_was_learned_before_a_restart_says_so_and_names_the_way_out() -> None:
    old, new = out(1, 0.0, Verdict.NONE), out(2, 500.0, Verdict.NONE)
    [old] = before_the_restart(old)
    text = Capped()(MORE, now(1000.0, old, new))
    assert f"operations 1 and 2 brought nothing, and the load is the same {LEARNED}; count has" in text
    assert LEARNED not in Capped()(MORE, now(1000.0, new, out(3, 600.0, Verdict.NONE)))
    harmful = out(1, 0.0, Verdict.HARMFUL)
    assert Harmful()(MORE, now(1000.0, *before_the_restart(harmful))).endswith(f"the load is the same {LEARNED}")
    assert Harmful()(MORE, now(1000.0, old, harmful)).endswith("the load is the same"), "it was learned since"
    failed = replace(out(1, 0.0), fate=Fate.ROLLED_BACK, ended=30.0)
    assert Failures(60)(MORE, now(80.0, *before_the_restart(failed))).endswith(f"in 10 s {LEARNED}")
    removed = in_(1, 0.0), out(2, 60.0)
    same_load = Regret(120)(FEWER, now(70.0, *before_the_restart(*removed)))
    assert same_load.endswith(f"at this load {LEARNED}")
    other_load = Regret(120)(FEWER, now(70.0, *before_the_restart(*removed), snapshot=LESS))
    assert other_load.endswith(f"the last time {LEARNED}")


# Failures


def test_failures_in_the_queue_wait_longer_each_time() -> None:
    def failed(number: int, at: float, fate: Fate = Fate.ROLLED_BACK) -> Decided:
        return replace(out(number, at), fate=fate, ended=at + 30)

    once, guard = failed(1, 0.0), Failures(60)
    assert guard(MORE, now(80.0, once)) == "the last proposal was rolled back; the next one may begin in 10 s"
    assert guard(MORE, now(91.0, once)) == ""
    thrice = (once, failed(2, 100.0, Fate.REFUSED), failed(3, 300.0))
    assert guard(MORE, now(500.0, *thrice))
    assert guard(MORE, now(571.0, *thrice)) == ""
    assert guard(MORE, now(310.0, *thrice, out(4, 305.0))) == "", "one that worked ends it"


# Regret


def test_a_regret_decays() -> None:
    """Day and night for ten days: nothing is regretted, because hours lie between."""
    days = [one for day in range(10) for one in (in_(2 * day + 1, day * DAY), out(2 * day + 2, day * DAY + 8 * HOUR))]
    at = 9 * DAY + 8 * HOUR
    assert Regret(120)(FEWER, now(at + 1, *days)) == ""


def test_what_was_missed_soon_is_kept_longer_each_time_and_forgotten_again() -> None:
    def missed(number: int, at: float) -> tuple[Decided, Decided]:
        again = decided(number + 1, LESS, AddMachine(THREE.machines[2]), at=at + 60)
        return in_(number, at), again

    guard, once = Regret(120), missed(1, 0.0)
    assert guard(FEWER, now(1800.0, *once))
    assert guard(FEWER, now(1861.0, *once)) == ""
    twice = (*once, *missed(3, 200.0))
    assert guard(FEWER, now(260 + 3400.0, *twice)), "nearly twice as long"
    assert guard(FEWER, now(260 + 3601.0, *twice)) == ""
    much_later = (*twice, *missed(5, DAY))
    assert guard(FEWER, now(DAY + 60 + 1810.0, *much_later)) == "", "the first two are forgotten"
    assert guard(UNDO, now(170.0, *once)) == ""


def test_what_was_missed_at_this_load_is_kept_at_this_load() -> None:
    history = (in_(1, 0.0), out(2, 60.0))
    assert "at this load" in Regret(120)(FEWER, now(10 * HOUR, *history))
    assert Regret(120)(FEWER, now(10 * HOUR, *history, snapshot=LESS)) == ""
    assert Regret(120)(FEWER, now(DAY + 61, *history)) == ""
    failed = replace(history[1], fate=Fate.ROLLED_BACK)
    assert Regret(120)(FEWER, now(100.0, history[0], failed)) == ""


# Budget, freeze, hooks


def test_a_budget_of_changes_an_hour() -> None:
    history = (out(1, 0.0), in_(2, 600.0), out(3, 1200.0))
    assert Budget(3)(MORE, now(1300.0, *history)) == (
        "3 changes were made within an hour, and more are not allowed for 2300 s"
    )
    assert Budget(3)(MORE, now(3601.0, *history)) == ""
    assert Budget(3)(UNDO, now(1300.0, *history)) == ""
    refused = replace(history[0], fate=Fate.REFUSED)
    assert Budget(3)(MORE, now(1300.0, refused, *history[1:])) == ""


@pytest.mark.parametrize(
    ("when", "frozen"),
    [
        ("2026-11-16 08:30", True),  # a Monday
        ("2026-11-16 09:30", False),
        ("2026-11-21 08:30", False),  # a Saturday
        ("2026-11-21 23:30", True),
        ("2026-11-22 00:59", True),
        ("2026-11-22 01:00", False),
    ],
)
def test_nothing_changes_within_a_freeze_window(when: str, frozen: bool) -> None:
    guard = Freeze(freeze_windows("Mon-Fri 08:00-09:30; Sat 23:00-01:00"))
    at = datetime.fromisoformat(when).timestamp()
    assert bool(guard(MORE, view(SLOW, GOAL, wall=at))) is frozen


@pytest.mark.parametrize("text", ["always", "Mon-Foo 08:00-09:00", "8:00-9:00", "08:00-25:00", "08:61-09:00"])
def test_a_window_that_cannot_be_read_is_refused_with_the_settings(text: str) -> None:
    from penstock.settings import Settings

    with pytest.raises(PenstockError, match="freeze") as caught:
        Settings(freeze=text)
    assert caught.value.name == "BAD_SETTING"


def test_a_guard_may_change_a_proposal_and_all_guards_see_it_again() -> None:
    machines = cluster(4).machines[2:]
    two = Proposal(Plan(tuple(AddMachine(machine) for machine in machines)), before=FULL)

    def one_is_enough(proposal: Proposal, _: View) -> str | Proposal:
        return replace(proposal, plan=Plan(proposal.plan.actions[:1], "one is enough"))

    asked: list[int] = []

    def counts(proposal: Proposal, _: View) -> str:
        asked.append(len(proposal.plan.actions))
        return ""

    found = reviewed([counts, one_is_enough], two, view(SLOW, GOAL))
    assert len(found.proposal.plan.actions) == 1
    assert found.veto == ""
    assert asked == [2, 1]
    vetoed = reviewed([Cooldown(60), one_is_enough], two, view(SLOW, GOAL, last_ended=990.0))
    assert vetoed.veto.startswith("the last operation")


def test_guards_that_do_not_agree_or_answer_nonsense() -> None:
    def flips(proposal: Proposal, _: View) -> Proposal:
        return FEWER if proposal == MORE else MORE

    assert "do not agree" in reviewed([flips], MORE, view(SLOW, GOAL)).veto
    elsewhere = replace(MORE, plan=Plan((RemoveMachine("elsewhere"),)))
    assert "there is no machine elsewhere" in reviewed([lambda proposal, _: elsewhere], MORE, view(SLOW, GOAL)).veto
    nothing = lambda proposal, _: replace(proposal, plan=Plan((), "it is night"))  # noqa: E731
    assert reviewed([nothing], MORE, view(SLOW, GOAL)).veto == "it is night"
    with pytest.raises(PenstockError) as caught:
        reviewed([lambda proposal, seen_by: None], MORE, view(SLOW, GOAL))  # type: ignore[list-item, return-value]
    assert caught.value.name == "GUARD_FAILED"
    with pytest.raises(PenstockError, match="ZeroDivisionError"):
        reviewed([lambda proposal, seen_by: str(1 / 0)], MORE, view(SLOW, GOAL))
