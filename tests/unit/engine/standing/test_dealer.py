"""Who works on what: batches are cut for whoever asks, published in order, and never by somebody who is gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from dealing import (
    ONE,
    TWO,
    Channels,
    Published,
    Rows,
    dealer_of,
    done,
    in_background,
    report,
    rows_of,
    served,
    stand,
    takes_within,
)

from penstock.channels.records import NewSegment
from penstock.cluster.model import Slot
from penstock.engine.message.shares import Bundle
from penstock.engine.query.pacing import Pacer
from penstock.engine.standing.batches import CutBatch, OpenBatch, Standing
from penstock.engine.standing.dealer import AHEAD, Dealer
from penstock.engine.standing.roster import FIRST_SECONDS


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


def test_a_share_takes_as_long_as_a_bundle_has_it() -> None:
    """However long its batch waits for a bundle before that, or to be published after it."""
    now, rows, batches = 0.0, Rows(40, any_bundle=False), list[OpenBatch]()
    dealer = Dealer(Channels(), ["out"], lambda: Pacer(0.05, 10, 10), lambda: 0.0, batches.extend, clock=lambda: now)  # type: ignore[arg-type]
    dealer.feed_from(rows)
    dealer.open()
    slow, fast = served(dealer, ONE, TWO)
    rows_of(dealer, fast), rows_of(dealer, slow)
    now = 1.0
    dealer.done(fast, report())
    rows_of(dealer, fast)  # the second batch is cut while the slow bundle has the first
    now = 4.0
    dealer.done(fast, report())
    dealer.done(slow, report())
    rows_of(dealer, slow)
    now = 4.5
    done(dealer, slow, report())
    held = [[one.times.held for found in batch.reports for one in found or () if one.times] for batch in batches]
    assert held == [[4.0, 1.0], [0.5, 3.0]]


def test_a_batch_is_open_until_it_was_reported_and_all_open_ones_are_seen_at_one_moment() -> None:
    now, seen = 0.0, list[dict[int, float]]()
    dealer = Dealer(
        Channels(),  # type: ignore[arg-type]
        ["out"],
        lambda: Pacer(0.05, 10, 10),
        lambda: 0.0,
        lambda _: seen.append(dealer.open_batches),
        clock=lambda: now,
    )
    dealer.feed_from(Rows(40), 7)
    dealer.open()
    one, two = served(dealer, ONE, TWO)
    assert dealer.open_batches == {}
    now = 1.0
    rows_of(dealer, one)
    now = 1.5
    rows_of(dealer, two)
    done(dealer, two, report())
    assert dealer.open_batches == {7: 1.0, 8: 1.5}, "it waits for the one before it"
    done(dealer, one, report())
    assert seen == [{7: 1.0, 8: 1.5}]
    assert dealer.open_batches == {}


def test_complete_batches_that_wait_are_published_together() -> None:
    dealer, published, _ = dealer_of(Rows(40))
    one, two = served(dealer, ONE, TWO)
    rows_of(dealer, one)
    for _ in range(2):
        rows_of(dealer, two)
        dealer.done(two, report("b/0"))
    rows_of(dealer, two)
    assert not dealer.publish_next(0)
    dealer.done(one, report())
    assert dealer.publish_next(0)
    assert published.together == [3], "the fourth is not complete"
    assert published.batches == [(0, [0, 10]), (1, [10, 20]), (2, [20, 30])]
    assert dealer.rows_in_work == 10


def test_only_so_many_batches_are_published_together() -> None:
    dealer, published, _ = dealer_of(Rows(50))
    stands = served(dealer, ONE, TWO)
    for turn in range(5):
        rows_of(dealer, stands[turn % 2])
        dealer.done(stands[turn % 2], report())
    while dealer.publish_next(0, 2):
        pass
    assert published.together == [2, 2, 1]


def test_batches_that_cannot_be_published_together_all_stay_open() -> None:
    dealer, published, _ = dealer_of(Rows(20))
    [one] = served(dealer, ONE)
    for _ in range(2):
        rows_of(dealer, one)
        dealer.done(one, report())
    published.failure = OSError("no space left on device")
    with pytest.raises(OSError, match="no space"):
        dealer.publish_next(0)
    assert dealer.rows_in_work == 20
    published.failure = None
    assert dealer.publish_next(0)
    assert published.together == [2]
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


def test_a_gate_that_is_closed_for_good_cannot_be_opened() -> None:
    """A drain that begins while the query is let in again keeps it shut."""
    rows = Rows(10)
    dealer, _, _ = dealer_of(rows)
    [one] = served(dealer, ONE)
    dealer.close()
    dealer.open()
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


def test_files_are_shared_however_small_they_are() -> None:
    """Their bytes say nothing of the work: to read them may be all of it."""
    supply = Rows(100)
    supply.counts_rows = False
    dealer, _, _ = dealer_of(supply, most=1_000_000)
    one, two = served(dealer, ONE, TWO)
    two.asks, one.pacer.per_row = True, 1e-9
    assert rows_of(dealer, one) == [0, 50]


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


def by_key(
    parts: Sequence[float], batches: int, stall: float = 0.0, instances: Sequence[int] = (1, 1, 1, 1), first: int = 500
) -> list[int]:
    """How many rows each batch has where each bundle has such a part of all keys, and a row is a microsecond of work.
    The last bundle needs so many seconds more for its first share. A part of 0 is a bundle without any keys."""
    rows = Rows(10**9, any_bundle=False)
    dealer, _, _ = dealer_of(rows, most=1_000_000)
    stands = served(dealer, *(Bundle(Slot(str(index), 0), instances[index]) for index in range(len(parts))))
    for one in stands:
        one.pacer = Pacer(0.05, 1_000_000, first)
    working = [(one, part) for one, part in zip(stands, parts, strict=True) if part]
    rows.shared_by = [one.bundle for one, _ in working]
    found = []
    for batch in range(batches):
        sizes = []
        for one, part in working:
            start, stop = rows_of(dealer, one)
            mine, late = int((stop - start) * part), stall if batch == 0 and one is working[-1][0] else 0.0
            sizes.append((one, mine, mine * 1e-6 + late))
            found.append(stop - start) if one is working[0][0] else None
        for one, mine, busy in sizes:
            done(dealer, one, tuple(replace(told, busy=busy) for told in report(rows=mine)))
    return found


def test_batches_of_keys_that_are_not_even_grow_all_the_same() -> None:
    assert by_key([0.25, 0.25, 0.25, 0.25], 8)[-1] > 50_000
    assert by_key([0.27, 0.25, 0.26, 0.22], 8)[-1] > 50_000
    assert by_key([0.9, 0.1], 8)[-1] > 20_000
    assert by_key([0.7, 0.3], 20, instances=[3, 1], first=1, stall=0.3)[-1] > 20_000, "from batches of a few rows"
    assert by_key([0.7, 0.3], 20, instances=[2, 1], first=3)[-1] > 20_000


def test_batches_do_not_grow_before_all_bundles_are_known() -> None:
    rows = Rows(10**7, any_bundle=False)
    dealer, _, _ = dealer_of(rows, most=1_000_000)
    quick, slow = served(dealer, ONE, TWO)
    for one in (quick, slow):
        one.pacer = Pacer(0.5, 1_000_000)
    sizes = []
    assert dealer.take(slow) is not None
    for _ in range(6):
        start, stop = rows_of(dealer, quick)
        sizes.append(stop - start)
        done(dealer, quick, tuple(replace(told, busy=1e-4) for told in report()))
    assert sizes == [1_000] * 6, "the other one may need a second for a row"


def test_one_slow_share_does_not_make_the_batches_of_keys_small_for_good() -> None:
    sizes = by_key([0.4, 0.3, 0.2, 0.1], 12, stall=5.0)
    assert sizes[1] < sizes[0], "nobody knows yet that it was slow only once"
    assert sizes[-1] > 50_000


def test_a_bundle_without_keys_does_not_keep_batches_small() -> None:
    assert by_key([0.5, 0.5, 0.0], 8)[-1] > 50_000


def test_a_batch_that_cannot_be_published_stays_open() -> None:
    dealer, published, _ = dealer_of(Rows(10))
    [one] = served(dealer, ONE)
    rows_of(dealer, one)
    published.failure = OSError("no space left on device")
    with pytest.raises(OSError, match="no space"):
        done(dealer, one, report())
    assert dealer.in_batch


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


def test_a_seat_that_nobody_ever_takes_is_deserted_in_the_end() -> None:
    """Its task has started and hangs before it connects, so Spark sees nothing wrong with it."""
    now = 0.0
    rows = Rows(10, any_bundle=False)
    dealer = Dealer(Channels(), [], lambda: Pacer(0.05, 10, 10), lambda: 0.0, Published(rows), clock=lambda: now)  # type: ignore[arg-type]
    dealer.feed_from(rows)
    dealer.open()
    one = stand(dealer, 1, 0, ONE)
    dealer.serve(1, (ONE, TWO))
    assert dealer.take(one)
    done(dealer, one, report())
    now = 60.0
    assert not dealer.deserted(5.0), "a first start may take long"
    now = FIRST_SECONDS + 5.0
    assert dealer.deserted(5.0)


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


def test_there_is_nothing_to_do_where_a_bundle_has_asked_and_no_rows_wait() -> None:
    rows = Rows(0)
    dealer, _, _ = dealer_of(rows)
    [one] = served(dealer, ONE)
    assert not dealer.has_nothing_to_do, "nobody has looked: what a source has is not known yet"
    rows.rows = 10
    assert rows_of(dealer, one) == [0, 10]
    assert not dealer.has_nothing_to_do, "all rows are cut, and their batch is open"
    done(dealer, one, report())
    assert dealer.has_nothing_to_do
    rows.rows = 20
    assert not dealer.has_nothing_to_do


def test_rows_of_a_batch_that_its_bundle_left_undone_are_something_to_do() -> None:
    dealer, _, _ = dealer_of(Rows(10))
    [one] = served(dealer, ONE)
    assert rows_of(dealer, one) == [0, 10]
    dealer.lost(one)
    assert not dealer.has_nothing_to_do
    dealer.serve(2, [ONE])
    assert not dealer.has_nothing_to_do


def test_a_look_that_fails_says_nothing() -> None:
    class Away(Rows):
        def look(self) -> None:
            raise OSError("the storage is away")

    dealer, _, _ = dealer_of(Away(0))
    [one] = served(dealer, ONE)
    with pytest.raises(OSError, match="away"):
        dealer.take(one)
    assert not dealer.has_nothing_to_do


def test_what_a_share_costs_beside_its_function_is_known_over_turns() -> None:
    now = 0.0
    rows = Rows(10)
    dealer = Dealer(Channels(), [], lambda: Pacer(0.05, 10, 10), lambda: 0.0, Published(rows), clock=lambda: now)  # type: ignore[arg-type]
    dealer.feed_from(rows)
    dealer.open()
    [one] = served(dealer, ONE)
    assert dealer.cost_of_a_share is None
    assert dealer.take(one)
    now = 0.5
    done(dealer, one, (replace(report()[0], busy=0.1),))
    assert dealer.cost_of_a_share == pytest.approx(0.4)
    served(dealer, ONE, turn=2)
    assert dealer.cost_of_a_share == pytest.approx(0.4)
