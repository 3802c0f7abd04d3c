"""What Spark's shuffle read from other machines, out of records such as Spark writes them. The real ones are in
tests/spark/test_spark_internals.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.engine.spark.shuffle_reads import ShuffleReads


def stage(number: int, read: int = 0, status: str = "COMPLETE", **more: Any) -> dict[str, Any]:
    query, attempt, job = more.get("query", "words"), more.get("attempt", 0), more.get("job", 5)
    info = {"stageId": number, "attemptId": attempt, "status": status, "shuffleRemoteBytesRead": read}
    if query:
        info["description"] = f"{query}\nid = 1-a\nrunId = 2-b\nbatch = 3"
    return {"info": info, "jobIds": [job]}


def task(executor: str, read: int | None) -> dict[str, Any]:
    metrics = {} if read is None else {"taskMetrics": {"shuffleReadMetrics": {"remoteBytesRead": read}}}
    return {"executorId": executor, "status": "SUCCESS", **metrics}


class Recorded:
    """Says what it was asked for."""

    def __init__(self) -> None:
        self.known: list[dict[str, Any]] = []
        self.of_tasks: dict[tuple[int, int], list[dict[str, Any]]] = {}
        self.asked: list[object] = []

    def next_job(self) -> int:
        return 5

    def stages(self, first: int) -> Sequence[Mapping[str, Any]]:
        self.asked.append(first)
        return [one for one in self.known if one["info"]["stageId"] >= first]

    def tasks(self, stage: int, attempt: int) -> Sequence[Mapping[str, Any]]:
        self.asked.append((stage, attempt))
        return self.of_tasks[stage, attempt]


def test_bytes_are_shared_out_as_the_newest_stage_read_them() -> None:
    records = Recorded()
    records.known = [stage(0), stage(1, 300), stage(2), stage(3, 100), stage(4, 0, query="joins")]
    records.of_tasks[3, 0] = [task("7", 20), task("8", 70), task("7", 10), task("9", 0), task("9", None)]
    assert ShuffleReads(records).look() == {"words": {"7": 120, "8": 280}, "joins": {}}
    assert records.asked == [0, (3, 0)], "tasks are asked for where something came from elsewhere, once a query"


def test_every_attempt_counts_once_whenever_it_ends() -> None:
    records = Recorded()
    reads = ShuffleReads(records)
    records.known = [stage(0, status="ACTIVE"), stage(1, 10, query="joins"), stage(2, status="PENDING", query="")]
    records.of_tasks = {(number, attempt): [task("7", 1)] for number in range(4) for attempt in range(2)}
    assert reads.look() == {"joins": {"7": 10}}
    records.known = [stage(0, 5, "FAILED"), stage(0, 6, attempt=1), stage(1, 10, query="joins"), stage(2, 40)]
    assert reads.look() == {"words": {"7": 51}}, "also what a failed attempt read has crossed the network"
    records.asked.clear()
    assert reads.look() == {}
    assert records.asked == [3], "what was counted is not read again"


def test_a_stage_whose_end_spark_has_missed_lets_nothing_grow() -> None:
    """Spark keeps a stage for good that it takes for one that goes on, and forgets the others."""
    records = Recorded()
    reads = ShuffleReads(records)
    for number in range(1, 100):
        records.known = [stage(0, status="ACTIVE"), stage(number, 7), stage(number + 1, 7)]
        records.of_tasks = {(number, 0): [task("7", 7)], (number + 1, 0): [task("7", 7)]}
        assert reads.look() == {"words": {"7": 14 if number == 1 else 7}}
    assert len(reads._counted) == 2


def test_what_is_no_batch_of_this_run_does_not_count() -> None:
    records = Recorded()
    stands = {"status": "ACTIVE", "stageId": 1, "attemptId": 0, "description": "words: bundles that stand"}
    records.known = [stage(0, 70, job=4), {"info": stands, "jobIds": [6]}, stage(2, 9, query=""), stage(3, 0)]
    reads = ShuffleReads(records)
    assert reads.look() == {"words": {}}
    reads.look()
    assert records.asked == [0, 4], "a turn of bundles that stand goes on for minutes, and holds nothing up"


def test_bytes_of_which_no_task_is_known_any_more_are_nowhere_in_particular() -> None:
    records = Recorded()
    records.known, records.of_tasks = [stage(0, 70)], {(0, 0): []}
    assert ShuffleReads(records).look() == {"words": {"": 70}}
