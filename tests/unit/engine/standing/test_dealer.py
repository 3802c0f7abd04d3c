"""Who works on what: batches are cut for whoever asks, published in order, and never by somebody who is gone."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock.channels.records import NewSegment
from penstock.cluster.model import Slot
from penstock.engine.message.shares import Bundle, Share
from penstock.engine.query.feeds import Batch
from penstock.engine.query.pacing import Pacer
from penstock.engine.standing.batches import CutBatch, OpenBatch, Standing
from penstock.engine.standing.dealer import AHEAD, Dealer
from penstock.monitor.report import BundleReport

ONE = Bundle(Slot("a", 0), 1)
TWO = Bundle(Slot("b", 0), 1)


class Channels:
    """The part of `SeenChannels` that a dealer needs."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self.is_full = False
        self.room = 1_000_000
        self.last_batch: int | None = None

    def full(self, channel: str, coming: Sequence[NewSegment] = ()) -> bool:
        return self.is_full or sum(segment.rows for segment in coming) >= self.room

    def pause(self, timeout: float) -> None:
        with self.lock:
            self._changed.wait(timeout)

    def notify(self) -> None:
        with self.lock:
            self._changed.notify_all()


class Rows:
    """A supply of numbered rows."""

    def __init__(self, rows: int, any_bundle: bool = True) -> None:
        self.rows, self.any_bundle, self.counts_rows = rows, any_bundle, True
        self.position = self.published = 0
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self.may_go_on.set()

        self.looks = 0

    def look(self) -> None:
        self.looks += 1

    def available(self) -> int:
        return self.rows - self.position

    def due_in(self) -> float | None:
        return None

    def cut(self, most: int, bundles: Sequence[Bundle]) -> CutBatch | None:
        self.begun.set()
        assert self.may_go_on.wait(5)
        start, stop = self.position, min(self.position + most, self.rows)
        self.position = stop
        shares = tuple(Share(bundle, load={"rows": [start, stop]}) for bundle in bundles)
        return CutBatch(Batch({}, stop - start), shares, {"0": stop})

    def go_back(self, ends: Mapping[str, Any] | None) -> None:
        self.position = ends["0"] if ends else self.published


class Published:
    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.batches: list[tuple[int, list[Any]]] = []
        self.failure: Exception | None = None
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self.may_go_on.set()

    def __call__(self, batch: OpenBatch) -> None:
        self.begun.set()
        assert self.may_go_on.wait(5)
        if self.failure is not None:
            raise self.failure
        self.batches.append((batch.number, batch.cut.shares[0].load["rows"]))  # type: ignore[index]
        self.rows.published = batch.cut.ends["0"]


def report(slot: str = "a/0", rows: int = 1) -> tuple[BundleReport, ...]:
    return (BundleReport(slot, 1, 0, None, "", 0, rows, 0, {}, 0.01, 0.01, 0.0, 0.01, 0.0, 0.0),)


def dealer_of(rows: Rows, most: int = 10, linger: float = 0.0) -> tuple[Dealer, Published, Channels]:
    channels, published = Channels(), Published(rows)
    dealer = Dealer(channels, ["out"], lambda: Pacer(0.05, most, most), lambda: linger, published)  # type: ignore[arg-type]
    dealer.feed_from(rows)
    dealer.open()
    return dealer, published, channels


def stand(dealer: Dealer, turn: int, index: int, bundle: Bundle, attempt: int = 0) -> Standing:
    standing = dealer.stand(turn, index, bundle, attempt)
    assert standing is not None
    return standing


def served(dealer: Dealer, *bundles: Bundle, turn: int = 1) -> list[Standing]:
    stands = [stand(dealer, turn, index, bundle) for index, bundle in enumerate(bundles)]
    dealer.serve(turn, bundles)
    return stands


def done(dealer: Dealer, standing: Standing, reports: tuple[BundleReport, ...]) -> bool:
    """A bundle has done its share, and what is complete is published."""
    wanted = dealer.done(standing, reports)
    while dealer.publish_next(0):
        pass
    return wanted


def rows_of(dealer: Dealer, standing: Standing) -> Any:
    dealt = dealer.take(standing)
    assert dealt is not None
    return dealt.share.load["rows"]  # type: ignore[index]


