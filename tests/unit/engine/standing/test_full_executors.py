"""A turn begins on executors that have just the task threads which are needed: the bundles of the turn before hold them
all, and the new ones cannot come before those leave. Real dealer, real turns; Spark's scheduler is a semaphore."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from dealing import ONE, TWO, Rows, dealer_of, in_background, report
from keyed_dealing import GROUPS, KeyedRows, rows_by_key

from penstock.cluster.provider import Executor
from penstock.engine.message.shares import Bundle, Share
from penstock.engine.message.wire import Seat
from penstock.engine.spark.streams import TaskThreads
from penstock.engine.standing.query import StandingQuery
from penstock.engine.standing.turn import Turn, TurnPlaces

#: The work of a share, in seconds.
WORK = 0.02


class FewThreads:
    """Executors with so many task threads, by id, and the tasks of turns, each of which needs one as long as its bundle
    stands."""

    def __init__(self, query: StandingQuery, threads: dict[str, int], load_seconds: float) -> None:
        self._query, self._load_seconds = query, load_seconds
        self._free = {executor: threading.Semaphore(count) for executor, count in threads.items()}
        self._lock = threading.Lock()
        self._begun: defaultdict[int, set[int]] = defaultdict(set)
        self._held = Counter[str]()
        #: The shares that were done and taken, in the order of every bundle, and by which turn.
        self.shares: list[tuple[int, Share]] = []

    def run_turn(self, turn: Turn) -> None:
        seats = enumerate(turn.places.executors)
        tasks = [in_background(lambda i=i, e=e: self._run(turn, i, e.id)) for i, e in seats]  # type: ignore[misc]
        for task in tasks:
            task.join()

    def task_threads(self, group: str, executors: Collection[Executor]) -> TaskThreads | None:
        with self._lock:
            if not any(self._held[one.id] >= one.cores for one in executors):
                return None
            return TaskThreads(frozenset(self._begun[int(group.rpartition("-")[2])]), dict(self._held))

    def _run(self, turn: Turn, index: int, executor: str) -> None:
        with self._free[executor]:
            with self._lock:
                self._begun[turn.number].add(index)
                self._held[executor] += 1
            time.sleep(self._load_seconds if turn.number > 1 else 0)
            self._stand(turn, index)
            with self._lock:
                self._begun[turn.number].discard(index)
                self._held[executor] -= 1

    def _stand(self, turn: Turn, index: int) -> None:
        dealer, bundle = self._query.dealer, turn.bundles[index]
        standing = self._query.seat_taken(Seat("q", turn.number, index, bundle.slot.name, bundle.instances))
        if standing is None:
            return
        while (dealt := dealer.take(standing)) is not None:
            time.sleep(WORK)
            if dealer.done(standing, report()):
                with self._lock:
                    self.shares.append((turn.number, dealt.share))
        dealer.lost(standing)


class Stage:
    """A query whose bundles stand on two executors with so many task threads."""

    def __init__(self, rows: Rows, threads: tuple[int, int], load_seconds: float = 0.0) -> None:
        dealer, self.published, _ = dealer_of(rows)
        self.query = query = StandingQuery.__new__(StandingQuery)
        query._stopping, query._last_turn, query._changed = False, 0, threading.Event()
        query._name, query._turns, query.dealer = "q", {}, dealer
        of_each = zip((ONE, TWO), threads, strict=True)
        self.executors = {one: Executor(one.slot.machine, "127.0.0.1", count) for one, count in of_each}
        self.spark = FewThreads(query, {one.id: one.cores for one in self.executors.values()}, load_seconds)
        query._run_turn = self.spark.run_turn  # type: ignore[method-assign]
        query.context = SimpleNamespace(streams=self.spark)  # type: ignore[assignment]
        self._publishes = in_background(self._publish)

    def _publish(self) -> None:
        while not self.query._stopping:
            self.query.dealer.publish_next(0.05)

    def begin(self, *bundles: Bundle) -> float:
        """How long it takes to begin a turn."""
        began = time.monotonic()
        self.query._begin(TurnPlaces(bundles, tuple(self.executors[one] for one in bundles)))
        return time.monotonic() - began

    def await_shares(self, turn: int, count: int) -> None:
        deadline = time.monotonic() + 10
        while sum(number == turn for number, _ in list(self.spark.shares)) < count:
            assert time.monotonic() < deadline, f"turn {turn} does nothing"
            time.sleep(0.01)

    def end(self) -> None:
        self.query.dealer.close()
        deadline = time.monotonic() + 10
        while self.query.dealer.in_batch:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        self.query._stopping = True
        self.query.dealer.end(5)
        self._publishes.join(5)


def kinds_of_rows() -> list[Any]:
    many = 1_000_000
    return [
        pytest.param(lambda: Rows(many), id="any bundle"),
        pytest.param(lambda: Rows(many, any_bundle=False), id="ranges that are dealt"),
        pytest.param(lambda: KeyedRows(many), id="by key"),
    ]


@pytest.mark.parametrize("rows", kinds_of_rows())
def test_a_turn_begins_soon_where_the_one_before_holds_all_threads(rows: Any) -> None:
    stage = Stage(rows(), threads=(1, 1))
    stage.begin(ONE, TWO)
    stage.await_shares(1, 4)
    before = len(stage.spark.shares)
    seconds = stage.begin(ONE, TWO)
    assert len(stage.spark.shares) > before, "rows flow meanwhile"
    stage.await_shares(2, 6)
    stage.end()
    assert seconds < 3, "it took the longest that a turn may wait for its bundles"
    numbers = [number for number, _ in stage.published.batches]
    assert numbers == list(range(len(numbers)))
    ends = [rows for _, rows in stage.published.batches]
    assert ends[0][0] == 0 and all(one[1] == other[0] for one, other in pairwise(ends))
    if isinstance(stage.published.rows, KeyedRows):
        done = [row for _, share in stage.spark.shares for row in rows_by_key(share)]
        assert sorted(done) == list(range(stage.published.rows.published)), "each row once"
        for group in range(GROUPS):
            mine = [row for row in done if row % GROUPS == group]
            assert mine == sorted(mine), "in their order"


def test_a_turn_waits_for_bundles_that_load_something_where_there_are_threads() -> None:
    stage = Stage(Rows(1_000_000), threads=(2, 2), load_seconds=1.5)
    stage.begin(ONE, TWO)
    stage.await_shares(1, 4)
    assert stage.begin(ONE, TWO) >= 1.5
    assert stage.query.dealer.stands(2) == 2
    stage.end()


def test_a_bundle_that_loads_something_is_waited_for_though_another_finds_no_thread() -> None:
    stage = Stage(Rows(1_000_000), threads=(1, 2), load_seconds=1.5)
    stage.begin(ONE, TWO)
    stage.await_shares(1, 4)
    assert 1.5 <= stage.begin(ONE, TWO) < 4
    stage.await_shares(2, 4)
    stage.end()
