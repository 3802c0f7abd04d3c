"""Tasks of two keyed operators move in one change, on doubles of Spark: each look at the run lets some batches pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock import PenstockError, Settings, Topology, sinks, sources
from penstock.clock import run_time
from penstock.cluster.model import Cluster, Placement, Slot
from penstock.engine.change import changes
from penstock.engine.change.changes import RunningEngine
from penstock.engine.change.crossings import commit_seconds
from penstock.engine.spark.batch_history import RanBatch, RanTask
from penstock.monitor.publications import Publications
from penstock.monitor.report import BatchReport
from penstock.plans.migration import Barrier
from penstock.running.placements import Observed
from penstock.topology.definition import Operator, TopologyDefinition

A, B = Slot("a", 0), Slot("b", 0)
KEYED = ("count", "sum")


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def declared() -> TopologyDefinition:
    """rows -> tag -> raw; rows -> count -> counts; rows -> sum -> sums."""
    topology, schema = Topology("t"), "id long, value double"
    rows = topology.source("rows", sources.rate(1, sources.numbers()))
    tagged = topology.map("tag", same, inputs=rows, schema=schema)
    topology.sink("raw", sinks.noop(), inputs=tagged)
    for name in KEYED:
        kept = topology.keyed(name, lambda frame: frame, inputs=rows, key="id", schema=schema, tasks=2)
        topology.sink(f"{name}s", sinks.noop(), inputs=kept)
    return topology.definition()


@dataclass
class Feed:
    """What a source has."""

    rows: int = 0

    def available(self) -> int:
        return self.rows


@dataclass
class Query:
    """Spark's query of one operator."""

    world: World
    name: str
    feeds: tuple[Any, ...] = ("rows",)
    drained: bool = False
    quiet: bool = False
    intake: Any = field(default_factory=lambda: SimpleNamespace(paused=False))
    #: By batch: when it asked where it is to run.
    asked: dict[int, float] = field(default_factory=dict)
    commit_ms: int | None = 40

    def requested(self, batch: int) -> Any:
        return SimpleNamespace(at=self.asked[batch]) if batch in self.asked else None

    @property
    def operator(self) -> Operator:
        return self.world.definition.operator(self.name)

    @property
    def query(self) -> Query:
        return self

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        steps = [] if self.commit_ms is None else [{"commitTimeMs": self.commit_ms}]
        return [{"batchId": batch, "stateOperators": steps} for batch in self.asked]


class World:
    """A run of which nothing runs: `batch` says what has."""

    def __init__(self) -> None:
        self.definition = declared()
        self.settings = Settings(change_seconds=10)
        self.publications = Publications()
        self.told: list[tuple[str, str, dict[str, Any]]] = []
        placed = {one.name: {A: 1} for one in self.definition.operators}
        self.planned = Placement(placed, dict.fromkeys(KEYED, (A, A)))
        self.by_operator = {one.name: Query(self, one.name) for one in self.definition.operators}
        self.ran: dict[str, list[RanBatch]] = {name: [] for name in self.by_operator}
        self.seen: dict[str, Observed] = {}
        #: What happens at each look that the change takes at the run.
        self.looks: Iterator[None] = iter(())
        #: Slots that are lost now.
        self.lost: set[Slot] = set()
        cluster = Cluster.of(["a", "b"], 1)
        self.run: Any = SimpleNamespace(
            definition=self.definition,
            settings=self.settings,
            publications=self.publications,
            arrangement=self,
            chaining=SimpleNamespace(split=lambda placement: None, join=lambda: None),
            placements=SimpleNamespace(observed=self.seen.get),
            host=SimpleNamespace(
                cluster=cluster,
                slots=SimpleNamespace(usable=lambda: frozenset(cluster.slots) - self.lost),
                provider=SimpleNamespace(arrived=lambda machine: None),
                streams=SimpleNamespace(internals=SimpleNamespace(recent=lambda query: iter(self.ran[query.name]))),
            ),
            context=SimpleNamespace(checkpoint=lambda operator: operator),
            catalog=SimpleNamespace(set_meta=lambda key, value: None),
            query=self.by_operator.__getitem__,
            check=lambda: next(self.looks, None),
            placed_anew=lambda at: None,
            happened=lambda kind, reason, subject="", cause="", fields=None: self.told.append(
                (subject, reason, dict(fields or {}))
            ),
        )

    @property
    def requested(self) -> Placement:
        return self.planned

    def plan(self, placement: Placement) -> None:
        self.planned = placement

    def job(self, operator: str, seconds: float = 0.1) -> None:
        """Spark has finished a batch, which asked now where it is to run."""
        batch = len(self.by_operator[operator].asked)
        self.by_operator[operator].asked[batch] = now = run_time()
        tasks = self.planned.tasks.get(operator, ())
        ran = RanBatch(batch, tuple(RanTask(0, task, slot.name, seconds) for task, slot in enumerate(tasks)))
        self.ran[operator].insert(0, ran)
        self.seen[operator] = Observed(batch, now, dict(self.planned.of(operator)), dict(enumerate(tasks)))

    def published(self, operator: str, batch: int | None = None, seconds: float = 1000.0) -> None:
        """Penstock has published the newest batch. It began before it asked where it is to run, and here before any
        change."""
        number = len(self.by_operator[operator].asked) - 1 if batch is None else batch
        now = run_time()
        self.publications.note(BatchReport(operator, number, now - seconds, now, 10, {}, ()))

    def batch(self, operator: str, seconds: float = 0.1) -> None:
        self.job(operator, seconds)
        self.published(operator)

    def move(self, **tasks: tuple[Slot, Slot]) -> Any:
        placement = Placement(self.planned.instances, {**self.planned.tasks, **tasks})
        return RunningEngine(self.run).place(placement, lambda: "")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(
        changes, "state_bytes", lambda checkpoint, tasks: {"count": [100, 300], "sum": [7, 0]}[checkpoint]
    )
    monkeypatch.setattr(changes, "POLL", 0.001)
    monkeypatch.setattr(changes, "IDLE_SECONDS", 0.05)
    made = World()
    for _ in range(3):
        for operator in made.by_operator:
            made.batch(operator)
    return made


