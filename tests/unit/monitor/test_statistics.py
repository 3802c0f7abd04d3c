"""Statistics: what people read, worked out of the same counts that decisions are made on."""

from __future__ import annotations

import pytest
from monitor_fakes import sample

from penstock.monitor.counts import Counts
from penstock.monitor.latency import LatencySketch
from penstock.monitor.statistics import OperatorRates, Statistics


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def counts() -> Counts:
    return Counts(10, 20, since=0)


@pytest.fixture
def statistics(counts: Counts, clock: Clock) -> Statistics:
    return Statistics(counts, clock)


def test_an_operator_without_a_batch_has_rates_of_zero(statistics: Statistics) -> None:
    nothing = OperatorRates(0.0, 0.0, None, 0)
    assert statistics.rates("work") == statistics.whole_run("work") == nothing
    assert statistics.totals("work") == (0, 0)
    assert (statistics.batches("work"), statistics.bad_rows("work"), statistics.late_rows("work")) == (0, 0, 0)


def test_rates_are_those_of_the_last_ten_seconds_and_fall_when_nothing_comes(
    counts: Counts, statistics: Statistics, clock: Clock
) -> None:
    for second in range(1, 31):
        counts.add(sample("work", second, rows=100, seconds=0.5, rows_out={"out": 200, "more": 50}))
    clock.now = 30.0
    assert statistics.rates("work") == OperatorRates(100.0, 250.0, 0.5, 10)
    clock.now = 35.0
    assert statistics.rates("work") == OperatorRates(50.0, 125.0, 0.5, 5)
    clock.now = 41.0
    assert statistics.rates("work") == OperatorRates(0.0, 0.0, None, 0)
    assert statistics.totals("work") == (3000, 7500)


def test_a_young_operator_is_counted_over_the_time_since_its_first_batch(
    counts: Counts, statistics: Statistics, clock: Clock
) -> None:
    counts.add(sample("work", 101, rows=100, seconds=1.0))
    clock.now = 102.0
    assert statistics.rates("work").rows_in == 50.0


def test_a_change_of_placement_changes_nothing_that_people_read(
    counts: Counts, statistics: Statistics, clock: Clock
) -> None:
    for second in range(1, 11):
        counts.add(sample("work", second, rows=100, bad_rows=1))
    clock.now = 10.0
    before = statistics.rates("work"), statistics.whole_run("work"), statistics.totals("work")
    counts.restart(10.0)
    counts.window(10.0)
    assert before == (statistics.rates("work"), statistics.whole_run("work"), statistics.totals("work"))
    assert statistics.bad_rows("work") == statistics.batches("work") == 10


def test_the_whole_run_is_from_the_first_batch_to_the_last(counts: Counts, statistics: Statistics) -> None:
    for second in (10, 300, 1010):
        counts.add(sample("work", second, rows=1000, seconds=0.0))
        counts.keep_up(second)
    assert statistics.whole_run("work") == OperatorRates(3.0, 3.0, pytest.approx(1000 / 3), 3)


def test_latency_is_of_the_last_seconds_and_of_the_whole_run(
    counts: Counts, statistics: Statistics, clock: Clock
) -> None:
    for at, seconds in ((1.0, 8.0), (20.0, 2.0)):
        sketch = LatencySketch()
        sketch.add(seconds, 10)
        counts.add(sample("out", at, latency=sketch))
    clock.now = 25.0
    recent, whole = statistics.recent_latency("out"), statistics.latency("out")
    assert recent is not None
    assert whole is not None
    assert (recent.rows, recent.p99) == (10, pytest.approx(2.0, rel=0.01))
    assert (whole.rows, whole.p99) == (20, pytest.approx(8.0, rel=0.01))
    clock.now = 31.0
    assert statistics.recent_latency("out") is None
    assert statistics.latency("work") is None
