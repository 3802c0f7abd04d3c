"""What is done every few seconds: counted, so that it does not grow with operators, slots or files that do nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from penstock.engine.query import query as operator_query
from penstock.engine.query.query import OperatorQuery
from penstock.engine.run.chores import KEPT_BATCHES, PRUNED_BATCHES, Chores, Staging
from penstock.engine.spark.descriptor_frames import DescriptorFrames
from penstock.engine.spark.java_callbacks import PlacedSource
from penstock.engine.spark.streams import ACTIVE_SECONDS, ActiveQueries
from penstock.sinks.parquet_sink import STAGING, ParquetWriter

OPERATORS = [f"op{index}" for index in range(100)]


class Around:
    """Channels and catalog, which count what is asked of them."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self.pruned: list[tuple[str, int]] = []
        self.sweeps: list[bool] = []
        self.nobody_publishes = True

    def sweep(self) -> None:
        self.sweeps.append(False)

    def sweep_at_the_end(self) -> None:
        self.sweeps.append(True)

    def last_batch(self, operator: str) -> int | None:
        return self.last.get(operator)

    def prune_batches(self, operator: str, keep: int) -> None:
        self.pruned.append((operator, keep))


def nothing() -> None: ...


@pytest.fixture
def around() -> Around:
    return Around()


def chores(around: Any, *staging: Staging) -> Chores:
    return Chores(around, around, OPERATORS, lambda: staging)


def test_operators_that_do_nothing_cost_no_statement(around: Around) -> None:
    around.last = dict.fromkeys(OPERATORS, 7)
    do = chores(around)
    do()
    assert len(around.pruned) == len(OPERATORS), "once after a start: an earlier run may have left more"
    around.pruned.clear()
    for _ in range(100):
        do()
    assert around.pruned == []


def test_manifests_are_pruned_now_and_then_where_there_are_new_ones(around: Around) -> None:
    do = chores(around)
    for batch in range(1000):
        around.last = {"op3": batch}
        do()
    assert set(around.pruned) == {("op3", KEPT_BATCHES)}
    assert 1000 // PRUNED_BATCHES <= len(around.pruned) <= 1000 // PRUNED_BATCHES + 1


# Files that are staged for a batch

ROWS = [pa.record_batch([[1, 2]], names=["n"])]


def staged(folder: Path) -> set[str]:
    return {"-".join(path.name.split("-")[:2]) for path in (folder / STAGING).iterdir()}


def test_what_failed_attempts_have_staged_goes_while_the_sink_runs(tmp_path: Path, around: Around) -> None:
    writer, other = ParquetWriter(str(tmp_path), "mark"), ParquetWriter(str(tmp_path), "other")
    do = chores(around, Staging(writer, "out"))
    for batch in (3, 4, 5, 6):
        writer.write(ROWS, f"part-{batch:010d}-00000")
    other.write(ROWS, "part-0000000001-00000")
    do()
    assert len(staged(tmp_path)) == 5, "nothing was published: all of it may still be"
    around.last = {"out": 5}
    for _ in range(15):
        do()
    # Those of batch 5 may be on their way to their final names, those of 6 are being written; the other's are its own.
    assert staged(tmp_path) == {"part-0000000005", "part-0000000006", "part-0000000001"}


def test_another_query_that_writes_for_the_same_sink_counts_its_own_batches(tmp_path: Path, around: Around) -> None:
    alone, in_chain = ParquetWriter(str(tmp_path), "mark"), ParquetWriter(str(tmp_path), "mark", ".first")
    alone.write(ROWS, "part-0000000003-00000")
    in_chain.write(ROWS, "part-0000000004-00000")
    around.last = {"out": 100, "first": 5}
    chores(around, Staging(in_chain, "first"))()
    assert staged(tmp_path) == {"part-0000000003"}