def test_operators_that_move_together_cross_their_barriers_each_at_a_batch_of_its_own(world: World) -> None:
    def looks() -> Iterator[None]:
        # "count" had begun a batch, which asked before the change: it is the last one on the old placement.
        world.published("count", batch=2)
        yield
        world.batch("tag")
        world.batch("count", seconds=0.6)
        yield
        for _ in range(2):
            world.batch("tag")
            world.batch("count")
            yield
        world.batch("sum", seconds=0.3)
        yield

    world.looks = looks()
    placed = world.move(count=(A, B), sum=(B, B))
    count, total = placed.migrations
    assert (count.operator, count.tasks, count.tasks_of_operator) == ("count", (1,), 2)
    assert (count.moved_bytes, count.state_bytes, count.share) == (300, 400, 0.75)
    assert (count.barriers.first.batch, count.barriers.second.batch) == (2, 3)
    assert (total.operator, total.tasks, total.share) == ("sum", (0, 1), 1.0)
    assert (total.barriers.first.batch, total.barriers.second.batch) == (2, 3)
    assert count.asked_at == total.asked_at
    assert count.barriers.second.at < total.barriers.second.at, "neither waits for the other"
    assert count.pause_seconds > 0
    assert total.pause_seconds == 0, "no batch of it was under way"
    assert total.resume_seconds > count.resume_seconds
    assert (count.save_seconds, total.save_seconds) == (0.04, 0.04)
    assert count.load_seconds == pytest.approx(0.5), (
        "of its first batch, though others followed before the change ended"
    )
    assert total.load_seconds == pytest.approx(0.2)


def test_operators_that_do_not_move_are_listed_with_their_flow(world: World) -> None:
    def looks() -> Iterator[None]:
        for _ in range(3):
            world.batch("tag")
            yield
        world.batch("count")
        yield

    world.looks = looks()
    [moved] = world.move(count=(B, B)).migrations
    others = {one.operator: one for one in moved.others}
    assert set(others) == {"rows", "tag", "raw", "counts", "sum", "sums"}
    assert others["tag"].rows_per_second_during > 0
    assert others["sum"].rows_per_second_during == 0, "it published nothing meanwhile"
    assert others["tag"].gap_seconds < others["sum"].gap_seconds
    assert {name for name, one in others.items() if one.behind} == {"counts"}
    assert moved.own.operator == "count"
    assert not moved.own.behind


def test_barriers_are_events(world: World) -> None:
    world.looks = iter(lambda: world.batch("count"), 0)  # type: ignore[arg-type]
    [moved] = world.move(count=(A, B)).migrations
    [first, second] = [one for one in world.told if "barrier" in one[2]]
    assert (first[0], second[0]) == ("count", "count")
    assert first[1].startswith("first barrier: batch 2 is the last batch on the old placement; it was published before")
    assert second[1].startswith("second barrier: batch 3 is the first batch on the new placement")
    assert (first[2]["barrier"], first[2]["batch"], first[2]["tasks"]) == ("first", 2, [1])
    assert second[2]["time"] == pytest.approx(moved.barriers.second.at)


def test_a_batch_that_spark_has_finished_counts_when_it_is_published(world: World) -> None:
    def looks() -> Iterator[None]:
        world.published("count", batch=2)  # the change looks, and sees what Spark has finished since
        world.job("count")
        yield
        yield
        assert world.told == [], "nothing is crossed yet"
        world.published("count")
        yield

    world.looks = looks()
    [moved] = world.move(count=(A, B)).migrations
    assert moved.barriers.second.batch == 3


