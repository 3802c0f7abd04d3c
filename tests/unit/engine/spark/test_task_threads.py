"""Who has the task threads, out of what Spark answers. The real answers are in tests/spark/test_spark_internals.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from penstock.cluster.provider import Executor
from penstock.engine.spark.batch_history import RanTask
from penstock.engine.spark.internals import SparkInternals
from penstock.engine.spark.streams import PlacedStreams, TaskThreads

SMALL, LARGE = Executor("1", "127.0.0.2", 1), Executor("1", "127.0.0.2", 4)


def internals_of(held: str) -> SparkInternals:
    """Of a Spark whose scheduler writes this map."""
    internals = SparkInternals.__new__(SparkInternals)
    scheduler = SimpleNamespace(runningTasksByExecutors=lambda: SimpleNamespace(mkString=lambda between: held))
    internals._java = SimpleNamespace(context=SimpleNamespace(taskScheduler=lambda: scheduler))  # type: ignore[assignment]
    return internals


@pytest.mark.parametrize(
    ("held", "found"),
    [("", {}), ("0 -> 2\n17 -> 0", {"0": 2, "17": 0}), ("driver -> 3", {"driver": 3}), ("another language", {})],
)
def test_spark_s_scheduler_counts_the_tasks_of_each_executor(held: str, found: dict[str, int]) -> None:
    assert internals_of(held).threads_held() == found


class Internals:
    """One executor with a task of another job, and a task of this one that begins while Spark is asked."""

    def __init__(self, knows_job: bool = True) -> None:
        self._knows_job, self._begun, self.asked_about_tasks = knows_job, 0, 0
        self.failure: Exception | None = None

    def active_queries(self) -> frozenset[str]:
        return frozenset()

    def knows_job(self, group: str) -> bool:
        return self._knows_job

    def threads_held(self) -> dict[str, int]:
        held, self._begun = 1 + self._begun, 1
        return {"1": held}

    def running(self, group: str) -> list[RanTask]:
        self.asked_about_tasks += 1
        if self.failure is not None:
            raise self.failure
        running, self._begun = [RanTask(4, 0, "1")] if self._begun else [], 1
        return running


def streams_of(internals: Any) -> PlacedStreams:
    return PlacedStreams(internals)


def test_a_task_that_begins_meanwhile_has_begun_or_its_executor_has_a_thread() -> None:
    threads = streams_of(Internals()).task_threads("group", [SMALL])
    assert threads == TaskThreads(frozenset({0}), {"1": 1})


def test_nobody_asks_about_each_task_where_no_executor_is_full() -> None:
    """Of each task Spark is asked by several calls; how many run on all executors, by three."""
    internals = Internals()
    assert streams_of(internals).task_threads("group", [LARGE]) is None
    assert streams_of(internals).task_threads("group", []) is None
    assert internals.asked_about_tasks == 0


def test_nobody_says_who_has_the_threads_before_the_job_is_known() -> None:
    assert streams_of(Internals(knows_job=False)).task_threads("group", [SMALL]) is None


@pytest.mark.parametrize(
    "failure",
    [
        Py4JError("runningTasksByExecutors does not exist in the JVM"),
        AttributeError("'NoneType' object has no attribute 'runningTasksByExecutors'"),
    ],
)
def test_a_turn_begins_without_the_answer_of_a_spark_that_gives_none(failure: Exception) -> None:
    """What Java does not have comes to Python as None, for which Py4J has no error of its own."""
    internals = Internals()
    internals.failure = failure
    assert streams_of(internals).task_threads("group", [SMALL]) is None
