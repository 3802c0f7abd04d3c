"""Which failure of a query is tried again, how often and when: the whole table, on a clock of the test."""

from __future__ import annotations

from itertools import pairwise

import pytest

from penstock.engine.run.restarts import IDLE_SECONDS, LONGEST_WAIT, Restarts
from penstock.engine.spark.failures import FailureKind

SOON = [0, 0.5, 1.5, 3.5, 7.5, 15.5]


class Clock:
    """Of a query: the time, and the last batch that was published."""

    def __init__(self) -> None:
        self.now = 0.0
        self.batch: int | None = 7

    def __call__(self) -> float:
        return self.now

    def restarts(self, most: int) -> Restarts:
        return Restarts(most, lambda _: self.batch, self)


def tried(restarts: Restarts, clock: Clock, kind: FailureKind) -> list[float]:
    """When a query is started again that fails at once each time, until it is given up."""
    found = []
    while restarts.allowed("a", kind) and clock.now < 1000:
        if restarts.due("a", kind):
            found.append(clock.now)
            restarts.count("a", kind)
        clock.now += 0.5
    return found


@pytest.mark.parametrize(
    ("kind", "most", "times", "ends"),
    [
        (FailureKind.PASSING, 5, 5, 8.0),
        (FailureKind.LOST, 5, 10, 60.0),
        (FailureKind.LOST, 20, 20, 156.0),
        (FailureKind.FULL, 5, 34, 300.0),
        (FailureKind.FULL, 0, 34, 300.0),
        (FailureKind.PASSING, 0, 0, 0.0),
        (FailureKind.LOST, 0, 0, 0.0),
        (FailureKind.CERTAIN, 5, 0, 0.0),
    ],
)
def test_who_fails_at_once_each_time_is_tried_less_and_less_often_and_given_up(
    kind: FailureKind, most: int, times: int, ends: float
) -> None:
    clock = Clock()
    found = tried(clock.restarts(most), clock, kind)
    assert found[:6] == SOON[: len(found)]
    assert all(later - sooner <= LONGEST_WAIT for sooner, later in pairwise(found))
    assert (len(found), clock.now) == (times, ends)


@pytest.mark.parametrize(
    ("kind", "healthy"), [(FailureKind.LOST, 120.0), (FailureKind.PASSING, 120.0), (FailureKind.FULL, 60.0)]
)
def test_time_without_a_failure_gives_all_restarts_back(kind: FailureKind, healthy: float) -> None:
    clock = Clock()
    restarts = clock.restarts(5)
    first = tried(restarts, clock, kind)
    clock.batch = 8
    clock.now = first[-1] + healthy - 0.1
    assert not restarts.allowed("a", kind)
    clock.now = ended = first[-1] + healthy
    assert restarts.due("a", kind), "the first one is at once again"
    assert [at - ended for at in tried(restarts, clock, kind)] == first


def test_every_operator_and_every_kind_of_failure_has_restarts_of_its_own() -> None:
    clock = Clock()
    restarts = clock.restarts(5)
    tried(restarts, clock, FailureKind.PASSING)
    assert not restarts.allowed("a", FailureKind.PASSING)
    assert restarts.allowed("b", FailureKind.PASSING)
    assert restarts.allowed("a", FailureKind.LOST)
    assert restarts.due("a", FailureKind.LOST)


@pytest.mark.parametrize("kind", [FailureKind.LOST, FailureKind.PASSING, FailureKind.FULL])
def test_attempts_that_take_minutes_to_fail_and_publish_nothing_come_to_an_end(kind: FailureKind) -> None:
    clock = Clock()
    restarts, attempts = clock.restarts(5), 0
    while restarts.allowed("a", kind) and attempts < 100:
        restarts.count("a", kind)
        attempts += 1
        clock.now += 150.0
    assert attempts == (2 if kind is FailureKind.FULL else 5)


def test_an_operator_that_had_nothing_to_do_for_long_is_as_new() -> None:
    clock = Clock()
    restarts = clock.restarts(5)
    last = tried(restarts, clock, FailureKind.PASSING)[-1]
    clock.now = last + IDLE_SECONDS - 0.1
    assert not restarts.allowed("a", FailureKind.PASSING)
    clock.now = last + IDLE_SECONDS
    assert restarts.allowed("a", FailureKind.PASSING)


@pytest.mark.parametrize(
    ("kind", "seconds"), [(FailureKind.LOST, 180.0), (FailureKind.LOST, 540.0), (FailureKind.FULL, 90.0)]
)
def test_an_operator_without_rows_whose_bundles_stood_meanwhile_is_as_new(kind: FailureKind, seconds: float) -> None:
    """Executors that are lost every few minutes do not end a topology that has nothing to do."""
    clock = Clock()
    restarts = clock.restarts(5)
    for _ in range(20):
        assert restarts.allowed("a", kind, was_idle=True)
        assert restarts.due("a", kind, was_idle=True)
        restarts.count("a", kind, was_idle=True)
        clock.now += seconds


def test_an_operator_without_rows_that_fails_at_once_each_time_is_given_up() -> None:
    clock = Clock()
    restarts, attempts = clock.restarts(5), 0
    while restarts.allowed("a", FailureKind.LOST, was_idle=True) and attempts < 100:
        restarts.count("a", FailureKind.LOST, was_idle=True)
        attempts += 1
        clock.now += 60.0
    assert attempts == 5


def test_what_may_pass_gives_no_restarts_back_to_an_operator_without_rows() -> None:
    """It may be the look at a source that fails: then nobody knows whether there are rows."""
    clock = Clock()
    restarts, attempts = clock.restarts(5), 0
    while restarts.allowed("a", FailureKind.PASSING, was_idle=True) and attempts < 100:
        restarts.count("a", FailureKind.PASSING, was_idle=True)
        attempts += 1
        clock.now += 150.0
    assert attempts == 5


def test_workers_that_die_in_the_very_first_batch_get_no_minute() -> None:
    clock = Clock()
    clock.batch = None
    assert len(tried(clock.restarts(5), clock, FailureKind.LOST)) == 5
    assert clock.now == 8.0
    clock = Clock()
    clock.batch = None
    tried(clock.restarts(5), clock, FailureKind.FULL)
    assert clock.now == 300.0, "nobody can tell from the first batch when a disk has room again"