def test_whoever_asks_gets_the_next_rows() -> None:
    dealer, published, _ = dealer_of(Rows(30))
    one, two = served(dealer, ONE, TWO)
    assert [rows_of(dealer, one), rows_of(dealer, two)] == [[0, 10], [10, 20]]
    done(dealer, one, report())
    assert rows_of(dealer, one) == [20, 30]
    assert published.batches == [(0, [0, 10])]


def test_batches_are_published_in_the_order_in_which_they_were_cut() -> None:
    dealer, published, _ = dealer_of(Rows(20))
    one, two = served(dealer, ONE, TWO)
    rows_of(dealer, one), rows_of(dealer, two)
    done(dealer, two, report())
    assert published.batches == []
    assert not dealer.idle
    done(dealer, one, report())
    assert published.batches == [(0, [0, 10]), (1, [10, 20])]
    assert dealer.idle


def test_a_slow_bundle_holds_the_others_back_only_after_a_while() -> None:
    dealer, _, _ = dealer_of(Rows(10_000))
    slow, fast = served(dealer, ONE, TWO)
    rows_of(dealer, slow)
    for _ in range(2 * AHEAD - 1):
        rows_of(dealer, fast)
        done(dealer, fast, report())
    assert takes_within(dealer, fast, 0.05) is None


def test_the_share_of_a_lost_bundle_goes_to_another_and_its_result_is_refused() -> None:
    dealer, published, _ = dealer_of(Rows(10))
    one, two = served(dealer, ONE, TWO)
    assert rows_of(dealer, one) == [0, 10]
    dealer.lost(one)
    dealt = dealer.take(two)
    assert dealt is not None and dealt.share.bundle == TWO and dealt.batch.number == 0
    assert not done(dealer, one, report())
    assert published.batches == []
    assert done(dealer, two, report())
    assert published.batches == [(0, [0, 10])]


def test_a_task_that_spark_starts_again_takes_the_seat_and_the_share() -> None:
    dealer, published, _ = dealer_of(Rows(10))
    [before] = served(dealer, ONE)
    rows_of(dealer, before)
    again = stand(dealer, 1, 0, ONE)
    assert dealer.take(before) is None
    assert rows_of(dealer, again) == [0, 10]
    assert not done(dealer, before, report())
    done(dealer, again, report())
    assert published.batches == [(0, [0, 10])]


def test_every_bundle_gets_its_share_of_keys_and_only_that() -> None:
    dealer, published, _ = dealer_of(Rows(10, any_bundle=False))
    one, two = served(dealer, ONE, TWO)
    first, second = dealer.take(one), dealer.take(two)
    assert first is not None and second is not None
    assert first.batch is second.batch
    assert (first.share.bundle, second.share.bundle) == (ONE, TWO)
    done(dealer, one, report())
    assert published.batches == []
    done(dealer, two, report())
    assert published.batches == [(0, [0, 10])]


def test_bundles_of_the_turn_before_leave_and_those_of_the_next_begin() -> None:
    dealer, published, _ = dealer_of(Rows(30))
    [old] = served(dealer, ONE)
    assert rows_of(dealer, old) == [0, 10]
    [new] = served(dealer, TWO, turn=2)
    assert rows_of(dealer, new) == [10, 20]
    done(dealer, old, report())
    assert dealer.take(old) is None
    done(dealer, new, report())
    assert [number for number, _ in published.batches] == [0, 1]


def test_keys_change_hands_when_what_was_read_of_them_is_published() -> None:
    dealer, published, _ = dealer_of(Rows(20, any_bundle=False))
    [old] = served(dealer, ONE)
    rows_of(dealer, old)
    [new] = served(dealer, TWO, turn=2)
    taken: list[Any] = []
    thread = in_background(lambda: taken.append(rows_of(dealer, new)))
    thread.join(0.05)
    assert taken == []
    done(dealer, old, report())
    thread.join(5)
    assert taken == [[10, 20]]
    done(dealer, new, report())
    assert published.batches == [(0, [0, 10]), (1, [10, 20])]


