"""Ranges of a source that fetches ahead are dealt, and follow how fast each slot is. In virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from dealing import ONE, TWO, Channels, report, served
from kafka_dealing import ranges_of, size_of, supply_of

from penstock.engine.query.pacing import Pacer
from penstock.engine.standing.batches import OpenBatch, Standing
from penstock.engine.standing.dealer import Dealer


class Run:
    """Two bundles that work off a Kafka source, each with so many messages a second; the source never runs dry."""

    def __init__(self, partitions: int, speeds: Callable[[float], tuple[float, float]]) -> None:
        self.now, self.speeds = 0.0, speeds
        #: By bundle: rows that it did, and seconds in which it waited for the other one.
        self.rows, self.idle = [0, 0], [0.0, 0.0]
        #: The ranges of each partition in the order in which they were published, and who had it last.
        self.published: dict[int, list[tuple[int, int]]] = {}
        self.has: dict[int, int] = {}
        self.moves = 0
        channels: Any = Channels()
        self.dealer = Dealer(
            channels, ["out"], lambda: Pacer(0.5, 10**6, 9_000), lambda: 0.0, self._publish, clock=lambda: self.now
        )
        self.dealer.feed_from(supply_of([10**12] * partitions, self.dealer.weights))
        self.dealer.open()
        self._stands = served(self.dealer, ONE, TWO)
        #: When each of them is done; None while it waits.
        self._free: dict[int, float | None] = dict.fromkeys(range(2))
        self._waits_since = [0.0, 0.0]
        for index in range(2):
            self._take(index)

    def until(self, end: float) -> None:
        while self.now < end:
            at, index = min((at, index) for index, at in self._free.items() if at is not None)
            self.now, self._free[index] = at, None
            one, self._waits_since[index] = self._stands[index], at
            size = self._size(one)
            self.rows[index] += size
            seconds = at - one.taken_at
            assert self.dealer.done(one, (replace(report(rows=size)[0], busy=seconds),))
            while self.dealer.publish_next(0):
                pass
            for other in (index, 1 - index):
                if self._free[other] is None:
                    self._take(other)

    def _take(self, index: int) -> None:
        one = self._stands[index]
        if self.dealer._is_too_far_ahead() and not self.dealer._batches.has_work_for(one):
            return  # it would wait until something is published
        assert self.dealer.take(one) is not None
        self.idle[index] += self.now - self._waits_since[index]
        self._free[index] = self.now + self._size(one) / self.speeds(self.now)[index]

    def _publish(self, batches: Any) -> None:
        for batch in batches:
            self._note(batch)

    def _note(self, batch: OpenBatch) -> None:
        for share in batch.cut.shares:
            index = (ONE, TWO).index(share.bundle)
            for partition, first, stop in ranges_of(share):
                self.published.setdefault(partition, []).append((first, stop))
                self.moves += self.has.get(partition, index) != index
                self.has[partition] = index

    @staticmethod
    def _size(one: Standing) -> int:
        assert one.work is not None
        return size_of(one.work.share)


def test_a_slot_of_half_the_speed_does_not_hold_the_other_one_back() -> None:
    run = Run(9, lambda now: (20_000.0, 10_000.0))
    run.until(60.0)
    run.idle, run.rows = [0.0, 0.0], [0, 0]
    run.until(360.0)
    assert sum(run.rows) == pytest.approx(300 * 30_000, rel=0.05)
    assert max(run.idle) < 0.1 * 300
    assert run.moves <= 6, "partitions stay where they are"


def test_a_slot_whose_speed_changes_gets_less_and_later_more_again() -> None:
    run = Run(9, lambda now: (20_000.0, 5_000.0 if 100 < now < 300 else 20_000.0))
    for end, whole in ((100.0, 40_000), (300.0, 25_000), (500.0, 40_000)):
        begin = run.now
        run.until(begin + (end - begin) / 2)
        run.rows, began = [0, 0], run.now
        run.until(end)
        assert sum(run.rows) == pytest.approx((run.now - began) * whole, rel=0.15)
    assert run.moves <= 24


def test_every_partition_is_published_in_order_whoever_reads_it() -> None:
    run = Run(5, lambda now: (20_000.0, 2_000.0 + 30_000.0 * (int(now) // 20 % 2)))
    run.until(200.0)
    assert run.moves
    assert len(run.published) == 5
    for ranges in run.published.values():
        stops = [0, *(stop for _, stop in ranges)]
        assert [first for first, _ in ranges] == stops[:-1]