def test_batches_while_a_slot_of_the_change_is_lost_are_no_barrier(world: World) -> None:
    def looks() -> Iterator[None]:
        world.lost.add(B)
        yield
        world.batch("count")
        yield
        world.lost.clear()
        world.batch("count")
        yield

    world.looks = looks()
    [moved] = world.move(count=(A, B)).migrations
    assert (moved.barriers.first.batch, moved.barriers.second.batch) == (2, 4)


def test_a_batch_that_is_only_run_once_more_moves_the_tasks_and_is_no_barrier(world: World) -> None:
    """Batch 2 is published, and Spark has not written its commit: the query is started again and replays the batch."""
    before = world.publications.newest("count")
    assert before is not None

    def looks() -> Iterator[None]:
        at = run_time()
        world.by_operator["count"].asked[before.batch] = at
        tasks = world.planned.tasks["count"]
        world.seen["count"] = Observed(before.batch, at, dict(world.planned.of("count")), dict(enumerate(tasks)))
        while True:
            yield

    world.looks = looks()
    [moved] = world.move(count=(A, B)).migrations
    assert moved.barriers.second is None
    assert moved.resume_seconds is None


def test_an_operator_that_has_nothing_to_do_moves_without_a_second_barrier(world: World) -> None:
    world.by_operator["count"].drained = True
    [moved] = world.move(count=(A, B)).migrations
    assert moved.barriers.first == Barrier(2, world.publications.batches("count")[-1].finished)
    assert (moved.barriers.second, moved.resume_seconds, moved.load_seconds) == (None, None, None)
    assert moved.pause_seconds == 0
    assert moved.save_seconds == 0.04
    assert world.told == []


def move_source(world: World, rows: int, paused: bool) -> None:
    """Move a source that has so many rows, and of which no batch ever runs."""
    source = world.by_operator["rows"]
    source.quiet, source.feeds, source.intake.paused = True, (Feed(rows),), paused
    world.run.settings = Settings(change_seconds=1)
    placement = Placement({**world.planned.instances, "rows": {B: 1}}, world.planned.tasks)
    RunningEngine(world.run).place(placement, lambda: "")


@pytest.mark.parametrize(("rows", "paused"), [(0, False), (0, True), (5, True)])
def test_a_source_that_has_nothing_or_is_paused_is_not_waited_for(world: World, rows: int, paused: bool) -> None:
    """It may have rows again at any time, so it is never drained."""
    move_source(world, rows, paused)
    assert world.planned.of("rows") == {B: 1}


def test_a_source_that_has_rows_is_waited_for(world: World) -> None:
    with pytest.raises(PenstockError) as caught:
        move_source(world, rows=5, paused=False)
    assert caught.value.name == "NOT_OBSERVED"


def test_a_paused_source_whose_batch_is_under_way_is_waited_for(world: World) -> None:
    def looks() -> Iterator[None]:
        while True:
            world.by_operator["rows"].quiet = False
            yield

    world.looks = looks()
    with pytest.raises(PenstockError, match="no batch of rows ran"):
        move_source(world, rows=0, paused=True)


def test_where_batches_do_not_ask_for_a_place_they_count_by_when_they_began(world: World) -> None:
    """Where Spark chooses the place of every bundle."""

    def looks() -> Iterator[None]:
        world.published("count", batch=3)
        yield
        yield
        world.published("count", batch=4, seconds=0.0)
        yield

    world.run.host.streams.internals = None
    world.by_operator["count"].asked[4] = 0.0
    world.looks = looks()
    [moved] = world.move(count=(A, B)).migrations
    assert (moved.barriers.first.batch, moved.barriers.second.batch) == (3, 4)
    assert moved.load_seconds is None


def test_what_spark_does_not_tell_is_unknown(world: World) -> None:
    world.by_operator["count"].commit_ms = None
    world.looks = iter(lambda: world.batch("count"), 0)  # type: ignore[arg-type]
    assert world.move(count=(A, B)).migrations[0].save_seconds is None


def test_a_change_that_moves_no_task_has_no_migration(world: World) -> None:
    world.looks = iter(lambda: world.batch("tag"), 0)  # type: ignore[arg-type]
    placement = Placement({**world.planned.instances, "tag": {B: 1}}, world.planned.tasks)
    assert RunningEngine(world.run).place(placement, lambda: "").migrations == ()


def test_the_newest_progress_of_a_batch_has_its_commit() -> None:
    """Spark writes progress under the number of the next batch while it waits, with what the last batch did."""
    steps = [{"commitTimeMs": 30}, {"commitTimeMs": 12}]
    waiting = {"batchId": 7, "stateOperators": [{"commitTimeMs": 9}]}
    progress = [waiting, {"batchId": 7, "stateOperators": steps}, {"batchId": 8, "stateOperators": []}]
    assert commit_seconds(progress, 7) == 0.042
    assert commit_seconds(progress, 8) is None, "no state"
    assert commit_seconds(progress, 9) is None, "not known any more"
