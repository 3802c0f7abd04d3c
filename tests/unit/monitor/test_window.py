"""Windows: what is in them, what slides out, and what a reconfiguration makes them forget."""

from __future__ import annotations

import gc
import threading

import pytest
from monitor_fakes import levels, sample

from penstock.monitor.intervals import Collector
from penstock.monitor.totals import OperatorTotals
from penstock.monitor.window import Window


def test_a_sample_is_in_the_interval_in_which_it_finished() -> None:
    collector = Collector(10, since=100)
    collector.add(sample("work", 109.9, rows=1))
    collector.add(sample("work", 110.0, rows=2))
    collector.add(sample("out", 112.0, rows=4))
    first, second = collector.close(120)
    assert (first.start, first.stop, first.operators["work"].rows) == (100, 110, 1)
    assert {name: totals.rows for name, totals in second.operators.items()} == {"work": 2, "out": 4}
    assert collector.close(130) == []


def test_an_interval_is_handed_out_once_it_is_over() -> None:
    collector = Collector(10, since=103)
    collector.add(sample("work", 105, rows=1))
    assert collector.close(109.9) == []
    assert [(one.start, one.stop) for one in collector.open] == [(103, 110)]
    [closed] = collector.close(110)
    assert (closed.start, closed.seconds) == (103, 7)


def test_what_comes_too_late_counts_in_the_next_interval() -> None:
    collector = Collector(10, since=100)
    collector.close(110)
    collector.add(sample("work", 109.9, rows=5))
    [late] = collector.close(120)
    assert (late.start, late.operators["work"].rows) == (110, 5)


def test_at_the_end_the_interval_that_goes_on_is_handed_out_too() -> None:
    collector = Collector(10, since=100)
    collector.add(sample("work", 101, rows=1))
    collector.add(sample("work", 112, rows=2))
    first, last = collector.flush(114)
    assert (first.seconds, last.seconds, last.operators["work"].rows) == (10, 4, 2)
    assert collector.flush(115) == []


def test_the_window_slides() -> None:
    window = Window(10, 3, since=0)
    for index in range(10):
        window.add(sample("work", index * 10 + 5, rows=10**index))
        totals = window.totals(index * 10 + 6)
        # Three intervals that are over, and the one that goes on.
        kept = range(max(index - 3, 0), index + 1)
        assert totals.operators["work"].rows == sum(10**one for one in kept)
        assert (totals.since, totals.until) == (kept[0] * 10, index * 10 + 6)
        assert totals.samples == min(index, 3)


def test_a_window_of_seconds_is_as_many_intervals_as_it_takes() -> None:
    assert Window.of_seconds(10, 200, since=0).totals(0).full == 20
    assert Window.of_seconds(10, 201, since=0).totals(0).full == 21
    assert Window.of_seconds(0.1, 0.3, since=0).totals(0).full == 3
    assert Window.of_seconds(10, 1, since=0).totals(0).full == 1


def test_nothing_of_before_a_restart_is_left() -> None:
    window = Window(10, 20, since=0)
    window.add(sample("work", 15, rows=1000))
    window.see("out", levels(15))
    window.restart(33)
    window.see("out", levels(32))
    window.add(sample("work", 33.4, rows=100, seconds=0.5))
    window.add(sample("work", 34.0, rows=1, seconds=0.5))
    totals = window.totals(35)
    assert (totals.since, totals.samples) == (33, 0)
    assert {name: one.rows for name, one in totals.operators.items()} == {"work": 1}
    # The batch that began before is left out with its time: counting begins where it ended.
    assert totals.counted_from == {"work": 33.4}


def test_reading_a_window_does_not_change_it() -> None:
    window = Window(10, 5, since=0)
    for index in range(30):
        window.add(sample("work", index * 2.0 + 1, rows=1))
    once, again = window.totals(60), window.totals(60)
    assert once == again
    once.operators["work"].rows_out["out"] = 999
    assert window.totals(60) == again


def test_a_look_is_heard_although_there_is_no_batch() -> None:
    window = Window(10, 5, since=0)
    window.see("work", levels(3, {"rows->work": 7}))
    window.see("work", levels(2, {"rows->work": 5}))
    totals = window.totals(4).operators["work"]
    assert (totals.intervals, totals.batches, totals.heard_at) == (1, 0, 3)
    assert totals.levels[-1].backlog["rows->work"].rows == 7


def test_many_threads_lose_no_sample() -> None:
    window = Window(1, 1000, since=0)

    def feed(name: str) -> None:
        for index in range(500):
            window.add(sample(name, index / 10 + 1, rows=1))
            if index % 50 == 0:
                window.totals(index / 10 + 1)

    threads = [threading.Thread(target=feed, args=(f"op{index % 2}",)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: one.rows for name, one in window.totals(60).operators.items()} == {"op0": 1000, "op1": 1000}


def kept() -> int:
    """Totals of operators that are in memory, whoever holds them."""
    gc.collect()
    return sum(isinstance(one, OperatorTotals) for one in gc.get_objects())


def test_a_day_that_nobody_asks_about_keeps_no_more_than_the_window() -> None:
    before, samples, operators = kept(), 20, [f"op{index}" for index in range(10)]
    window = Window(10, samples, since=0)
    for at in range(5, 24 * 3600, 10):
        for name in operators:
            window.see(name, levels(at))
    window.add(sample("op0", 24 * 3600 - 1, rows=7))
    # The window, and the intervals at its two ends; not the 8,640 of the day.
    assert kept() - before <= (samples + 2) * len(operators)
    totals = window.totals(24 * 3600)
    assert (totals.samples, totals.operators["op0"].rows, totals.operators["op0"].intervals) == (samples, 7, samples)


def test_kept_up_every_interval_the_window_is_merged_before_anybody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    merged: list[int] = []
    merge = OperatorTotals.merge
    monkeypatch.setattr(OperatorTotals, "merge", lambda self, other: (merged.append(1), merge(self, other))[1])
    window = Window(10, 20, since=0)
    for at in range(5, 24 * 3600, 10):
        window.see("work", levels(at))
        window.keep_up(at)
    assert len(merged) <= 8640 * 3, "a push, and a share of a turn-over, for each interval of the day"
    merged.clear()
    window.totals(24 * 3600)
    assert len(merged) <= 4 + 20, "the two halves, what goes on, and at most one turn-over"


def test_a_restart_does_not_wait_for_a_merge_that_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    window = Window(10, 5, since=0)
    for at in (5, 15, 25):
        window.add(sample("work", at, rows=1))
    begun, go_on, found = threading.Event(), threading.Event(), []
    merge = OperatorTotals.merge

    def slow(self: OperatorTotals, other: OperatorTotals) -> None:
        begun.set()
        go_on.wait(30)
        merge(self, other)

    monkeypatch.setattr(OperatorTotals, "merge", slow)
    asking = threading.Thread(target=lambda: found.append(window.totals(30)), daemon=True)
    asking.start()
    assert begun.wait(30)
    changing = threading.Thread(target=window.restart, args=(31,), daemon=True)
    changing.start()
    changing.join(10)
    waits = changing.is_alive()
    go_on.set()
    asking.join(30)
    changing.join(30)
    assert not waits, "a change of placement waited for somebody who asked for the status"
    # Who asked before the change gets what was before it, and nothing of that is left afterwards.
    assert found[0].operators["work"].rows == 3
    assert window.totals(40).operators == {}
    assert window.totals(40).since == 31
