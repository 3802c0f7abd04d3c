"""Who stands where: seats are taken, given up, taken again, and missed only as long as their turn is served."""

from __future__ import annotations

import threading

from penstock.cluster.model import Slot
from penstock.engine.message.shares import Bundle
from penstock.engine.query.pacing import Pacer
from penstock.engine.standing.batches import Standing
from penstock.engine.standing.roster import FIRST_SECONDS, Roster

ONE, TWO = Bundle(Slot("a", 0), 1), Bundle(Slot("b", 0), 3)


def standing(turn: int, index: int, bundle: Bundle = ONE) -> Standing:
    return Standing(turn, index, bundle, Pacer(0.05, 10, 10), threading.Condition())


def test_a_seat_has_whoever_came_last() -> None:
    roster, first, again = Roster(), standing(1, 0), standing(1, 0)
    roster.sit(first)
    roster.sit(again)
    assert roster.on((1, 0)) is again
    roster.leave(first, 5.0)
    assert roster.on((1, 0)) is again, "only its seat was taken"
    roster.leave(again, 6.0)
    assert (1, 0) not in roster
    assert roster.on((1, 0)) is None


def test_an_empty_seat_is_missed_until_it_is_taken_or_another_turn_is_served() -> None:
    roster, one = Roster(), standing(1, 0)
    roster.serve(1, (ONE, TWO), 0.0)
    for each in (one, standing(1, 1)):
        roster.sit(each)
        roster.leave(each, 5.0)
    assert roster.empty(before=4.9) == []
    assert roster.empty(before=5.0) == [(1, 0), (1, 1)]
    roster.sit(one)
    assert roster.empty(before=5.0) == [(1, 1)]
    roster.serve(2, (ONE,), 5.0)
    assert roster.empty(before=5.0) == []


def test_whoever_never_comes_is_missed_too_but_later() -> None:
    roster, one = Roster(), standing(1, 0)
    roster.sit(one)
    roster.serve(1, (ONE, TWO), 10.0)
    assert roster.empty(before=10.0 + FIRST_SECONDS - 0.1) == [], "it may take a while to start"
    assert roster.empty(before=10.0 + FIRST_SECONDS) == [(1, 1)]
    roster.serve(1, (ONE, TWO), 500.0)
    assert roster.empty(before=10.0 + FIRST_SECONDS) == [(1, 1)], "the same turn again gives it no more time"
    roster.sit(standing(1, 1, TWO))
    assert roster.empty(before=1000.0) == []


def test_who_only_needs_longer_gets_twice_the_time_in_the_next_turn() -> None:
    """A model that is loaded for minutes: with the same time in every turn, nobody would ever sit."""
    roster = Roster()
    roster.serve(1, (ONE,), 0.0)
    roster.serve(2, (ONE,), FIRST_SECONDS + 5.0)
    assert roster.empty(before=3 * FIRST_SECONDS) == []
    assert roster.empty(before=3 * FIRST_SECONDS + 5.0) == [(2, 0)]
    roster.sit(standing(2, 0))
    roster.serve(3, (ONE,), 1000.0)
    assert roster.empty(before=1000.0 + 2 * FIRST_SECONDS - 0.1) == [], "it will need as long again"
    roster.serve(4, (ONE,), 1001.0)
    assert roster.empty(before=1001.0 + 2 * FIRST_SECONDS) == [(4, 0)], "a turn that was cut short does not count"


def test_it_counts_the_instances_of_the_turn_that_is_served() -> None:
    roster, before, now = Roster(), standing(1, 0), standing(2, 1, TWO)
    before.asks = now.asks = True
    roster.sit(before)
    roster.sit(now)
    roster.serve(2, (ONE, TWO), 0.0)
    assert (roster.instances, roster.asking) == (4, 3)
    assert [roster.of(1), roster.of(2), list(roster)] == [[before], [now], [before, now]]
