"""Who waits for rows, for how long, and what wakes it: one bundle watches, the others sleep."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from dealing import (
    ONE,
    TWO,
    Channels,
    Rows,
    dealer_of,
    dealer_with,
    done,
    in_background,
    report,
    rows_of,
    served,
    stand,
)

from penstock.engine.message.shares import Bundle
from penstock.engine.standing.batches import CutBatch
from penstock.engine.standing.dealer import AHEAD, Dealer


def test_rows_that_come_later_wake_a_bundle_that_waits() -> None:
    rows = Rows(0)
    dealer, _, channels = dealer_of(rows)
    [one] = served(dealer, ONE)
    taken: list[Any] = []
    thread = threading.Thread(target=lambda: taken.append(rows_of(dealer, one)))
    thread.start()
    time.sleep(0.02)
    rows.rows = 5
    channels.notify()
    thread.join(2)
    assert taken == [[0, 5]]


def test_bundles_that_wait_do_not_wake_each_other() -> None:
    rows = Rows(0)
    dealer, _, channels = dealer_of(rows)
    taken: list[Any] = []
    threads = [
        in_background(lambda one=one: taken.append(rows_of(dealer, one)))  # type: ignore[misc]
        for one in served(dealer, ONE, TWO)
    ]
    time.sleep(0.3)
    assert rows.looks <= 4
    rows.rows = 15
    channels.notify()
    for thread in threads:
        thread.join(5)
    assert sorted(taken) == [[0, 10], [10, 15]], "who has work hands the watch over to who has none"


def test_rows_that_fill_a_batch_do_not_linger() -> None:
    """They wait for a bundle: a source that has them cannot be followed, which whoever scales has to see."""
    supply = Rows(15)
    dealer, _, _ = dealer_of(supply, most=10, linger=60.0)
    [one] = served(dealer, ONE)
    assert rows_of(dealer, one) == [0, 10]
    assert dealer.lingers, "five rows wait for more"
    supply.rows = 30
    assert not dealer.lingers


@pytest.mark.parametrize("linger", [0.0085, 0.0095, 0.0105])
def test_rows_that_have_lingered_between_two_looks_at_the_clock_are_taken_at_once(linger: float) -> None:
    """Nobody says that rows of a rate source are due: a bundle that took the end of their lingering for want of room
    would sleep for seconds."""
    ticks = itertools.count()
    dealer = dealer_with(Rows(5), linger=lambda: linger, clock=lambda: next(ticks) / 1000)
    assert taken_within_two_seconds(dealer) == [[0, 5]]


def test_a_bundle_of_the_next_turn_does_not_keep_the_watch_from_those_who_may_cut() -> None:
    rows = Rows(0)
    dealer, _, channels = dealer_of(rows)
    [old] = served(dealer, ONE)
    early = stand(dealer, 2, 0, TWO)
    got: dict[str, Any] = {}
    waits = in_background(lambda: got.update(early=dealer.take(early)))
    works = in_background(lambda: got.update(old=rows_of(dealer, old)))
    time.sleep(0.02)
    rows.rows = 10
    channels.notify()
    works.join(5)
    assert got == {"old": [0, 10]}
    rows.rows = 20
    dealer.serve(2, [TWO])
    waits.join(5)
    assert got["early"].share.load == {"rows": [10, 20]}


def test_rows_of_a_source_are_waited_for_without_looking_all_the_time() -> None:
    rows = Rows(0)
    rows.due_in = lambda: -1.0 if rows.rows else 0.05  # type: ignore[method-assign]
    dealer, _, _ = dealer_of(rows, linger=0.2)
    [one] = served(dealer, ONE)
    dealer._last_cut = time.monotonic()  # the batch before was cut just now
    thread = in_background(lambda: rows_of(dealer, one))
    time.sleep(0.05)
    rows.rows = 5
    thread.join(5)
    assert rows.looks < 20


def test_rows_linger_once_and_not_once_for_every_bundle() -> None:
    rows = Rows(1_000)
    dealer, _, _ = dealer_of(rows, most=10_000, linger=5.0)
    dealer.pause()
    taken: list[Any] = []
    threads = [
        in_background(lambda one=one: taken.append(rows_of(dealer, one)))  # type: ignore[misc]
        for one in served(dealer, ONE, TWO)
    ]
    time.sleep(0.05)
    dealer.pause(False)
    for thread in threads:
        thread.join(2)
    assert sorted(taken) == [[0, 500], [500, 1_000]]


def test_a_row_that_comes_while_a_bundle_lingers_waits_no_longer_than_that() -> None:
    rows = Rows(10)
    dealer, _, channels = dealer_of(rows, linger=0.2)
    [one] = served(dealer, ONE)
    rows_of(dealer, one)
    done(dealer, one, report())
    taken: list[Any] = []
    thread = in_background(lambda: taken.append(rows_of(dealer, one)))
    time.sleep(0.05)
    rows.rows = 15
    channels.notify()
    thread.join(2)
    assert taken == [[10, 15]]


def test_a_watcher_that_was_given_up_while_it_looked_cuts_nothing() -> None:
    rows = Rows(20, any_bundle=False)
    dealer, _, _ = dealer_of(rows)
    [one] = served(dealer, ONE)
    looks, may_go_on = threading.Event(), threading.Event()

    def look() -> None:
        looks.set()
        assert may_go_on.wait(5)

    rows.look = look  # type: ignore[method-assign]
    answers: list[Any] = []

    def take() -> None:
        try:
            answers.append(dealer.take(one))
        except Exception as error:
            answers.append(error)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    assert looks.wait(5)
    dealer.lost(stand(dealer, 1, 0, ONE))  # Spark has started the task again, and that one is gone too
    may_go_on.set()
    thread.join(5)
    assert answers == [None]


def test_a_source_that_says_it_has_rows_and_gives_none_does_not_keep_a_core_busy() -> None:
    class GivesNone(Rows):
        cuts = 0

        def cut(self, most: int, bundles: Sequence[Bundle]) -> CutBatch | None:
            self.cuts += 1
            return None

    rows = GivesNone(5)
    dealer, _, _ = dealer_of(rows)
    [one] = served(dealer, ONE)
    thread = threading.Thread(target=lambda: dealer.take(one), daemon=True)
    thread.start()
    time.sleep(0.3)
    dealer.end()
    thread.join(5)
    assert 1 <= rows.cuts <= 16


def test_the_end_waits_for_who_looks_at_the_world_outside() -> None:
    """Whoever takes the query's place looks too: two lists of the same files would be mixed."""
    rows = Rows(0)
    dealer, _, _ = dealer_of(rows)
    looking, may_go_on = threading.Event(), threading.Event()

    def look() -> None:
        looking.set()
        assert may_go_on.wait(5)

    rows.look = look  # type: ignore[method-assign]
    [one] = served(dealer, ONE)
    asks = threading.Thread(target=dealer.take, args=(one,), daemon=True)
    asks.start()
    assert looking.wait(5)
    assert not dealer.end(0.05), "somebody still looks"
    may_go_on.set()
    assert dealer.end(5)
    asks.join(5)


