"""Counts: every batch once, in intervals, in the window that slides over them, and in the totals of the run."""

from __future__ import annotations

import gc
import threading

import pytest
from monitor_fakes import levels, sample

from penstock.monitor.counts import Counts
from penstock.monitor.latency import LatencySketch
from penstock.monitor.totals import OperatorTotals


def test_a_sample_is_in_the_interval_in_which_it_finished() -> None:
    counts = Counts(10, 20, since=100, unwritten=100)
    counts.add(sample("work", 109.9, rows=1))
    counts.add(sample("work", 110.0, rows=2))
    counts.add(sample("out", 112.0, rows=4))
    first, second = counts.unwritten(120)
    assert (first.start, first.stop, first.operators["work"].rows) == (100, 110, 1)
    assert {name: totals.rows for name, totals in second.operators.items()} == {"work": 2, "out": 4}
    assert counts.unwritten(130) == []


def test_an_interval_is_handed_out_once_it_is_over() -> None:
    counts = Counts(10, 20, since=103, unwritten=100)
    counts.add(sample("work", 105, rows=1))
    assert counts.unwritten(109.9) == []
    [closed] = counts.unwritten(110)
    assert (closed.start, closed.seconds) == (103, 7)


def test_what_comes_too_late_counts_in_the_next_interval() -> None:
    counts = Counts(10, 20, since=100, unwritten=100)
    counts.unwritten(110)
    counts.add(sample("work", 109.9, rows=5))
    [late] = counts.unwritten(120)
    assert (late.start, late.operators["work"].rows) == (110, 5)


def test_at_the_end_the_interval_that_goes_on_is_handed_out_too() -> None:
    counts = Counts(10, 20, since=100, unwritten=100)
    counts.add(sample("work", 101, rows=1))
    counts.add(sample("work", 112, rows=2))
    first, last = counts.unwritten(114, last=True)
    assert (first.seconds, last.seconds, last.operators["work"].rows) == (10, 4, 2)
    assert counts.unwritten(115, last=True) == []


def test_the_window_slides() -> None:
    counts = Counts(10, 3, since=0)
    for index in range(10):
        counts.add(sample("work", index * 10 + 5, rows=10**index))
        totals = counts.window(index * 10 + 6)
        # Three intervals that are over, and the one that goes on.
        kept = range(max(index - 3, 0), index + 1)
        assert totals.operators["work"].rows == sum(10**one for one in kept)
        assert (totals.since, totals.until) == (kept[0] * 10, index * 10 + 6)
        assert totals.samples == min(index, 3)


def test_nothing_of_before_a_restart_is_left() -> None:
    counts = Counts(10, 20, since=0)
    counts.add(sample("work", 15, rows=1000))
    counts.see("out", levels(15))
    counts.restart(33)
    counts.see("out", levels(32))
    counts.add(sample("work", 33.4, rows=100, seconds=0.5))
    counts.add(sample("work", 34.0, rows=1, seconds=0.5))
    totals = counts.window(35)
    assert (totals.since, totals.samples) == (33, 0)
    assert {name: one.rows for name, one in totals.operators.items()} == {"work": 1}
    # The batch that began before is left out with its time: counting begins where it ended.
    assert totals.counted_from == {"work": 33.4}


def test_reading_a_window_does_not_change_it() -> None:
    counts = Counts(10, 5, since=0)
    for index in range(30):
        counts.add(sample("work", index * 2.0 + 1, rows=1))
    once, again = counts.window(60), counts.window(60)
    assert once == again
    once.operators["work"].rows_out["out"] = 999
    assert counts.window(60) == again


def test_a_look_is_heard_although_there_is_no_batch() -> None:
    counts = Counts(10, 5, since=0)
    counts.see("work", levels(3, {"rows->work": 7}))
    counts.see("work", levels(2, {"rows->work": 5}))
    totals = counts.window(4).operators["work"]
    assert (totals.intervals, totals.batches, totals.heard_at) == (1, 0, 3)
    assert totals.levels[-1].backlog["rows->work"].rows == 7