def test_what_failed_attempts_at_the_last_batch_have_staged_goes_at_the_end(tmp_path: Path, around: Around) -> None:
    writer, other = ParquetWriter(str(tmp_path), "mark"), ParquetWriter(str(tmp_path), "other")
    for batch in (5, 6):
        writer.write(ROWS, f"part-{batch:010d}-00000")
    other.write(ROWS, "part-0000000001-00000")
    around.last = {"out": 5}
    left: list[set[str]] = []
    chores(around, Staging(writer, "out")).end(lambda: left.append(staged(tmp_path)))
    assert len(left[0]) == 3, "what is published gets its final name before anything is deleted"
    assert staged(tmp_path) == {"part-0000000001"}, "what another sink has staged is its own"


def test_what_is_staged_stays_at_the_end_while_a_thread_still_publishes(tmp_path: Path, around: Around) -> None:
    """It may be between the commit and the move of the files. The next start deletes what is left."""
    writer = ParquetWriter(str(tmp_path), "mark")
    writer.write(ROWS, "part-0000000006-00000")
    around.last, around.nobody_publishes = {"out": 5}, False
    chores(around, Staging(writer, "out")).end(nothing)
    assert staged(tmp_path) == {"part-0000000006"}


def test_one_sink_a_round_is_looked_at(around: Around) -> None:
    looked: Counter[int] = Counter()
    writers: list[Any] = [
        SimpleNamespace(clear=lambda before=None, index=index: looked.update([index])) for index in range(30)
    ]
    around.last = {"out": 5}
    do = chores(around, *(Staging(writer, "out") for writer in writers))
    for count in range(1, 31):
        do()
        assert looked.total() <= count
    assert looked == Counter(range(30))
    do.end(nothing)
    assert looked.total() == 60
    assert around.sweeps == [False] * 30 + [True]


# Calls of the JVM


def test_one_call_tells_of_all_queries_whoever_looks_and_however_often() -> None:
    calls, now = [], [100.0]

    def ask() -> frozenset[str]:
        calls.append(now[0])
        return frozenset(OPERATORS[:50])

    active = ActiveQueries(ask, lambda: now[0])
    for _ in range(200):  # ten seconds of the command line, a waiting program and the keeper
        now[0] += 0.05
        assert [active.has(name) for name in OPERATORS] == [True] * 50 + [False] * 50
    assert len(calls) <= 10 / ACTIVE_SECONDS + 1


def test_a_query_that_runs_is_not_asked_and_one_that_ended_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Query:
        id = "q"

        @property
        def isActive(self) -> bool:
            asked.append("isActive")
            return False

        def exception(self) -> Exception:
            return RuntimeError("it ended")

    monkeypatch.setattr(operator_query.OperatorQuery, "__init__", lambda self: None)
    query, running = OperatorQuery(), {"q"}  # type: ignore[call-arg]
    query.failure, query.query, query._id = None, Query(), ""  # type: ignore[assignment]
    active = SimpleNamespace(has=lambda name: name in running)
    query.context = SimpleNamespace(streams=SimpleNamespace(active=active))  # type: ignore[assignment]
    failures: list[Exception] = []
    monkeypatch.setattr(query, "fail", failures.append)
    query.notice_end()
    assert (asked, failures) == ([], [])
    running.clear()
    query.notice_end()
    assert asked == ["isActive"]
    assert [str(one) for one in failures] == ["it ended"]


def test_an_answer_that_is_the_same_is_made_once() -> None:
    made: list[str] = []
    java = MagicMock(none="none", some=lambda offset: f"some {offset}")
    java.class_named.return_value.side_effect = lambda text: (made.append(text), text)[1]
    answers = iter([None, None, "1", "1", "1", "2"])
    feed: Any = SimpleNamespace(latest=lambda: next(answers), fail=lambda error: None)
    source = PlacedSource(DescriptorFrames(java), "rows", feed, None)
    assert [source.getOffset() for _ in range(6)] == ["none", "none", "some 1", "some 1", "some 1", "some 2"]
    assert made == ["1", "2"]


def test_freed_memory_is_given_back_in_every_round_that_is_due(around: Around) -> None:
    do, rounds = chores(around), []
    do._freed = SimpleNamespace(return_sometimes=lambda: rounds.append(True))
    do()
    do()
    assert len(rounds) == 2