def test_nobody_looks_after_the_end() -> None:
    rows = Rows(0)
    dealer, _, _ = dealer_of(rows)
    [one] = served(dealer, ONE)
    dealer.end()
    assert dealer.take(one) is None
    assert rows.looks == 0


def test_a_lost_bundle_that_any_other_could_stand_in_for_is_missed_if_nobody_stands() -> None:
    now = 0.0
    rows = Rows(10)
    dealer = dealer_with(rows, linger=lambda: 0.0, clock=lambda: now)
    one, two = served(dealer, ONE, TWO)
    assert dealer.take(one)
    dealer.lost(one)
    now = 60.0
    assert not dealer.deserted(5.0), "the other one stands"
    dealer.lost(two)
    now = 64.0
    assert dealer.deserted(5.0)
    stand(dealer, 1, 1, TWO)
    assert not dealer.deserted(5.0)


def test_a_linger_that_grows_between_two_questions_makes_nobody_wait_for_longer_than_that() -> None:
    """The driver was measured in between, or a reader has noted a longer micro-batch."""

    class Due(Rows):
        def due_in(self) -> float | None:
            return 0.5  # and nobody says so

    lingers = itertools.chain([0.0], itertools.repeat(0.1))
    began = time.monotonic()
    dealer = dealer_with(Due(5), linger=lambda: next(lingers), clock=lambda: time.monotonic() - began)
    assert taken_within_two_seconds(dealer) == [[0, 5]]


def test_rows_that_fill_a_batch_after_nothing_was_there_do_not_linger_either() -> None:
    class Due(Rows):
        def due_in(self) -> float | None:
            return 0.01

    supply = Due(10)
    dealer, _, _ = dealer_of(supply, most=10, linger=60.0)
    [one] = served(dealer, ONE)
    assert rows_of(dealer, one) == [0, 10]
    done(dealer, one, report())
    taken: list[Any] = []
    thread = in_background(lambda: taken.append(rows_of(dealer, one)))
    assert comes_true(lambda: supply.looks >= 2)
    supply.rows = 100  # and nobody says so
    thread.join(2)
    dealer.end()
    assert taken == [[10, 20]]


def test_what_is_published_wakes_nobody_who_does_not_wait_for_it() -> None:
    dealer, published, channels = dealer_of(Rows(10))
    one, two = served(dealer, ONE, TWO)
    assert rows_of(dealer, one) == [0, 10]
    thread = in_background(lambda: dealer.take(two))
    await_waiter(channels)
    dealer.done(one, report())
    assert dealer.publish_next(0)
    assert published.batches == [(0, [0, 10])]
    assert channels.notified == 0, "there is nothing that the watcher could cut"
    dealer.end()
    thread.join(5)


def test_what_is_published_wakes_who_was_too_far_ahead() -> None:
    dealer, _, channels = dealer_of(Rows(10_000))
    slow, fast = served(dealer, ONE, TWO)
    rows_of(dealer, slow)
    for _ in range(AHEAD * 2 - 1):
        rows_of(dealer, fast)
        dealer.done(fast, report())
    taken: list[Any] = []
    thread = in_background(lambda: taken.append(rows_of(dealer, fast)))
    await_waiter(channels)
    dealer.done(slow, report())
    assert dealer.publish_next(0)
    thread.join(2)
    dealer.end()
    assert len(taken) == 1


def taken_within_two_seconds(dealer: Dealer) -> list[Any]:
    """What the only bundle of a dealer gets first."""
    [one] = served(dealer, ONE)
    taken: list[Any] = []
    thread = in_background(lambda: taken.append(rows_of(dealer, one)))
    thread.join(2)
    dealer.end()
    return taken


def comes_true(what: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 5
    while not what() and time.monotonic() < deadline:
        time.sleep(0.001)
    return what()


def await_waiter(channels: Channels) -> None:
    """Wait until the watcher waits, and forget what it was told before."""
    assert comes_true(lambda: channels.waiting > 0)
    with channels.lock:
        channels.notified = 0
