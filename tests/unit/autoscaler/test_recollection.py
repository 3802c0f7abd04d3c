"""What a controller still knows after a restart: what is there counts, and what is dropped is told with its reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_up import PLAIN, cluster, decided, placed, seen, view

from penstock.autoscaler.book_form import Remembered, Shape, remembered_of, text_of
from penstock.autoscaler.policy import Decided, Fate
from penstock.autoscaler.recollection import Recollection, recollection
from penstock.autoscaler.records import Verdict
from penstock.autoscaler.steps import machines_brought, open_steps
from penstock.autoscaler.undoing import undoing
from penstock.cluster.model import Cluster
from penstock.plans.plan import Action, AddMachine, RemoveMachine, SetInstances

SPEEDS = {"rows": 10_000.0, "work": 100.0, "out": 10_000.0}
NOW = 10_000.0
Count = tuple[int, int]


def change(number: int, machines: Count, work: Count, **more: Any) -> Decided:
    """A decision from so many machines and instances of `work` to others."""
    old, new = (cluster(count) for count in machines)
    before, after = placed(old, rows=1, work=work[0], out=1), placed(new, rows=1, work=work[1], out=1)
    actions: list[Action] = [AddMachine(one) for one in new.machines[machines[0] :]]
    actions += [SetInstances(name, after.of(name)) for name in after.instances if after.of(name) != before.of(name)]
    actions += [RemoveMachine(name) for name in old.names[machines[1] :]]
    return decided(number, seen(before, Cluster(old.machines), SPEEDS, 100.0), *actions, at=100.0 * number, **more)


def under_way(one: Decided, fate: Fate = Fate.RUNNING) -> Decided:
    assert one.record is not None
    return replace(one, fate=fate, ended=None, record=replace(one.record, verdict=Verdict.PENDING, measured=None))


def after_restart(*history: Decided, left: Count, found: Count, names: Cluster | None = None) -> Recollection:
    """`left` and `found` are machines and instances of `work`. The history goes through its stored form."""
    shape = Shape({"rows": 1, "work": left[1], "out": 1}, left[0])
    there = names or cluster(found[0])
    text = text_of(Remembered(history, shape, NOW - 50), PLAIN, NOW, lambda at: at)
    remembered = remembered_of(text, PLAIN, there, NOW, lambda at: at)
    assert isinstance(remembered, Remembered)
    return recollection(remembered, placed(there, rows=1, work=found[1], out=1), there, NOW)


def opened(known: Recollection) -> list[tuple[int, int, dict[str, int]]]:
    """Operation, machines and instances of each open step."""
    return [(step.operation, step.machines, dict(step.instances)) for step in open_steps(known.decided)]


OUT, OUT_AGAIN = change(1, (1, 2), (1, 3)), change(2, (2, 3), (3, 5))


def test_where_everything_is_as_it_was_left_everything_is_known() -> None:
    known = after_restart(OUT, OUT_AGAIN, left=(3, 5), found=(3, 5))
    assert known.decided == (OUT, OUT_AGAIN)
    assert known.last_ended == NOW - 50
    assert known.told == ()


def test_machines_may_have_other_names() -> None:
    known = after_restart(OUT, left=(2, 3), found=(2, 3), names=Cluster.of(["x", "y"], 1, 2))
    assert opened(known) == [(1, 1, {"work": 2})]
    assert known.told == ()


def test_what_a_person_has_set_meanwhile_drops_no_step() -> None:
    known = after_restart(OUT, left=(2, 4), found=(2, 4))
    assert opened(known) == [(1, 1, {"work": 2})]
    assert after_restart(OUT, left=(2, 3), found=(2, 6)).told == ()


def test_a_machine_that_is_gone_is_not_taken_back_and_its_instances_are() -> None:
    """The cluster was started with one machine, and all instances run there."""
    known = after_restart(OUT, left=(2, 3), found=(1, 3))
    assert opened(known) == [(1, 0, {"work": 2})]
    assert machines_brought(known.decided) == 0
    [told] = known.told
    assert told == (
        "operation 1 (1 machine more): the machine that it added is not there any more; "
        "the instances that came along are, and will be taken back by themselves"
    )


def test_the_newest_machine_is_the_one_that_lacks() -> None:
    known = after_restart(OUT, OUT_AGAIN, left=(3, 5), found=(2, 5))
    assert opened(known) == [(1, 1, {"work": 2}), (2, 0, {"work": 2})]


def test_a_machine_that_is_gone_by_its_name_is_the_one_that_lacks() -> None:
    there = Cluster.of(["m1", "m3"], 1, 2)
    known = after_restart(OUT, OUT_AGAIN, left=(3, 5), found=(2, 5), names=there)
    assert opened(known) == [(1, 0, {"work": 2}), (2, 1, {"work": 2})]


def test_one_of_two_machines_of_a_step_may_be_gone() -> None:
    known = after_restart(change(1, (1, 3), (1, 4)), left=(3, 4), found=(2, 4))
    assert opened(known) == [(1, 1, {"work": 3})]


def test_a_step_whose_instances_are_gone_is_dropped_with_its_machine() -> None:
    known = after_restart(OUT, OUT_AGAIN, left=(3, 5), found=(2, 3))
    assert opened(known) == [(1, 1, {"work": 2})]
    assert machines_brought(known.decided) == 1
    [told] = known.told
    assert "operation 2" in told
    assert "it will not be taken back, because instances that it added are not there any more (2 of work)" in told


def test_everything_begun_anew_leaves_lessons_and_no_step() -> None:
    """Somebody has declared other instances, so the placement was dealt anew."""
    known = after_restart(OUT, replace(OUT_AGAIN, record=None), left=(3, 5), found=(1, 1))
    assert opened(known) == []
    assert len(known.told) == 2
    assert known.decided[0].record == OUT.record


def test_what_is_dropped_stays_dropped_after_the_next_restart() -> None:
    once = after_restart(OUT, left=(2, 3), found=(2, 1))
    again = after_restart(*once.decided, left=(2, 1), found=(2, 1))
    assert opened(again) == []
    assert again.told == ()


def test_harm_that_is_not_there_any_more_is_not_undone() -> None:
    harmful = replace(OUT, record=replace(OUT.record, verdict=Verdict.HARMFUL)) if OUT.record else OUT
    for instances, undone in ((3, True), (1, False)):
        known = after_restart(harmful, left=(2, 3), found=(2, instances))
        there = seen(placed(cluster(2), rows=1, work=instances, out=1), cluster(2), SPEEDS, 100.0)
        assert (undoing(view(there, history=known.decided), "stela") is not None) == undone


def test_a_removed_machine_that_is_there_again_is_no_way_back() -> None:
    removed = change(1, (2, 1), (3, 3))
    assert opened(after_restart(removed, left=(1, 3), found=(1, 3))) == [(1, -1, {})]
    known = after_restart(removed, left=(1, 3), found=(2, 3))
    assert opened(known) == []
    assert "because the cluster has more machines now than it left" in known.told[0]


# What was under way


@pytest.mark.parametrize("fate", [Fate.WAITING, Fate.RUNNING])
def test_what_was_under_way_and_is_there_was_carried_out(fate: Fate) -> None:
    known = after_restart(under_way(OUT, fate), left=(1, 1), found=(2, 3))
    assert opened(known) == [(1, 1, {"work": 2})]
    [one] = known.decided
    assert one.fate is Fate.DONE
    assert one.ended == NOW
    assert known.last_ended == NOW, "the cooldown begins when it is seen to be over"
    assert "was carried out; the driver ended meanwhile" in known.told[0]


def test_what_was_under_way_and_is_not_there_was_not_carried_out() -> None:
    known = after_restart(under_way(OUT), left=(1, 1), found=(1, 1))
    assert opened(known) == []
    [one] = known.decided
    assert one.fate is Fate.CANCELLED
    assert known.last_ended == NOW - 50, "nothing has changed that would have to settle"
    assert one.record is not None
    assert one.record.verdict is Verdict.NOT_APPLIED
    assert "was not carried out; the driver ended meanwhile" in known.told[0]


def test_what_was_carried_out_meanwhile_may_lack_its_machine_already() -> None:
    known = after_restart(under_way(OUT), left=(1, 1), found=(1, 3))
    assert opened(known) == [(1, 0, {"work": 2})]
    assert len(known.told) == 2


def test_what_was_not_measured_before_the_restart_gets_no_verdict_by_what_is_measured_after_it() -> None:
    pending = replace(under_way(OUT), fate=Fate.DONE, ended=150.0)
    known = after_restart(pending, left=(2, 3), found=(2, 3))
    [one] = known.decided
    assert one.record is not None
    assert one.record.verdict is Verdict.UNCLEAR
    assert known.judged == {1}
    assert opened(known) == [(1, 1, {"work": 2})]
