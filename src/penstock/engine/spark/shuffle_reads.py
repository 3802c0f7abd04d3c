"""What Spark's shuffle brought to executors from other machines, query by query, as Spark's own records have it.

Spark counts for every task how many bytes it fetched from elsewhere, and not from where. What lies on the disks of the
same machine it reads there, and counts as local. A look takes as few calls of the JVM as possible: Java writes what it
knows as one text. So a look costs about the same however many queries there are.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.engine.spark.java_values import JavaValues

#: How Spark describes the stages of a micro-batch.
_BATCH = re.compile(r"(?P<query>[^\n<]*).*\bbatch = \d+", re.DOTALL)
#: A stage that has not ended may still read.
_GOES_ON = ("PENDING", "ACTIVE")
#: No stage has more tasks than are looked at.
MOST_TASKS = 10_000


class Records(Protocol):
    """Spark's records, as Spark's REST interface would show them."""

    def next_job(self) -> int:
        """The number of the next job."""

    def stages(self, first: int) -> Sequence[Mapping[str, Any]]:
        """All attempts at stages from this number on that Spark still knows of, in their order: each with its `info`
        and the `jobIds` that it is for."""

    def tasks(self, stage: int, attempt: int) -> Sequence[Mapping[str, Any]]:
        """The tasks of an attempt at a stage."""


class StatusRecords:
    """Of the SparkContext in this process."""

    def __init__(self, java: JavaValues) -> None:
        self._context = java.context
        self._status = self._context.statusStore()
        self._store = self._status.store()
        self._java = java

    @functools.cached_property
    def _stages(self) -> Any:
        return self._java.class_named("java.lang.Class").forName("org.apache.spark.status.StageDataWrapper")

    @functools.cached_property
    def _mapper(self) -> Any:
        """What writes the answers of Spark's REST interface, too. Its classes take a while to load, so only who looks
        loads them."""
        return self._java.class_named("org.apache.spark.status.api.v1.JacksonMessageWriter")().mapper()

    def next_job(self) -> int:
        return int(self._context.dagScheduler().nextJobId())

    def stages(self, first: int) -> Sequence[Mapping[str, Any]]:
        return self._read(self._store.view(self._stages).index("stageId").first(first))

    def tasks(self, stage: int, attempt: int) -> Sequence[Mapping[str, Any]]:
        return self._read(self._status.taskList(stage, attempt, MOST_TASKS))

    def _read(self, java: Any) -> Sequence[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = json.loads(self._mapper.writeValueAsString(java))
        return found


@dataclass(frozen=True)
class _Stage:
    """An attempt at a stage of a micro-batch that has ended."""

    number: int
    attempt: int
    query: str
    remote_bytes: int


class ShuffleReads:
    """Of all queries. One thread looks."""

    def __init__(self, records: Records) -> None:
        """What began before this moment is none of ours: another run may have had queries of the same names."""
        self._records = records
        self._first_job = records.next_job()
        #: Attempts before this stage are counted, or are no stages of micro-batches.
        self._first = 0
        self._counted: set[tuple[int, int]] = set()

    def look(self) -> dict[str, dict[str, int]]:
        """By query and executor: bytes from other machines, of all stages that have ended since the last look. A query
        of which a stage has ended is there, also if its tasks read nothing from elsewhere."""
        by_query: dict[str, list[_Stage]] = {}
        for stage in self._ended():
            by_query.setdefault(stage.query, []).append(stage)
        return {query: self._by_executor(stages) for query, stages in by_query.items()}

    def _ended(self) -> list[_Stage]:
        found, going_on, last = [], [], self._first
        known = set()
        for one in self._records.stages(self._first):
            info = one["info"]
            attempt = (info["stageId"], info["attemptId"])
            known.add(attempt)
            last = max(last, info["stageId"] + 1)
            described = _BATCH.match(info.get("description") or "")
            # A stage that waits has no description yet. A turn of bundles that stand goes on for long, and is no batch.
            if info["status"] in _GOES_ON:
                if described or info["status"] == "PENDING":
                    going_on.append(info["stageId"])
            elif described and attempt not in self._counted and max(one["jobIds"], default=-1) >= self._first_job:
                self._counted.add(attempt)
                found.append(_Stage(*attempt, described["query"], info["shuffleRemoteBytesRead"]))
        self._first = min(going_on, default=last)
        # What Spark has forgotten does not come again. A stage whose end Spark has missed goes on for good.
        self._counted = {attempt for attempt in self._counted & known if attempt[0] >= self._first}
        return found

    def _by_executor(self, stages: Sequence[_Stage]) -> dict[str, int]:
        """All bytes of these stages. How they are shared out among executors is asked of the newest stage only, and
        stands for all: the tasks of a keyed operator stay where they are for long."""
        total = sum(stage.remote_bytes for stage in stages)
        newest = max((stage for stage in stages if stage.remote_bytes), key=lambda stage: stage.number, default=None)
        if newest is None:
            return {}
        read: dict[str, int] = {}
        for task in self._records.tasks(newest.number, newest.attempt):
            metrics = task.get("taskMetrics") or {}
            size = metrics.get("shuffleReadMetrics", {}).get("remoteBytesRead", 0)
            if size > 0:
                read[task["executorId"]] = read.get(task["executorId"], 0) + size
        known = sum(read.values())
        return {executor: round(total * size / known) for executor, size in read.items()} if known else {"": total}
