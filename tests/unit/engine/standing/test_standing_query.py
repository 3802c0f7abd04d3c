"""The life of a query whose bundles stand, where no Spark is needed to see it."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

import penstock.engine.standing.query as module
from penstock import Settings, Topology, sinks, sources
from penstock.cluster.model import Slot
from penstock.engine.message.shares import Bundle
from penstock.engine.standing.dealer import TOGETHER
from penstock.engine.standing.query import StandingQuery, turn_length
from penstock.engine.standing.turn import Turn, TurnPlaces
from penstock.errors import PenstockError

SCHEMA = "id long, value double"


def test_a_query_that_has_failed_begins_no_more_turns() -> None:
    """A batch that cannot be published fails the query while its turn ends well: the next turn would end at once."""
    query, begun = StandingQuery.__new__(StandingQuery), []
    query._stopping, query.failure, query._changed = False, None, threading.Event()

    def fails_in_its_second_turn() -> None:
        begun.append(len(begun))
        query._changed.set()
        if len(begun) == 2:
            query.failure = PenstockError("OPERATOR_FAILED", "the disk is full.", "Make room.")

    query._keep_turn = fails_in_its_second_turn  # type: ignore[method-assign]
    keeper = threading.Thread(target=query._keep_turns, daemon=True)
    keeper.start()
    keeper.join(5)
    query._stopping = True
    assert begun == [0, 1]


def test_a_batch_that_cannot_be_published_fails_its_query() -> None:
    query, failed = StandingQuery.__new__(StandingQuery), []
    query._stopping, query.failure, query.chain = False, None, ()

    def cannot(*_: float) -> bool:
        raise OSError("no space left on device")

    def fail(error: Exception) -> None:
        failed.append(error)
        query.failure = PenstockError("OPERATOR_FAILED", str(error), "Make room.")

    dealer: Any = SimpleNamespace(publish_next=cannot)
    query.dealer = dealer
    query.fail = fail  # type: ignore[method-assign]
    publishes = threading.Thread(target=query._keep_publishing, daemon=True)
    publishes.start()
    publishes.join(5)
    assert [str(error) for error in failed] == ["no space left on device"]


@pytest.mark.parametrize(("writes_files", "most"), [(False, TOGETHER), (True, 1)])
def test_batches_with_files_are_published_one_by_one(writes_files: bool, most: int) -> None:
    """After a crash the files of the newest batch get their names, and only those."""
    query, asked = StandingQuery.__new__(StandingQuery), []
    query._stopping, query.failure = False, None

    def publish_next(_: float, most: int) -> None:
        asked.append(most)
        query._stopping = True

    query.dealer = SimpleNamespace(publish_next=publish_next)  # type: ignore[assignment]
    query._writes_files = lambda: writes_files  # type: ignore[method-assign]
    query._keep_publishing()
    assert asked == [most]


def test_a_batch_that_is_cut_while_somebody_asks_is_not_drained() -> None:
    """The last rows of a source are cut between the two questions: the source has ended, and a batch is open."""
    query = StandingQuery.__new__(StandingQuery)
    dealer: Any = SimpleNamespace(idle=True)

    class CutsItsLastRows:
        @property
        def drained(self) -> bool:
            dealer.idle = False
            return True

    query.dealer, query.supply = dealer, CutsItsLastRows()  # type: ignore[assignment]
    query.context = SimpleNamespace(channels=SimpleNamespace(lock=threading.RLock()))  # type: ignore[assignment]
    assert not query.drained


def test_batches_that_are_dropped_while_somebody_asks_are_not_drained() -> None:
    """A turn begins anew between the two questions: the open batches are dropped, and their rows are cut again."""
    query, lock = StandingQuery.__new__(StandingQuery), threading.RLock()
    dealer: Any = SimpleNamespace(idle=False)
    asked, dropped = threading.Event(), threading.Event()

    def drop() -> None:
        assert asked.wait(5)
        with lock:
            dealer.idle = True
        dropped.set()

    class AllIsCut:
        @property
        def drained(self) -> bool:
            asked.set()
            dropped.wait(0.5)
            return True

    query.dealer, query.supply = dealer, AllIsCut()  # type: ignore[assignment]
    query.context = SimpleNamespace(channels=SimpleNamespace(lock=lock))  # type: ignore[assignment]
    thread = threading.Thread(target=drop)
    thread.start()
    assert not query.drained
    thread.join()


def test_turns_of_different_operators_end_at_different_times() -> None:
    lengths = {turn_length(f"operator-{n}", 600.0) for n in range(50)}
    assert len(lengths) > 40
    assert all(450.0 <= length <= 600.0 for length in lengths)
    assert turn_length("a", 600.0) == turn_length("a", 600.0)


class Idle:
    """A dealer that has nothing to do until it is ended."""

    def __init__(self, problem: Exception | None = None) -> None:
        self._problem = problem
        self._ended = False

    @property
    def has_nothing_to_do(self) -> bool:
        if self._problem is not None:
            raise self._problem
        return not self._ended

    def end(self) -> None:
        self._ended = True


def failed(dealer: Any) -> StandingQuery:
    query = StandingQuery.__new__(StandingQuery)
    query._stopping, query.failure, query._failing = False, None, threading.Lock()
    query.operator = SimpleNamespace(name="rows", where=None)  # type: ignore[assignment]
    query.dealer = dealer
    query.fail(RuntimeError("ExecutorLostFailure (executor 1 exited)"))
    return query


def test_a_query_that_failed_knows_whether_it_had_something_to_do() -> None:
    assert failed(Idle()).was_idle
    assert not failed(SimpleNamespace(has_nothing_to_do=False, end=lambda: None)).was_idle


def test_a_source_that_cannot_say_what_it_has_keeps_no_failure_from_being_known() -> None:
    query = failed(Idle(OSError("the storage is away")))
    assert not query.was_idle
    assert query.failure is not None


def begun(deserted: bool, monkeypatch: pytest.MonkeyPatch) -> float:
    """How long a new turn waits for bundles that do not come because those of the turn before hold the threads."""
    monkeypatch.setattr(module, "STAND_SECONDS", 1.0)
    ends, served = threading.Event(), list[int]()
    query = StandingQuery.__new__(StandingQuery)
    query._stopping, query._last_turn, query._changed = False, 1, threading.Event()
    places = TurnPlaces((Bundle(Slot("a", 0), 1),), (None,))
    query._turns = {1: Turn(1, places, 0.0, lambda turn: None, lambda turn: None)}
    query._run_turn = lambda turn: ends.wait(10) and None  # type: ignore[method-assign]
    streams = SimpleNamespace(task_threads=lambda group, executors: None)  # Spark does not say why they do not come
    query._name, query.context = "rows-0", SimpleNamespace(streams=streams)  # type: ignore[assignment]
    dealer: Any = SimpleNamespace(
        stands=lambda turn: int(turn == 1),
        deserted=lambda seconds: deserted,
        serve=lambda turn, bundles: served.append(turn),
    )
    query.dealer = dealer
    began = time.monotonic()
    query._begin(places)
    ends.set()
    assert served == [2]
    return time.monotonic() - began


def test_a_new_turn_waits_for_its_bundles_unless_rows_wait_for_one_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert begun(False, monkeypatch) >= 1.0
    assert begun(True, monkeypatch) < 0.9


@pytest.mark.parametrize(("near", "seconds"), [(True, 0.002), (False, 0.16)])
def test_rows_linger_longer_where_the_store_of_segments_is_far(near: bool, seconds: float) -> None:
    topology = Topology("line")
    numbers = topology.source("rows", sources.rate(1, sources.numbers()))
    topology.sink(
        "out", sinks.noop(), inputs=[topology.map("work", lambda batch: batch, inputs=[numbers], schema=SCHEMA)]
    )
    query = StandingQuery.__new__(StandingQuery)
    query.operator = topology.definition().operator("work")
    query.chain = (query.operator,)
    context: Any = SimpleNamespace(
        settings=Settings(), paces=None, store=SimpleNamespace(is_near=near), readers_of=lambda chain: []
    )
    query.context = context
    query.dealer = SimpleNamespace(cost_of_a_share=0.04)  # type: ignore[assignment]
    linger: Any = SimpleNamespace(at_source=lambda: 0.025, at_hop=lambda: 0.002)
    assert query._lingering(linger)() == pytest.approx(seconds)


def test_what_is_left_of_an_earlier_turn_is_ended_once_nobody_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that hangs keeps its thread, and the bundle that is to take its place may find no other."""
    monkeypatch.setattr(module, "GIVE_UP_SECONDS", 0.05)
    cancelled, stands = list[str](), {1: 1, 2: 0}
    query = StandingQuery.__new__(StandingQuery)
    query.operator = SimpleNamespace(name="rows")  # type: ignore[assignment]
    query._name, query._left = "rows-0", {}
    query._turns = {number: SimpleNamespace(over=threading.Event()) for number in (1, 2)}  # type: ignore[misc]
    dealer: Any = SimpleNamespace(stands=lambda turn: stands[turn], serves=2)
    query.dealer = dealer
    spark = SimpleNamespace(sparkContext=SimpleNamespace(cancelJobGroup=cancelled.append))
    query.context = SimpleNamespace(spark=spark)  # type: ignore[assignment]

    def look() -> None:
        query._end_what_is_left()
        time.sleep(0.1)
        query._end_what_is_left()

    look()
    assert cancelled == [], "a bundle still works on what is its own; of the turn that is served, nobody stands yet"
    stands[1] = 0
    look()
    look()
    assert cancelled == [query.group(1)], "once"
    query._turns.pop(1)
    query._end_what_is_left()
    assert not query._left