def test_keys_of_a_bundle_that_is_gone_for_good_are_cut_anew_for_the_next_turn() -> None:
    dealer, published, _ = dealer_of(Rows(20, any_bundle=False))
    one, two = served(dealer, ONE, TWO)
    rows_of(dealer, one), rows_of(dealer, two)
    done(dealer, two, report())
    dealer.lost(one)  # with its executor
    [new] = served(dealer, TWO, turn=2)
    assert rows_of(dealer, new) == [0, 10]
    done(dealer, new, report())
    assert published.batches == [(0, [0, 10])]


def test_nothing_is_cut_while_the_gate_is_closed_paused_or_there_is_no_room() -> None:
    rows = Rows(10)
    dealer, _, channels = dealer_of(rows)
    [one] = served(dealer, ONE)
    dealer.pause()
    assert takes_within(dealer, one, 0.05) is None
    channels.is_full = True
    dealer.pause(False)
    assert takes_within(dealer, one, 0.05) is None
    assert dealer.throttled
    dealer.close()
    channels.is_full = False
    assert takes_within(dealer, one, 0.05) is None
    assert rows.position == 0


def test_what_was_written_and_is_not_published_yet_takes_room_too() -> None:
    dealer, _, channels = dealer_of(Rows(1_000))
    [one] = served(dealer, ONE)
    channels.room = 15
    written = NewSegment("out", "out/0.arrow", 10, 100, "a/0", 0.0, 0.0)
    for _ in range(2):
        rows_of(dealer, one)
        dealer.done(one, (replace(report()[0], segments=(written,)),))
    assert takes_within(dealer, one, 0.05) is None
    assert dealer.throttled


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


def shares_of(rows: int, per_row: float | None) -> list[int]:
    """How many rows each of two bundles that wait gets in its turn, where a row is so many seconds of work."""
    supply = Rows(rows)
    dealer, _, _ = dealer_of(supply, most=1_000_000)
    one, two = served(dealer, ONE, TWO)
    found = []
    for standing, other in ((one, two), (two, one)):
        if supply.available():
            standing.pacer.per_row, other.asks = per_row, other.work is None
            start, stop = rows_of(dealer, standing)
            found.append(stop - start)
    return found


def test_bundles_share_what_is_there_if_that_is_worth_it() -> None:
    assert shares_of(2_000, per_row=1e-6) == [2_000], "2 ms of work"
    assert shares_of(20_000, per_row=1e-6) == [10_000, 10_000]
    assert shares_of(40, per_row=0.002) == [20, 20], "few rows, and much work"
    assert shares_of(200, per_row=None) == [200], "nobody knows how much work they are"


def test_rows_that_fill_a_batch_do_not_linger() -> None:
    """They wait for a bundle: a source that has them cannot be followed, which whoever scales has to see."""
    supply = Rows(15)
    dealer, _, _ = dealer_of(supply, most=10, linger=60.0)
    [one] = served(dealer, ONE)
    assert rows_of(dealer, one) == [0, 10]
    assert dealer.lingers, "five rows wait for more"
    supply.rows = 30
    assert not dealer.lingers


def test_files_are_shared_however_small_they_are() -> None:
    """Their bytes say nothing of the work: to read them may be all of it."""
    supply = Rows(100)
    supply.counts_rows = False
    dealer, _, _ = dealer_of(supply, most=1_000_000)
    one, two = served(dealer, ONE, TWO)
    two.asks, one.pacer.per_row = True, 1e-9
    assert rows_of(dealer, one) == [0, 50]


@pytest.mark.parametrize("linger", [0.0095, 0.0105])
def test_rows_that_have_lingered_between_two_looks_at_the_clock_are_taken_at_once(linger: float) -> None:
    """Nobody says that rows of a rate source are due: a bundle that took the end of their lingering for want of room
    would sleep for seconds."""
    ticks = itertools.count()
    published = Published(supply := Rows(5))
    pacer, clock = lambda: Pacer(0.05, 10, 10), lambda: next(ticks) / 1000
    dealer = Dealer(Channels(), ["out"], pacer, lambda: linger, published, clock=clock)  # type: ignore[arg-type]
    dealer.feed_from(supply)
    dealer.open()
    [one] = served(dealer, ONE)
    taken: list[Any] = []
    thread = in_background(lambda: taken.append(rows_of(dealer, one)))
    thread.join(2)
    dealer.end()
    assert taken == [[0, 5]]


