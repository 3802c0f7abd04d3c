"""The controller's book: since when a change is wanted."""

from __future__ import annotations

from dataclasses import replace

from made_up import cluster, decided, placed, seen, view

from penstock.autoscaler.book import Book
from penstock.autoscaler.policy import Fate, View
from penstock.autoscaler.proposals import Nothing, Proposal
from penstock.autoscaler.recollection import Recollection
from penstock.autoscaler.records import Record, Verdict
from penstock.plans.plan import AddMachine, Plan

SPEEDS = {"rows": 10_000.0, "work": 100.0, "out": 10_000.0}
ONE, TWO = cluster(1), cluster(2)
FEW = placed(ONE, rows=1, work=2, out=1)
MORE = Proposal(Plan((AddMachine(TWO.machines[1]),), "more"))


def at(now: float, offered: float = 390.0) -> View:
    return view(seen(FEW, ONE, SPEEDS, offered), now=now)


def book() -> Book:
    return Book(lambda operation: (Fate.DONE, ""), lambda record: record, lambda kind, text: None)


def test_a_change_is_wanted_since_the_first_of_the_rounds_that_all_wanted_it() -> None:
    made = book()
    assert made.wanted(MORE, at(100.0)).wanted_since == 100.0
    assert made.wanted(MORE, at(200.0)).wanted_since == 100.0
    assert made.wanted(Nothing("calm"), at(300.0)).wanted_since == 300.0
    assert made.wanted(MORE, at(400.0)).wanted_since == 400.0


def test_what_guards_refused_until_the_load_was_another_one_is_wanted_anew() -> None:
    """Otherwise it would pass at once, on a window that is half of the old load, and its verdict would be unclear."""
    made = book()
    made.wanted(MORE, at(100.0))
    assert made.wanted(MORE, at(5_000.0)).wanted_since == 100.0, "the load is the same"
    assert made.wanted(MORE, at(5_010.0, offered=800.0)).wanted_since == 5_010.0
    assert made.wanted(MORE, at(5_300.0, offered=2_000.0)).wanted_since == 5_010.0, "a load that grows is answered"


def test_a_decision_is_judged_by_when_it_was_seen_to_be_over() -> None:
    """The machine came after half an hour, and little was measured since."""
    made, before, young = book(), at(100.0), seen(FEW, TWO, SPEEDS, 390.0, since=1900.0, samples=2)
    made.enter(before, decided(1, before.snapshot, AddMachine(TWO.machines[1])).proposal, 1)
    made.history()
    for now in (1900.0, 1930.0):
        [one] = made.checked(view(young, now=now)).history
        assert one.ended == 1900.0
        assert one.record is not None and one.record.verdict is Verdict.PENDING
    [one] = made.checked(view(young, now=2400.0)).history
    assert one.record is not None and one.record.verdict is Verdict.UNCLEAR


def test_what_was_known_before_a_restart_is_history_and_people_read_no_longer_that_it_is_pending() -> None:
    kept: list[Record] = []
    made = Book(lambda _: (Fate.DONE, ""), lambda record: kept.append(record) or record, lambda kind, text: None)
    before = at(100.0).snapshot
    first, second = decided(1, before), decided(2, before, verdict=Verdict.UNCLEAR)
    made.recall(Recollection((first, second), 400.0, judged=frozenset({2})))
    assert kept == [second.record]
    assert made.history() == (first, second)
    seen_later = made.checked(at(500.0))
    assert (seen_later.history, seen_later.last_ended) == ((first, second), 400.0)
    later = made.checked(replace(at(700.0), last_ended=600.0))
    assert later.last_ended == made.last_ended == 600.0


def test_what_is_still_under_way_is_the_same_decision_in_every_round() -> None:
    """The keeper writes what has changed, and an operation may take many minutes."""
    fates = [(Fate.RUNNING, ""), (Fate.RUNNING, ""), (Fate.DONE, "")]
    made = Book(lambda operation: fates.pop(0), lambda record: record, lambda kind, text: None)
    before = at(100.0)
    made.enter(before, decided(1, before.snapshot, AddMachine(TWO.machines[1])).proposal, 1)
    [first], [second], [third] = made.history(), made.history(), made.history()
    assert first is second
    assert (second.fate, third.fate) == (Fate.RUNNING, Fate.DONE)
