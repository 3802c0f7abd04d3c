"""For how long bundles wait, and for what: every second once, whoever asks and however often."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from dealing import ONE, TWO, Channels, Published, Rows, done, in_background, report, rows_of, served, stand

from penstock.cluster.model import Slot
from penstock.engine.message.shares import Bundle
from penstock.engine.query.pacing import Pacer
from penstock.engine.standing.batches import Standing
from penstock.engine.standing.dealer import AHEAD, Dealer
from penstock.engine.standing.waits import MOST_LEFT, Reason, Waits
from penstock.monitor.report import ShareTimes
from penstock.monitor.sample import Waited

THREE = Bundle(Slot("c", 0), 3)


def bundle(of: Bundle = ONE, turn: int = 1, index: int = 0) -> Standing:
    return Standing(turn, index, of, Pacer(0.05, 10, 10), threading.Condition())


def waits(turn: int = 1) -> Waits:
    made = Waits()
    made.serve(turn, 0.0)
    return made


def times(told: Waits, standing: Standing) -> ShareTimes | None:
    [one] = told.told_with(standing, report(), 0.5)
    return one.times


# The account


def test_a_bundle_waits_for_one_reason_after_the_other() -> None:
    account, one = waits(), bundle()
    account.begin(one, 10.0)
    account.because(Reason.ROOM, 13.0)
    account.because(Reason.INPUT, 15.0)
    account.because(None, 16.0)
    account.end(one, 20.0)
    assert times(account, one) == ShareTimes(0.5, 4.0, 2.0), "while a batch is cut, it waits for neither"


def test_bundles_that_began_at_different_times_wait_for_the_same_reason() -> None:
    account, one, two = waits(), bundle(), bundle(TWO)
    account.begin(one, 0.0)
    account.begin(two, 4.0)
    account.because(Reason.ROOM, 5.0)
    account.end(two, 7.0)
    account.end(one, 8.0)
    assert times(account, one) == ShareTimes(0.5, 5.0, 3.0)
    assert times(account, two) == ShareTimes(0.5, 1.0, 2.0)


def test_what_is_told_once_is_not_told_again() -> None:
    account, one = waits(), bundle(THREE)
    account.begin(one, 0.0)
    assert account.tell(10.0) == [Waited("c/0", None, 3, 30.0, 0.0)], "three instances wait"
    account.because(Reason.ROOM, 11.0)
    account.end(one, 12.0)
    assert times(account, one) == ShareTimes(0.5, 1.0, 1.0), "of the one instance that has reported"
    assert account.tell(13.0) == [Waited("c/0", None, 3, 0.0, 0.0)], "who works waits for 0 s, which is known"


def test_why_bundles_waited_an_hour_ago_says_nothing_of_who_comes_now() -> None:
    account, one = waits(), bundle()
    account.begin(one, 0.0)
    account.because(Reason.ROOM, 0.0)
    account.end(one, 1.0)
    assert times(account, one) == ShareTimes(0.5, 0.0, 1.0)
    account.begin(one, 3600.0)
    account.end(one, 3602.0)
    assert times(account, one) == ShareTimes(0.5, 2.0, 0.0)


def test_a_bundle_of_the_next_turn_waits_only_from_when_it_is_served() -> None:
    account, old, new = waits(), bundle(), bundle(TWO, turn=2)
    account.begin(old, 0.0)
    account.begin(new, 1.0)
    assert [one.slot for one in account.tell(2.0)] == ["a/0"]
    account.serve(2, 5.0)
    account.end(old, 6.0)
    assert account.tell(7.0) == [Waited("a/0", None, 1, 4.0, 0.0), Waited("b/0", None, 1, 2.0, 0.0)]


def test_what_a_bundle_has_waited_that_is_gone_is_told_too() -> None:
    account, one = waits(), bundle()
    account.begin(one, 0.0)
    account.leave(one, 3.0)
    account.end(one, 4.0)  # its thread finds out later
    assert account.tell(5.0) == [Waited("a/0", None, 1, 3.0, 0.0)]
    assert account.tell(6.0) == []


def test_where_nobody_asks_little_is_kept_of_bundles_that_are_gone() -> None:
    account = waits()
    for _ in range(2 * MOST_LEFT):
        one = bundle()
        account.begin(one, 0.0)
        account.leave(one, 1.0)
    assert len(account.tell(2.0)) == MOST_LEFT


# As a dealer keeps it


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Waiter:
    """A dealer of ten rows a batch in a time of its own, and its first bundle, which asks for work."""

    def __init__(self, rows: Rows) -> None:
        self.clock, self.rows, self.channels = Clock(), rows, Channels()
        self.linger = 0.0
        self.dealer = Dealer(
            self.channels,  # type: ignore[arg-type]
            ["out"],
            lambda: Pacer(0.05, 10, 10),
            lambda: self.linger,
            Published(rows),
            clock=self.clock,
        )
        self.dealer.feed_from(rows)
        self.dealer.open()

    def after(self, seconds: float, change: Callable[[], Any]) -> int:
        """Let a bundle wait for so long, and then change something, which wakes it. Returns how often it had looked
        before."""
        with self.while_waiting():
            self.clock.now += seconds
            change()
            self.channels.notify()
            return self.rows.looks

    @contextmanager
    def while_waiting(self, looks: int = -1) -> Iterator[None]:
        """As soon as the watcher waits, after it has looked more often than this. It goes on waiting meanwhile, also if
        it waits for milliseconds only: to go on, it needs the lock."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            with self.channels.lock:
                if self.rows.looks > looks and self.channels.waiting:
                    yield
                    return
            time.sleep(0.001)
        raise AssertionError("nobody waits")

    def told(self) -> tuple[float, float]:
        waited = self.dealer.waited()
        return sum(one.input for one in waited), sum(one.room for one in waited)


