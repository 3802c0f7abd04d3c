"""What is made of Spark's progress, and how often Spark is asked for it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engine.query.state_account import (
    ACCOUNT_SECONDS,
    StateAccount,
    StateAccounts,
    account_of,
)
from penstock.monitor.kept_state import KeptState, Kind, left_in_words, left_inside


def progress(batch: int, *, watermark: str | None = "1970-01-01T00:00:10.000Z", dropped: int = 0) -> dict[str, Any]:
    step = {"operatorName": "stateStoreSave", "numRowsTotal": 7, "numRowsDroppedByWatermark": dropped}
    times = {"min": "1970-01-01T00:00:08.000Z", "max": "1970-01-01T00:00:20.500Z"}
    event_time = {} if watermark is None else {**times, "watermark": watermark}
    return {"batchId": batch, "stateOperators": [step], "eventTime": event_time}


class Query:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.newest: dict[str, Any] | None = None

    @property
    def lastProgress(self) -> Any:
        self.asked += 1
        return self.newest


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rows_kept_rows_dropped_and_event_times() -> None:
    account = account_of(progress(3, dropped=2), "append")
    assert account == StateAccount(3, (KeptState(Kind.AGGREGATE, 7, open=True),), 2, 10.0, (8.0, 20.5))


def test_in_update_mode_everything_that_is_kept_was_emitted() -> None:
    [kept] = account_of(progress(3), "update").kept
    assert not kept.open
    assert str(kept) == "7 rows of results, all of which were emitted"


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        ("symmetricHashJoin", Kind.JOIN),
        ("dedupeWithinWatermark", Kind.DISTINCT),
        ("transformWithStateInPySparkExec", Kind.OWN),
    ],
)
def test_state_that_is_no_aggregate_holds_no_result_back(step: str, kind: Kind) -> None:
    [kept] = account_of({"batchId": 0, "stateOperators": [{"operatorName": step, "numRowsTotal": 1}]}, "append").kept
    assert (kept.kind, kept.open) == (kind, False)
    assert str(kept).startswith("1 row ")


def test_what_is_left_inside_is_told_by_operator() -> None:
    kept = {"count": [KeptState(Kind.AGGREGATE, 9)], "windows": [KeptState(Kind.AGGREGATE, 1200, open=True)]}
    assert left_inside(kept) == {"windows": 1200}
    assert left_in_words(left_inside(kept)) == '1,200 results in "windows"'


def accounts(mode: str = "append") -> tuple[StateAccounts, Query, list[StateAccount], Clock]:
    told: list[StateAccount] = []
    clock = Clock()
    return StateAccounts(mode, told.append, clock=clock), Query(), told, clock


def test_with_a_watermark_every_batch_is_asked_about_once() -> None:
    made, query, told, _ = accounts()
    for batch in range(5):
        made.published(batch, (1.0, 2.0), 0, is_new=True)
        query.newest = progress(batch, dropped=batch)
        for idle in (False, True, True):
            made.between_batches(query, idle)
    assert query.asked == 5
    assert [one.late_rows for one in told] == [0, 1, 2, 3, 4]


def test_without_one_it_is_asked_now_and_then_and_at_the_end() -> None:
    made, query, told, clock = accounts("update")
    for batch in range(10):
        made.published(batch, None, 1, is_new=True)
        query.newest = progress(batch, watermark=None)
        made.between_batches(query, idle=False)
    assert [one.batch for one in told] == [0]
    made.between_batches(query, idle=True)
    assert [one.batch for one in told] == [0, 9]
    clock.now += ACCOUNT_SECONDS
    made.published(10, None, 1, is_new=True)
    query.newest = progress(10, watermark=None)
    made.between_batches(query, idle=False)
    assert query.asked == 3


def test_a_batch_that_spark_has_not_written_down_is_asked_about_again() -> None:
    made, query, told, _ = accounts()
    made.published(4, None, 0, is_new=True)
    for newest in (None, progress(3), progress(4)):
        query.newest = newest
        made.between_batches(query, idle=False)
    assert [one.batch for one in told] == [4]


def test_a_progress_that_cannot_be_read_is_told_of_once_and_stops_nothing() -> None:
    complaints: list[str] = []
    made = StateAccounts("append", lambda account: None, complaints.append)
    query = Query()
    for batch in range(3):
        made.published(batch, None, 0, is_new=True)
        query.newest = {"batchId": batch, "stateOperators": [{"operatorName": "stateStoreSave"}]}
        made.between_batches(query, idle=False)
    assert complaints == ["late rows and state are not counted: KeyError: 'numRowsTotal'"]


def test_a_replay_is_not_counted_again() -> None:
    made, query, told, _ = accounts()
    for is_new in (True, False):
        made.published(4, None, 0, is_new=is_new)
        query.newest = progress(4, dropped=3)
        made.between_batches(query, idle=False)
    assert [(one.late_rows, one.kept[0].rows) for one in told] == [(3, 7), (0, 7)]


def test_a_batch_that_was_cut_off_before_spark_told_of_it_is_counted_when_it_is_replayed() -> None:
    made, query, told, _ = accounts()
    made.published(3, None, 0, is_new=True)
    query.newest = progress(3, dropped=1)
    made.between_batches(query, idle=False)
    made.published(4, None, 0, is_new=True)
    made.between_batches(query, idle=False)  # Spark has not written down what it did, and is ended here
    query = Query()
    made.published(4, None, 0, is_new=False)
    query.newest = progress(4, dropped=3)
    made.between_batches(query, idle=False)
    assert [(one.batch, one.late_rows) for one in told] == [(3, 1), (4, 3)]


def test_what_the_driver_before_was_not_told_of_is_counted_by_this_one() -> None:
    """Spark tells of a batch after it has committed it, and replays only what it has not committed."""
    made, query, told, _ = accounts()
    made.published(4, None, 0, is_new=False)
    query.newest = progress(4, dropped=3)
    made.between_batches(query, idle=False)
    assert [one.late_rows for one in told] == [3]


def test_results_that_waited_for_a_watermark_are_as_old_as_their_rows() -> None:
    made, query, _, _ = accounts()
    made.published(0, (50.0, 60.0), 0, is_new=True)
    query.newest = progress(0)
    made.between_batches(query, idle=False)
    born = made.born((99.0, 99.5))
    assert born is not None
    assert born[0] == 50.0
    updating, query, _, _ = accounts("update")
    updating.published(0, (50.0, 60.0), 0, is_new=True)
    query.newest = progress(0)
    updating.between_batches(query, idle=False)
    assert updating.born((99.0, 99.5)) == (99.0, 99.5)


def test_what_timers_emit_in_a_batch_without_rows_is_as_old_as_the_rows_of_their_time() -> None:
    made, query, _, _ = accounts()
    made.published(0, (50.0, 60.0), 0, is_new=True)
    told = progress(0)
    told["stateOperators"][0]["operatorName"] = "transformWithStateInPySparkExec"
    query.newest = told
    made.between_batches(query, idle=False)
    assert made.born((99.0, 99.5)) == (99.0, 99.5), "rows may be answered at once"
    born = made.born(None)
    assert born is not None
    assert born[0] == 50.0
