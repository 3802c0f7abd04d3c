"""Where the tasks of a query's finished batches ran, as Spark's own records have it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

from penstock.engine.spark.java_values import JavaValues

#: No batch has more tasks than are looked at.
MOST_TASKS = 10_000


@dataclass(frozen=True)
class RanTask:
    """One task of a finished batch: which partition of which stage, and the executor that ran it."""

    stage: int
    partition: int
    executor: str
    seconds: float = 0.0


@dataclass(frozen=True)
class RanBatch:
    """A finished batch, by its number in its query."""

    batch: int
    tasks: tuple[RanTask, ...]


def recent_batches(java: JavaValues, query: StreamingQuery) -> Iterator[RanBatch]:
    """All finished batches of a query that Spark still knows of, the newest first."""
    store = java.context.statusStore()
    jobs = java.context.statusTracker().getJobIdsForGroup(str(query.runId))
    for job in sorted(jobs, reverse=True):
        data = store.job(job)
        text = data.description()
        batch = re.search(r"batch = (\d+)", str(text.get()) if text.isDefined() else "")
        if batch is None or str(data.status()) != "SUCCEEDED":
            continue
        stages = sorted(java.each(data.stageIds()))
        yield RanBatch(int(batch[1]), tuple(task for stage in stages for task in _tasks_of(java, store, stage)))


def _tasks_of(java: JavaValues, store: Any, stage: int) -> Iterator[RanTask]:
    try:
        attempt = store.lastStageAttempt(stage).attemptId()
    except Py4JError:
        return  # Spark skipped the stage, because its output was there already: it has no attempt, and that is usual
    for task in java.each(store.taskList(stage, attempt, MOST_TASKS)):
        if task.status() == "SUCCESS":
            took = task.duration()
            seconds = took.get() / 1000 if took.isDefined() else 0.0
            yield RanTask(stage, task.index(), task.executorId(), seconds)