def test_many_threads_lose_no_sample() -> None:
    counts = Counts(1, 1000, since=0)

    def feed(name: str) -> None:
        for index in range(500):
            counts.add(sample(name, index / 10 + 1, rows=1))
            if index % 50 == 0:
                counts.window(index / 10 + 1)

    threads = [threading.Thread(target=feed, args=(f"op{index % 2}",)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: one.rows for name, one in counts.window(60).operators.items()} == {"op0": 1000, "op1": 1000}


def kept() -> int:
    """Totals of operators that are in memory, whoever holds them."""
    gc.collect()
    return sum(isinstance(one, OperatorTotals) for one in gc.get_objects())


def test_a_day_that_nobody_asks_about_keeps_no_more_than_the_window() -> None:
    before, samples, operators = kept(), 20, [f"op{index}" for index in range(10)]
    counts = Counts(10, samples, since=0)
    for at in range(5, 24 * 3600, 10):
        for name in operators:
            counts.see(name, levels(at))
    counts.add(sample("op0", 24 * 3600 - 1, rows=7))
    # The window, and the intervals at its two ends; not the 8,640 of the day.
    assert kept() - before <= (samples + 2) * len(operators)
    totals = counts.window(24 * 3600)
    assert (totals.samples, totals.operators["op0"].rows, totals.operators["op0"].intervals) == (samples, 7, samples)


def test_kept_up_every_interval_the_window_is_merged_before_anybody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    merged: list[int] = []
    merge = OperatorTotals.merge
    monkeypatch.setattr(OperatorTotals, "merge", lambda self, other: (merged.append(1), merge(self, other))[1])
    counts = Counts(10, 20, since=0)
    for at in range(5, 24 * 3600, 10):
        counts.see("work", levels(at))
        counts.keep_up(at)
    assert len(merged) <= 8640 * 3, "a push, and a share of a turn-over, for each interval of the day"
    merged.clear()
    counts.window(24 * 3600)
    assert len(merged) <= 4 + 20, "the two halves, what goes on, and at most one turn-over"


def test_a_restart_does_not_wait_for_a_merge_that_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Counts(10, 5, since=0)
    for at in (5, 15, 25):
        counts.add(sample("work", at, rows=1))
    begun, go_on, found = threading.Event(), threading.Event(), []
    merge = OperatorTotals.merge

    def slow(self: OperatorTotals, other: OperatorTotals) -> None:
        begun.set()
        go_on.wait(30)
        merge(self, other)

    monkeypatch.setattr(OperatorTotals, "merge", slow)
    asking = threading.Thread(target=lambda: found.append(counts.window(30)), daemon=True)
    asking.start()
    assert begun.wait(30)
    changing = threading.Thread(target=counts.restart, args=(31,), daemon=True)
    changing.start()
    changing.join(10)
    waits = changing.is_alive()
    go_on.set()
    asking.join(30)
    changing.join(30)
    assert not waits, "a change of placement waited for somebody who asked for the status"
    # Who asked before the change gets what was before it, and nothing of that is left afterwards.
    assert found[0].operators["work"].rows == 3
    assert counts.window(40).operators == {}
    assert counts.window(40).since == 31


def test_what_was_before_a_restart_is_handed_out_and_in_the_totals_of_the_run() -> None:
    counts = Counts(10, 5, since=0, unwritten=10)
    counts.add(sample("work", 1, rows=1))
    counts.see("work", levels(3, {"rows->work": 5}))
    counts.restart(4)
    counts.add(sample("work", 4.2, rows=10))
    counts.add(sample("work", 6, rows=100))
    counts.see("work", levels(7, {"rows->work": 7}))
    counts.restart(8)
    counts.add(sample("work", 9, rows=1000))
    assert counts.window(9.5).operators["work"].rows == 1000
    [interval] = counts.unwritten(10)
    assert (interval.start, interval.stop, interval.operators["work"].rows) == (0, 10, 1111)
    assert interval.operators["work"].intervals == 1
    assert [one.backlog["rows->work"].rows for one in interval.operators["work"].levels] == [7], "the newest look"
    assert (counts.of_run("work").rows, counts.of_run("work").batches) == (1111, 4)
    assert counts.unwritten(20) == []


def test_a_day_that_nobody_asks_about_is_in_the_totals_of_the_run() -> None:
    counts = Counts(10, 5, since=0)
    for at in range(5, 24 * 3600, 10):
        counts.add(sample("work", at, rows=1))
    found = counts.of_run("work")
    assert (found.rows, found.first_started, found.last_finished) == (8640, 4.5, 24 * 3600 - 5)
    assert len(counts.recent("work", 0)) == 2, "the samples of the last ten seconds"


def test_intervals_that_nobody_writes_are_forgotten_at_some_time() -> None:
    counts = Counts(10, 5, since=0, unwritten=3)
    for at in range(5, 1000, 10):
        counts.add(sample("work", at, rows=1))
        counts.keep_up(at)
    assert [one.start for one in counts.unwritten(1000)] == [970, 980, 990]


def test_the_latency_of_the_run_outlives_restarts_and_intervals() -> None:
    counts = Counts(10, 5, since=0)
    for at in (1, 5, 25, 300):
        sketch = LatencySketch()
        sketch.add(float(at), 10)
        counts.add(sample("out", at, latency=sketch))
        counts.restart(at)
    found = counts.latency_of_run("out").latency
    assert found is not None
    assert (found.rows, found.mean) == (40, pytest.approx((1 + 5 + 25 + 300) / 4))
    assert counts.latency_of_run("work").latency is None
