"""Every decision is a prediction that is checked; a harmful one is undone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_up import cluster, decided, placed, seen, view

from penstock.autoscaler.goals import Goal
from penstock.autoscaler.measured_load import measured_load
from penstock.autoscaler.policy import Decided, Fate
from penstock.autoscaler.proposals import Nothing
from penstock.autoscaler.records import Record, Verdict, kept
from penstock.autoscaler.undoing import undoing
from penstock.autoscaler.verdicts import judged
from penstock.monitor.decisions import DecisionLog
from penstock.monitor.snapshot import Backlog, Snapshot
from penstock.plans.plan import AddMachine, RemoveMachine, SetInstances, apply, apply_to_cluster

SPEEDS = {"rows": 10_000.0, "work": 100.0, "out": 10_000.0}
ONE, TWO = cluster(1), cluster(2)
FEW, MANY = placed(ONE, rows=1, work=2, out=1), placed(TWO, rows=1, work=4, out=1)
GOAL = Goal(throughput=390.0)
SLOW = seen(FEW, ONE, SPEEDS, 390.0)


def scaled_out(expected: float | None = 390.0) -> Decided:
    made = decided(
        1,
        SLOW,
        AddMachine(TWO.machines[1]),
        SetInstances("work", MANY.of("work")),
        verdict=Verdict.PENDING,
        expected=expected,
    )
    return made


def verdict(one: Decided, found: Snapshot, **more: object) -> Record:
    assert one.record is not None
    return judged(one.record, more.pop("fate", Fate.DONE), "", view(found, GOAL, **({"now": 300.0} | more)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("speed", "expected", "word"),
    [
        (100.0, 390.0, Verdict.AS_EXPECTED),
        (80.0, 390.0, Verdict.LESS),
        (51.0, 390.0, Verdict.NONE),
        (40.0, 390.0, Verdict.HARMFUL),
        (40.0, None, Verdict.HARMFUL),
    ],
)
def test_what_it_turned_out_to_be(speed: float, expected: float | None, word: Verdict) -> None:
    found = verdict(scaled_out(expected), seen(MANY, TWO, SPEEDS | {"work": speed}, 390.0))
    assert found.verdict is word
    assert found.measured is not None
    assert found.why.startswith(f"200 rows/s before, {min(4 * speed, 390):,.0f} after")


def test_it_is_not_judged_too_early_nor_on_incomplete_figures() -> None:
    after = seen(MANY, TWO, SPEEDS, 390.0)
    for early in (replace(after, samples=5), replace(after, since=-1.0)):
        assert verdict(scaled_out(), early).verdict is Verdict.PENDING
        assert verdict(scaled_out(), early, now=10_000.0).verdict is Verdict.UNCLEAR
    one = scaled_out()
    assert one.record is not None
    seen_by = replace(view(after, GOAL, now=300.0), load=Nothing("nothing was heard of work"))
    assert judged(one.record, Fate.DONE, "", seen_by).verdict is Verdict.PENDING
    assert verdict(scaled_out(), after, fate=Fate.RUNNING).verdict is Verdict.PENDING


def test_an_operation_that_took_long_is_judged_like_any_other() -> None:
    """A machine that came after ten minutes: nothing could be measured before."""
    young, after = (seen(MANY, TWO, SPEEDS, 390.0, since=600.0, samples=samples) for samples in (2, 20))
    one = scaled_out().record
    assert one is not None
    assert judged(one, Fate.DONE, "", view(young, GOAL, now=620.0), ended=600.0).verdict is Verdict.PENDING
    assert judged(one, Fate.DONE, "", view(after, GOAL, now=800.0), ended=600.0).verdict is Verdict.AS_EXPECTED
    assert judged(one, Fate.DONE, "", view(young, GOAL, now=1_001.0), ended=600.0).verdict is Verdict.UNCLEAR


def test_what_piled_up_during_the_change_is_waited_for() -> None:
    catching_up = seen(MANY, TWO, SPEEDS, 390.0, waiting=100_000, samples=12)
    assert verdict(scaled_out(), catching_up).verdict is Verdict.PENDING


def test_it_is_judged_by_what_was_really_applied() -> None:
    assert verdict(scaled_out(), SLOW, fate=Fate.ROLLED_BACK).verdict is Verdict.NOT_APPLIED
    fewer = placed(TWO, rows=1, work=3, out=1)
    found = verdict(scaled_out(), seen(fewer, TWO, SPEEDS, 390.0))
    assert found.verdict is Verdict.UNCLEAR
    assert "work has other instances" in found.why
    found = verdict(scaled_out(), seen(MANY, cluster(3), SPEEDS, 390.0))
    assert "3 machines" in found.why


def test_another_load_is_no_fault_of_the_decision() -> None:
    found = verdict(scaled_out(), seen(MANY, TWO, SPEEDS, 100.0))
    assert found.verdict is Verdict.UNCLEAR
    assert "offered 100 rows/s and not 390" in found.why


def test_less_throughput_is_no_harm_as_long_as_the_goal_is_held_or_nobody_waits() -> None:
    calm = seen(MANY, TWO, SPEEDS, 390.0)
    removed = decided(1, calm, RemoveMachine("m2"), SetInstances("work", placed(ONE, work=4).of("work")))
    pending = replace(removed.record, verdict=Verdict.PENDING)  # type: ignore[type-var]
    one = replace(removed, record=pending)
    after = seen(placed(ONE, rows=1, work=4, out=1), ONE, SPEEDS | {"work": 80.0}, 390.0)
    assert judged(pending, Fate.DONE, "", view(after, Goal(throughput=300.0))).verdict is Verdict.AS_EXPECTED
    assert judged(pending, Fate.DONE, "", view(after, GOAL)).verdict is Verdict.HARMFUL
    assert one.record is pending


def with_late_results(found: Snapshot, rate: float) -> Snapshot:
    """Windows close long after their rows came: the sinks still tell of another load than the sources do."""
    late = replace(found.operators["out"], rate=rate, input_rate=rate)
    return replace(found, operators=found.operators | {"out": late})


def test_results_that_come_late_are_no_harm_where_rows_are_worked_off_as_they_come() -> None:
    before = with_late_results(seen(MANY, TWO, SPEEDS, 390.0), 900.0)
    crowded = placed(ONE, rows=1, work=4, out=1)
    one = decided(
        1,
        before,
        RemoveMachine("m2"),
        SetInstances("work", crowded.of("work")),
        verdict=Verdict.PENDING,
    )
    lingering = seen(crowded, ONE, SPEEDS, 390.0, waiting=5_000)  # more than ten seconds of rows wait, and stay as many
    found = verdict(one, with_late_results(lingering, 300.0))
    assert found.verdict is Verdict.UNCLEAR
    assert "rows are worked off as fast as they come" in found.why
    work = lingering.operators["work"]
    growing = replace(work, backlog=replace(work.backlog, growth=50.0))
    unknown = replace(work, backlog=replace(work.backlog, growth=None))
    held_back = replace(work, held_back=True)  # back-pressure: what waits has reached its bound
    rows = lingering.operators["rows"]
    owes = replace(rows, unmet_rows=5_000, input_rate=440.0)  # more than the 390 that it emits
    nobody_knows = replace(rows, unmet_rows=5_000, input_rate=None)
    for changed in (growing, unknown, held_back, owes, nobody_knows):
        after = replace(lingering, operators=lingering.operators | {changed.name: changed})
        assert verdict(one, with_late_results(after, 300.0)).verdict is Verdict.HARMFUL, changed


def test_a_backlog_that_was_worked_off_before_is_no_yardstick() -> None:
    def after_a_scale_out(growth: float) -> Verdict:
        before = seen(FEW, ONE, SPEEDS, 390.0, waiting=50_000)
        work = replace(before.operators["work"], backlog=Backlog(50_000, 400_000, 1.0, growth))
        before = replace(before, operators=before.operators | {"work": work})
        actions = AddMachine(TWO.machines[1]), SetInstances("work", MANY.of("work"))
        one = decided(1, before, *actions, verdict=Verdict.PENDING)
        return verdict(one, seen(MANY, TWO, SPEEDS | {"work": 40.0}, 390.0)).verdict

    assert after_a_scale_out(-500.0) is Verdict.UNCLEAR
    assert after_a_scale_out(0.0) is Verdict.HARMFUL, "rows waited and became more: that was why a machine came"


# Undoing


def harmful(one: Decided) -> Decided:
    assert one.record is not None
    return replace(one, record=replace(one.record, verdict=Verdict.HARMFUL))


def test_a_harmful_scale_out_is_undone() -> None:
    now = seen(MANY, TWO, SPEEDS | {"work": 40.0}, 390.0)
    found = undoing(view(now, GOAL, history=(harmful(scaled_out()),)), "stela")
    assert found is not None
    assert apply(MANY, found.plan.actions) == FEW
    assert apply_to_cluster(TWO, found.plan.actions) == ONE
    assert (found.undo, found.reverts, found.strategy) == (True, (1,), "stela")
    assert found.reasons[0].startswith("operation 1 was harmful and is undone: ")
    assert found.predictions[1].value == 200


def test_a_harmful_scale_in_gets_a_machine_back() -> None:
    crowded = placed(ONE, rows=1, work=4, out=1)
    one = decided(
        1,
        seen(MANY, TWO, SPEEDS, 390.0),
        RemoveMachine("m2"),
        SetInstances("work", crowded.of("work")),
        verdict=Verdict.HARMFUL,
    )
    found = undoing(view(seen(crowded, ONE, SPEEDS | {"work": 50.0}, 390.0), GOAL, history=(one,)), "stela")
    assert found is not None
    assert apply(crowded, found.plan.actions) == MANY
    assert apply_to_cluster(ONE, found.plan.actions).names == ("m1", "m2")
    none_left = view(seen(crowded, ONE, SPEEDS | {"work": 50.0}, 390.0), GOAL, history=(one,), machines=0)
    assert undoing(none_left, "stela") is None


def test_only_the_last_one_is_undone_and_only_once() -> None:
    now = seen(MANY, TWO, SPEEDS | {"work": 40.0}, 390.0)
    first = harmful(scaled_out())
    later = decided(2, now, SetInstances("work", MANY.of("work")))
    assert undoing(view(now, GOAL, history=(first, later)), "stela") is None
    undone = replace(later, proposal=replace(later.proposal, undo=True, reverts=(1,)))
    assert undoing(view(now, GOAL, history=(first, harmful(undone))), "stela") is None
    assert undoing(view(now, GOAL, history=(scaled_out(),)), "stela") is None


# Keeping


def test_a_record_is_kept_under_one_id() -> None:
    log, one = DecisionLog(), scaled_out()
    assert one.record is not None
    first = kept(log, one.record)
    second = kept(log, replace(first, verdict=Verdict.LESS, why="less came"))
    other = kept(log, one.record)
    assert (first.id, second.id, other.id) == (1, 1, 2)
    shown = log.since(0)[0].as_json()
    assert (shown["verdict"], shown["why"], shown["action"]) == ("less", "less came", "scale-out")
    assert shown["before"]["throughput"] == 200
    assert measured_load(SLOW).operators