def test_few_rows_go_to_all_bundles_in_turn() -> None:
    rows = Rows(0)
    dealer, _, channels = dealer_of(rows)
    bundles = [Bundle(Slot(name, 0), 1) for name in "abc"]
    took: list[str] = []
    quick = tuple(replace(one, busy=1e-5) for one in report())

    def work(standing: Standing) -> None:
        while (dealt := dealer.take(standing)) is not None:
            took.append(dealt.share.bundle.slot.machine)
            done(dealer, standing, quick)

    threads = [in_background(lambda one=one: work(one)) for one in served(dealer, *bundles)]  # type: ignore[misc]
    for count in range(1, 13):
        time.sleep(0.01)  # all of them wait again
        rows.rows += 5
        channels.notify()
        deadline = time.monotonic() + 5
        while len(took) < count and time.monotonic() < deadline:
            time.sleep(0.001)
    dealer.end()
    for thread in threads:
        thread.join(5)
    assert {name: took.count(name) for name in "abc"} == dict.fromkeys("abc", 4)


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


def test_a_source_that_counts_bytes_is_paced_by_bytes() -> None:
    class Files(Rows):
        def cut(self, most: int, bundles: Sequence[Bundle]) -> CutBatch | None:
            found = super().cut(most, bundles)
            assert found is not None
            shares = tuple(replace(one, load={"rows": [], "ranges": [["a file", most]]}) for one in found.shares)
            return replace(found, shares=shares)

    dealer, _, _ = dealer_of(Files(10_000_000), most=1_000)
    [one] = served(dealer, ONE)
    one.pacer = Pacer(0.05, 1_000_000, 1_000)
    assert dealer.take(one) is not None
    done(dealer, one, report(rows=3))
    assert one.pacer.bound() > 1_000, "a full batch that was fast makes the next one larger"


def test_a_batch_that_cannot_be_published_stays_open() -> None:
    dealer, published, _ = dealer_of(Rows(10))
    [one] = served(dealer, ONE)
    rows_of(dealer, one)
    published.failure = OSError("no space left on device")
    with pytest.raises(OSError, match="no space"):
        done(dealer, one, report())
    assert dealer.in_batch


