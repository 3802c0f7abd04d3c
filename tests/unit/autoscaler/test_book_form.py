"""What a controller remembers, as the text that is stored: what goes in comes out, and damage is told by its name."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import KEYED, PLAIN, TASKS, cluster

from penstock.autoscaler.balance import Balance
from penstock.autoscaler.book_form import VERSION, DoesNotFit, Remembered, Shape, identity, remembered_of, text_of
from penstock.autoscaler.guards import Budget, Cooldown
from penstock.autoscaler.policy import Decided, Fate
from penstock.autoscaler.proposals import Prediction, Proposal
from penstock.autoscaler.records import Figures, Record, Verdict
from penstock.cluster.model import Placement
from penstock.errors import PenstockError
from penstock.plans.plan import AddMachine, MoveTask, Plan, RemoveMachine, SetInstances, SetTasks
from penstock.strategies.memory import Added, Memory

NOW = 1_000_000.0
CLUSTER = cluster(3)
NAMES = [one.name for one in KEYED.operators]


def same(at: float) -> float:
    return at


# Made by Hypothesis

slots = st.sampled_from(CLUSTER.slots)
spread = st.dictionaries(slots, st.integers(1, 9), min_size=1)
names = st.sampled_from(NAMES)
words = st.text(max_size=20)
times = st.floats(0, NOW)
rates = st.floats(allow_nan=False)
counts = st.integers(0, 10**9)
placements = st.builds(
    lambda instances, tasks: Placement(instances, {"count": tuple(tasks)}),
    st.fixed_dictionaries(dict.fromkeys(NAMES, spread)),
    st.lists(slots, min_size=TASKS, max_size=TASKS),
)
actions = st.one_of(
    st.builds(SetInstances, names, spread),
    st.builds(MoveTask, st.just("count"), st.integers(0, TASKS - 1), slots),
    st.builds(AddMachine, st.sampled_from(CLUSTER.machines)),
    st.builds(RemoveMachine, words),
    st.builds(SetTasks, st.just("count"), st.integers(1, 100)),
)
memories = st.builds(
    Memory,
    st.dictionaries(names, rates),
    st.lists(st.builds(Added, words, st.dictionaries(names, st.integers(-5, 5)))).map(tuple),
)
proposals = st.builds(
    Proposal,
    st.builds(Plan, st.lists(actions, max_size=4).map(tuple), words),
    st.lists(words, max_size=3).map(tuple),
    st.lists(st.builds(Prediction, words, rates, words), max_size=3).map(tuple),
    strategy=words,
    before=st.none() | placements,
    reverts=st.lists(counts, max_size=2).map(tuple),
    corrects=st.none() | counts,
    memory=st.none() | memories,
    undo=st.booleans(),
)
maybe = st.none() | rates
balances = st.builds(
    Balance, maybe, maybe, maybe, counts, st.floats(0), maybe, st.booleans(), st.booleans(), st.booleans()
)
figures = st.builds(
    Figures,
    balances,
    counts,
    st.dictionaries(words, rates),
    st.dictionaries(words, counts),
    st.dictionaries(words, counts),
)
records = st.builds(
    Record, times, proposals, figures, st.none() | counts, st.none() | figures, st.sampled_from(Verdict), words, counts
)


@st.composite
def remembered(draw: Any) -> Remembered:
    found = []
    for number in range(draw(st.integers(0, 4))):
        fate = draw(st.sampled_from(Fate))
        made = draw(
            st.builds(Decided, times, proposals, st.just(fate), reason=words, ended=st.none() | times, dropped=words)
        )
        record = draw(records) if not fate.over else draw(st.none() | records)
        if record is not None and draw(st.booleans()):
            record = replace(record, proposal=made.proposal)
        found.append(replace(made, operation=None if fate is Fate.REFUSED else number + 1, record=record))
    left = Shape(draw(st.dictionaries(names, counts)), draw(counts))
    return Remembered(tuple(found), left, draw(st.none() | times))


@given(remembered())
def test_what_is_stored_is_what_was_remembered(one: Remembered) -> None:
    text = text_of(one, KEYED, NOW, same)
    assert text.isascii()
    assert remembered_of(text, KEYED, CLUSTER, NOW, same) == one


@given(remembered(), st.data())
def test_a_text_that_is_damaged_anywhere_is_refused_by_name_or_read(one: Remembered, data: st.DataObject) -> None:
    """Whatever is in the place of any one value."""
    whole = json.loads(text_of(one, KEYED, NOW, same))
    spots = list(_spots(whole))
    holder, key = data.draw(st.sampled_from(spots))
    strange = st.sampled_from([None, True, -1, 10**400, 1e999, math.nan, "", "inf", "x", [], {}, [[]], {"a": 1}])
    holder[key] = data.draw(strange)
    try:
        found = remembered_of(json.dumps(whole), KEYED, CLUSTER, NOW, same)
    except PenstockError as refusal:
        assert refusal.name == "DECISIONS_UNREADABLE"
    else:
        assert isinstance(found, Remembered | DoesNotFit)


def _spots(value: Any) -> Any:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(pairs):
        yield value, key
        yield from _spots(inner)


# Made by hand

EMPTY = Remembered((), Shape({"rows": 1}, 1), 10.0)


def text(change: Callable[[dict[str, Any]], object] = lambda _: None) -> str:
    whole = json.loads(text_of(EMPTY, KEYED, NOW, same))
    change(whole)
    return json.dumps(whole)


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "no JSON",
        "[]",
        "null",
        "{}",
        "[" * 100_000,
        "9" * 10_000,
        text()[:-20],
        text(lambda whole: whole.update(version="one")),
        text(lambda whole: whole.update(version=0)),
        text(lambda whole: whole.pop("decided")),
        text(lambda whole: whole.update(decided=[{}])),
        text(lambda whole: whole.update(written=math.inf)),
        text(lambda whole: whole.update(slots=[["m1", -1, 2]])),
        text(lambda whole: whole.update(instances={"stranger": 1})),
    ],
)
def test_a_damaged_text_is_refused_in_words(damaged: str) -> None:
    with pytest.raises(PenstockError, match=r"What the controller remembers .* is damaged") as refusal:
        remembered_of(damaged, KEYED, CLUSTER, NOW, same)
    assert refusal.value.name == "DECISIONS_UNREADABLE"
    assert "begins anew" in refusal.value.hint
    assert len(str(refusal.value)) < 500


def test_a_text_of_a_newer_penstock_is_left_alone_in_words() -> None:
    newer = text(lambda whole: whole.update(version=VERSION + 1, decided="something new"))
    with pytest.raises(PenstockError, match=r"a newer Penstock has written it \(version 2; this one knows 1\)"):
        remembered_of(newer, KEYED, CLUSTER, NOW, same)


def test_what_another_topology_remembers_does_not_fit() -> None:
    found = remembered_of(text(), PLAIN, CLUSTER, NOW, same)
    assert found == DoesNotFit("the topology has other operators or other streams now")
    assert identity(KEYED) != identity(PLAIN)
    assert identity(KEYED) != identity(replace(KEYED, name="other"))


def test_slots_have_the_cores_that_they_have_now() -> None:
    before = Placement({name: {cluster(1).slots[0]: 1} for name in NAMES}, {"count": cluster(1).slots * TASKS})
    one = Decided(1.0, Proposal(Plan(()), before=before), Fate.DONE, 1)
    [again] = _read(text_of(Remembered((one,), Shape(), None), KEYED, NOW, same), cores=8).decided
    assert again.proposal.before is not None
    assert [slot.cores for slot in again.proposal.before.of("rows")] == [8]


def _read(stored: str, now: float = NOW, cores: int = 2, clock: Callable[[float], float] = same) -> Remembered:
    found = remembered_of(stored, KEYED, cluster(1, cores), now, clock)
    assert isinstance(found, Remembered)
    return found


# Clocks


def refused(at: float) -> Decided:
    return Decided(at, Proposal(Plan(())), Fate.REFUSED, ended=at)


def test_times_are_kept_by_the_wall_clock_and_come_back_in_run_time() -> None:
    """The old driver's clock was 50 s behind the wall clock; the new one's began at 0."""
    stored = text_of(Remembered((refused(100.0),), Shape(), 200.0), KEYED, 300.0, lambda at: at + 50)
    again = _read(stored, now=400.0, clock=lambda wall: wall - 10)
    assert (again.decided[0].at, again.decided[0].ended, again.last_ended) == (140.0, 140.0, 240.0)


@pytest.mark.parametrize("back", [0.0, 60.0, 3600.0, 365 * 86400.0])
def test_a_clock_that_was_set_back_does_not_freeze_the_controller(back: float) -> None:
    """Every wait is as long as it ever is, and not longer by what the clock was set back."""
    changes = tuple(
        replace(refused(NOW - ago), fate=Fate.DONE, operation=n + 1) for n, ago in enumerate((5000, 3000, 10))
    )
    stored = text_of(Remembered(changes, Shape(), NOW - 10), KEYED, NOW, same)
    now = NOW - back
    again = _read(stored, now=now)
    assert again.last_ended == now - 10
    assert [now - one.at for one in again.decided] == [5000, 3000, 10], "what lay an hour apart still does"
    view: Any = type("View", (), {"now": now, "last_ended": again.last_ended, "history": again.decided})
    assert Cooldown(120.0)(changes[0].proposal, view).endswith("in 110 s")
    assert Budget(2)(changes[0].proposal, view).endswith("not allowed for 600 s")
    assert Budget(3)(changes[0].proposal, view) == ""


def test_nothing_is_remembered_of_the_future() -> None:
    stored = json.loads(text_of(Remembered((refused(NOW),), Shape(), NOW), KEYED, NOW, same))
    stored["decided"][0]["at"] = stored["last_ended"] = NOW + 1e9
    again = _read(json.dumps(stored))
    assert again.decided[0].at == again.last_ended == NOW
