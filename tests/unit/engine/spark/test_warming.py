"""The feed of the query that warms executors: two batches at its first start, one more at its second."""

from __future__ import annotations

import threading

from penstock.cluster.provider import Executor
from penstock.engine.spark.warming import ROWS, WarmFeed

EXECUTORS = [Executor("1", "127.0.0.2", 1), Executor("2", "127.0.0.3", 1)]


def opened(batches: int) -> WarmFeed:
    feed = WarmFeed(EXECUTORS, batches)
    feed.open.set()
    return feed


def test_the_rows_of_a_batch_are_dealt_to_all_executors() -> None:
    rows = opened(2).partitions(None, "1")
    assert len(rows) == ROWS
    assert [executor for _, executor in rows[:3]] == [EXECUTORS[0], EXECUTORS[1], EXECUTORS[0]]


def test_it_is_finished_when_spark_asks_what_comes_after_the_last_batch() -> None:
    """Before that, Spark may not have committed the batch, and a query that is stopped then runs it again."""
    feed = opened(2)
    for batch in (1, 2):
        assert feed.latest() == str(batch)
        feed.partitions(str(batch - 1) if batch > 1 else None, str(batch))
        assert not feed.finished.is_set()
    assert feed.latest() == "2", "nothing new"
    assert feed.finished.is_set()


def test_the_second_start_goes_on_where_the_first_one_ended() -> None:
    feed = opened(3)
    feed.partitions("1", "2")  # Spark shows the last batch again
    assert feed.latest() == "3"
    feed.partitions("2", "3")
    feed.latest()
    assert feed.finished.is_set()


def test_no_batch_begins_before_the_state_has_its_places() -> None:
    feed = WarmFeed(EXECUTORS, 2)
    answers: list[object] = []
    for ask in (feed.latest, lambda: feed.partitions("1", "2")):
        thread = threading.Thread(target=lambda ask=ask: answers.append(ask()), daemon=True)
        thread.start()
        thread.join(0.1)
    assert answers == []
    feed.close()
    thread.join(5)
    assert len(answers) >= 1
    assert not feed.finished.is_set(), "it was let go, and has not run its batches"


def test_a_feed_that_was_let_go_is_not_finished_wherever_it_stands() -> None:
    feed = opened(2)
    feed.partitions("1", "2")
    feed.close()
    assert feed.latest() == "2"
    assert not feed.finished.is_set()