def in_background(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_query_that_has_ended_publishes_nothing_more_and_its_end_waits_for_what_it_publishes() -> None:
    dealer, published, _ = dealer_of(Rows(20))
    one, two = served(dealer, ONE, TWO)
    rows_of(dealer, one), rows_of(dealer, two)
    published.may_go_on.clear()
    thread = in_background(lambda: done(dealer, one, report()))
    assert published.begun.wait(5)
    assert not dealer.end(0.05)
    published.may_go_on.set()
    assert dealer.end(5)
    thread.join(5)
    assert not done(dealer, two, report())
    assert published.batches == [(0, [0, 10])]


def test_what_is_cut_anew_begins_behind_what_is_being_published() -> None:
    dealer, published, _ = dealer_of(Rows(40, any_bundle=False))
    one, two = served(dealer, ONE, TWO)
    for standing in (one, two):
        rows_of(dealer, standing)
    done(dealer, two, report())
    rows_of(dealer, two)  # of the second batch, for which the other bundle has no time yet
    published.may_go_on.clear()
    thread = in_background(lambda: done(dealer, one, report()))
    assert published.begun.wait(5)
    dealer.lost(one)
    dealer.lost(two)
    [new] = served(dealer, TWO, turn=2)
    published.may_go_on.set()
    thread.join(5)
    assert rows_of(dealer, new) == [20, 30]
    done(dealer, new, report())
    assert published.batches == [(0, [0, 20]), (1, [20, 30])]


def test_a_batch_that_is_being_cut_for_bundles_that_leave_is_cut_again() -> None:
    rows = Rows(20, any_bundle=False)
    dealer, published, _ = dealer_of(rows)
    one, _ = served(dealer, ONE, TWO)
    rows.may_go_on.clear()
    leaves: list[Any] = []
    thread = in_background(lambda: leaves.append(dealer.take(one)))
    assert rows.begun.wait(5)
    assert not dealer.idle, "a drain must see it"
    [new] = served(dealer, TWO, turn=2)
    rows.may_go_on.set()
    thread.join(5)
    assert leaves == [None]
    assert rows_of(dealer, new) == [0, 10]
    done(dealer, new, report())
    assert published.batches == [(0, [0, 10])]


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


def takes_within(dealer: Dealer, standing: Standing, seconds: float) -> Any:
    """What a bundle gets in this time; None if it waits longer: it then goes on waiting."""
    taken: list[Any] = []
    thread = threading.Thread(target=lambda: taken.append(dealer.take(standing)), daemon=True)
    thread.start()
    thread.join(seconds)
    return taken[0] if taken else None


def test_an_attempt_that_spark_has_given_up_does_not_take_the_seat_of_the_one_after_it() -> None:
    """Its executor was cut off for minutes and is back. If the live attempt had to leave, nobody would be there when
    Spark ends the old one."""
    dealer, published, _ = dealer_of(Rows(20, any_bundle=False))
    _, two = served(dealer, ONE, TWO)
    live = stand(dealer, 1, 0, ONE, attempt=1)
    assert dealer.stand(1, 0, ONE, attempt=0) is None
    assert rows_of(dealer, live) == rows_of(dealer, two) == [0, 20]
    done(dealer, live, report())
    done(dealer, two, report("b/0"))
    assert published.batches == [(0, [0, 20])]
    assert stand(dealer, 1, 0, ONE, attempt=1) is not live, "the same attempt takes its seat again"


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


def test_what_is_published_does_not_take_its_room_twice() -> None:
    """Between the catalog and the last name of a file, a batch is in the channel and still open."""
    dealer, published, channels = dealer_of(Rows(20))
    channels.room = 10
    [one] = served(dealer, ONE)
    rows_of(dealer, one)
    segment = NewSegment("out", "out/1.arrow", 10, 100, "a/0", 0.0, 0.0)
    dealer.done(one, tuple(replace(each, segments=(segment,)) for each in report()))
    with channels.lock:
        assert not dealer.lets_in()
    published.may_go_on.clear()
    thread = threading.Thread(target=lambda: dealer.publish_next(1), daemon=True)
    thread.start()
    assert published.begun.wait(5)
    channels.last_batch = 0
    with channels.lock:
        assert dealer.lets_in()
    published.may_go_on.set()
    thread.join(5)


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


def test_a_seat_that_is_empty_while_work_waits_for_it_is_deserted() -> None:
    """Its task still runs for Spark, so nobody else would notice: the worker is stopped, or its connection is dead."""
    now = 0.0
    rows = Rows(10, any_bundle=False)
    channels = Channels()
    dealer = Dealer(channels, [], lambda: Pacer(0.05, 10, 10), lambda: 0.0, Published(rows), clock=lambda: now)  # type: ignore[arg-type]
    dealer.feed_from(rows)
    dealer.open()
    one, two = served(dealer, ONE, TWO)
    assert dealer.take(one) and dealer.take(two)
    done(dealer, one, report())
    assert not dealer.deserted(5.0)
    dealer.lost(two)
    assert not dealer.deserted(5.0), "Spark may start the task again"
    now = 6.0
    assert dealer.deserted(5.0)
    stand(dealer, 1, 1, TWO)
    assert not dealer.deserted(5.0)


def test_a_share_that_is_cut_again_after_silence_may_take_longer() -> None:
    """A function that lets no other thread run for longer than a silence is given up and its turn begun anew. If every
    turn allowed it as little as the first, its rows would never be done."""
    rows = Rows(10, any_bundle=False)
    dealer, published, _ = dealer_of(rows)
    one, two = served(dealer, ONE, TWO)
    dealer.take(one)
    dealt = dealer.take(two)
    assert dealt is not None
    done(dealer, one, report())
    dealt.silences += 1  # as the server counts
    dealer.lost(two)
    one, two = served(dealer, ONE, TWO, turn=2)
    again = [dealer.take(one), dealer.take(two)]
    assert [dealt.silences for dealt in again if dealt is not None] == [1, 1]
    done(dealer, one, report())
    done(dealer, two, report("b/0"))
    assert len(published.batches) == 1
    rows.rows += 10
    later = dealer.take(one)
    assert later is not None
    assert later.silences == 0, "what was silent is done"