def test_a_bundle_waits_for_rows_and_then_for_room() -> None:
    waiter = Waiter(Rows(0))
    [one] = served(waiter.dealer, ONE)
    thread = in_background(lambda: rows_of(waiter.dealer, one))
    looks = waiter.after(3.0, lambda: (setattr(waiter.channels, "is_full", True), setattr(waiter.rows, "rows", 10)))
    with waiter.while_waiting(looks):
        pass
    waiter.after(2.0, lambda: setattr(waiter.channels, "is_full", False))
    thread.join(5)
    assert waiter.told() == (3.0, 2.0)


@pytest.mark.parametrize("reason", ["paused", "closed"])
def test_rows_that_are_not_let_in_are_waited_for_as_room_is(reason: str) -> None:
    waiter = Waiter(Rows(10))
    [one] = served(waiter.dealer, ONE)
    if reason == "paused":
        waiter.dealer.pause()
    else:
        waiter.dealer.is_open = False
    thread = in_background(lambda: rows_of(waiter.dealer, one))
    waiter.after(4.0, lambda: waiter.dealer.pause(False) or waiter.dealer.open())
    thread.join(5)
    assert waiter.told() == (0.0, 4.0)


def test_while_no_rows_are_there_a_pause_holds_nothing_back() -> None:
    waiter = Waiter(Rows(0))
    [one] = served(waiter.dealer, ONE)
    waiter.dealer.pause()
    thread = in_background(lambda: waiter.dealer.take(one))
    waiter.after(4.0, waiter.dealer.end)
    thread.join(5)
    assert waiter.told() == (4.0, 0.0)


def test_rows_that_linger_are_waited_for_as_input_is() -> None:
    waiter = Waiter(Rows(5))
    waiter.linger = 60.0
    [one] = served(waiter.dealer, ONE)
    thread = in_background(lambda: rows_of(waiter.dealer, one))
    waiter.after(7.0, lambda: setattr(waiter.rows, "rows", 10))
    thread.join(5)
    assert waiter.told() == (7.0, 0.0)


def test_a_bundle_that_is_too_far_ahead_waits_for_room() -> None:
    waiter = Waiter(Rows(10_000))
    dealer = waiter.dealer
    slow, fast = served(dealer, ONE, TWO)
    rows_of(dealer, slow)
    for _ in range(AHEAD * 2 - 1):
        rows_of(dealer, fast)
        dealer.done(fast, report())
    thread = in_background(lambda: rows_of(dealer, fast))
    waiter.after(6.0, lambda: done(dealer, slow, report()))
    thread.join(5)
    assert [(one.slot, one.input, one.room) for one in dealer.waited()] == [("a/0", 0.0, 0.0), ("b/0", 0.0, 6.0)]


def test_all_that_wait_are_counted_and_not_only_who_has_the_watch() -> None:
    waiter = Waiter(Rows(0))
    threads = [
        in_background(lambda one=one: waiter.dealer.take(one))  # type: ignore[misc]
        for one in served(waiter.dealer, ONE, THREE)
    ]
    deadline = time.monotonic() + 5
    while waiter.dealer._roster.asking < 4 and time.monotonic() < deadline:
        time.sleep(0.001)
    waiter.after(5.0, lambda: None)
    assert sorted((one.slot, one.instances, one.input) for one in waiter.dealer.waited()) == [
        ("a/0", 1, 5.0),
        ("c/0", 3, 15.0),
    ]
    waiter.dealer.end()
    for thread in threads:
        thread.join(5)


def test_a_source_that_gives_none_of_the_rows_that_it_says_it_has_is_waited_for() -> None:
    waiter = Waiter(Rows(10))
    gave: list[int] = []

    def gives_none(*_: Any) -> None:
        gave.append(1)

    waiter.rows.cut = gives_none  # type: ignore[method-assign]
    [one] = served(waiter.dealer, ONE)
    thread = in_background(lambda: waiter.dealer.take(one))
    with waiter.while_waiting(0):
        waiter.clock.now += 2.0
        assert waiter.told() == (2.0, 0.0)
    waiter.dealer.end()
    thread.join(5)


def test_what_a_bundle_has_waited_goes_with_the_report_of_its_share() -> None:
    waiter, batches = Waiter(Rows(0)), list[Any]()
    waiter.dealer._publish = batches.extend  # type: ignore[method-assign]
    [one] = served(waiter.dealer, ONE)
    thread = in_background(lambda: rows_of(waiter.dealer, one))
    waiter.after(3.0, lambda: setattr(waiter.rows, "rows", 10))
    thread.join(5)
    waiter.clock.now = 3.5
    done(waiter.dealer, one, report())
    [[told]] = batches[0].reports
    assert told.times == ShareTimes(0.5, 3.0, 0.0)
    assert waiter.told() == (0.0, 0.0)


def test_a_task_that_spark_starts_again_does_not_wait_twice() -> None:
    waiter = Waiter(Rows(0))
    [before] = served(waiter.dealer, ONE)
    first = in_background(lambda: waiter.dealer.take(before))
    waiter.after(2.0, lambda: None)
    again = stand(waiter.dealer, 1, 0, ONE)
    first.join(5)
    second = in_background(lambda: waiter.dealer.take(again))
    waiter.after(3.0, lambda: None)
    assert waiter.told() == (5.0, 0.0)
    waiter.dealer.lost(before)
    waiter.dealer.end()
    second.join(5)
