"""A repartition that fails: given up if Spark has not begun it, and finished at the next start otherwise."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from penstock import PenstockError, Topology, sinks, sources
from penstock.channels.catalog import Catalog
from penstock.cluster.model import Placement, Slot
from penstock.engine.change import repartition
from penstock.engine.change.repartition import carry_out
from penstock.engine.run import rewriting
from penstock.engine.run.queries import StaysStopped
from penstock.engine.run.rewriting import finish
from penstock.engine.spark.failures import FailureKind, kind_of
from penstock.engine.state.checkpoint_log import CheckpointLog
from penstock.engine.state.tasks import begin, recorded_tasks, under_way


class World:
    """A keyed operator that has finished batch 4, on a double of Spark."""

    def __init__(self, folder: Path) -> None:
        topology = Topology("words")
        rows = topology.source("rows", sources.rate(10, sources.numbers()))
        counted = topology.keyed("count", lambda frame: frame, inputs=[rows], key="id", schema="id long", tasks=2)
        topology.sink("out", sinks.noop(), inputs=[counted])
        self.checkpoint = folder / "checkpoints" / "count"
        self.catalog = Catalog.open(f"sqlite:///{folder}/catalog.sqlite", "words")
        self.log("offsets", 4)
        self.log("commits", 4)
        self.catalog.publish("count", 4, [], "{}", {})
        self.context: Any = SimpleNamespace(
            checkpoint=lambda operator: str(self.checkpoint),
            checkpoint_log=lambda operator: CheckpointLog.open(None, str(self.checkpoint)),  # type: ignore[arg-type]
            channels=SimpleNamespace(last_batch=self.catalog.last_batch, publish=self.catalog.publish),
        )
        self.run: Any = SimpleNamespace(
            definition=topology.definition(),
            placement=Placement({"count": {Slot("a", 0): 1}}, {"count": {0: Slot("a", 0), 1: Slot("a", 0)}}),
            queries=SimpleNamespace(stopped=lambda operator: nullcontext(), finish_batch=self.finish_batch),
            host=SimpleNamespace(spark=None),
            catalog=self.catalog,
            context=self.context,
            happened=lambda *words: self.told.append(words),
            has_stopped=False,
            placed_anew=lambda now: None,
            redefine=lambda definition, placement: None,
        )
        self.finished_batches = 0
        self.told: list[tuple[str, ...]] = []

    def log(self, log: str, batch: int) -> None:
        (self.checkpoint / log).mkdir(parents=True, exist_ok=True)
        (self.checkpoint / log / str(batch)).write_text('v1\n{}\n{"rows.out": 40}')

    def finish_batch(self, operator: str) -> None:
        self.finished_batches += 1
        planned = CheckpointLog.open(None, str(self.checkpoint)).planned()  # type: ignore[arg-type]
        self.log("commits", planned)

    def never_finishes_a_batch(self) -> None:
        shutil.rmtree(self.checkpoint / "commits")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.catalog.close()


def failing(world: World, monkeypatch: pytest.MonkeyPatch, *done: str) -> PenstockError:
    """Spark has written these logs of its rewriting, and its answer does not come."""

    def rewrite(*words: object) -> None:
        for log in done:
            world.log(log, 5)
        raise Py4JError("Answer from Java side is empty")

    monkeypatch.setattr(repartition, "repartition_state", rewrite)
    with pytest.raises(PenstockError) as caught:
        carry_out(world.run, "count", 4)
    assert caught.value.name == "REPARTITION_FAILED"
    return caught.value


def nothing_left_to_do(*words: object) -> None:
    """Spark finds as many partitions as are asked for."""


def test_one_that_spark_has_not_begun_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "tasks that it had" in failing(world, monkeypatch).hint
    assert under_way(world.catalog) is None


@pytest.mark.parametrize("done", [("offsets",), ("offsets", "commits")])
def test_one_that_spark_has_begun_or_done_is_finished_at_the_next_start(
    world: World, monkeypatch: pytest.MonkeyPatch, done: tuple[str, ...]
) -> None:
    assert "Start the topology again" in failing(world, monkeypatch, *done).hint
    assert under_way(world.catalog) == ("count", 4)
    world.log("commits", 5)
    monkeypatch.setattr(rewriting, "repartition_state", nothing_left_to_do)
    assert "was finished" in finish(None, world.context, world.catalog)  # type: ignore[arg-type]
    assert under_way(world.catalog) is None
    assert recorded_tasks(world.catalog) == {"count": 4}
    assert world.catalog.last_batch("count") == 5


def test_one_of_which_nothing_can_be_read_is_not_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where only Spark can open the checkpoint, and Spark is lost."""
    world.context.checkpoint = lambda operator: "s3a://only-spark/knows"
    failing(world, monkeypatch)
    assert under_way(world.catalog) == ("count", 4)


class RewritingSpark:
    """Rewrites the state as Spark does: not where no batch is finished, nor where the last batch was cut off."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.asked = 0

    def __call__(self, spark: object, checkpoint: str, tasks: int) -> None:
        self.asked += 1
        log = CheckpointLog.open(None, checkpoint)  # type: ignore[arg-type]
        if log.planned() < 0:
            raise Py4JError("[STATE_REPARTITION_INVALID_CHECKPOINT.NO_BATCH_FOUND] No microbatch has been recorded.")
        if log.finished() < 0:
            raise Py4JError(
                "[STATE_REPARTITION_INVALID_CHECKPOINT.NO_COMMITTED_BATCH] There is no committed microbatch."
            )
        if log.planned() > log.finished():
            raise Py4JError("[STATE_REPARTITION_INVALID_CHECKPOINT.LAST_BATCH_FAILED] The last batch has failed.")
        batch = log.planned() + 1
        for written in ("offsets", "commits"):
            self._world.log(written, batch)


@pytest.fixture
def spark(world: World, monkeypatch: pytest.MonkeyPatch) -> RewritingSpark:
    spark = RewritingSpark(world)
    for module in (repartition, rewriting):
        monkeypatch.setattr(module, "repartition_state", spark)
    return spark


@pytest.mark.parametrize("finished_before", [True, False])
def test_a_batch_that_was_cut_off_is_finished_first(world: World, spark: RewritingSpark, finished_before: bool) -> None:
    """Also the very first batch of an operator, which Spark calls by another name."""
    if finished_before:
        world.log("offsets", 5)
    else:
        world.never_finishes_a_batch()
    assert carry_out(world.run, "count", 4).tasks_after == 4
    assert world.finished_batches == 1
    assert recorded_tasks(world.catalog) == {"count": 4}
    assert under_way(world.catalog) is None


def test_an_operator_without_any_batch_has_no_state_to_rewrite(world: World, spark: RewritingSpark) -> None:
    shutil.rmtree(world.checkpoint)
    assert carry_out(world.run, "count", 4).tasks_after == 4
    assert spark.asked == 0
    assert recorded_tasks(world.catalog) == {"count": 4}
    assert under_way(world.catalog) is None


def test_one_before_which_a_batch_is_never_finished_is_given_up(
    world: World, spark: RewritingSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it were not, a start days later would cut the state, for a user who has been told that it failed."""
    world.log("offsets", 5)
    monkeypatch.setattr(world.run.queries, "finish_batch", lambda operator: None)
    with pytest.raises(PenstockError, match="again and again"):
        carry_out(world.run, "count", 4)
    assert under_way(world.catalog) is None


def test_a_start_gives_up_one_that_began_before_any_batch_was_finished(world: World, spark: RewritingSpark) -> None:
    """As an earlier Penstock may have left it: the topology must be able to start."""
    world.never_finishes_a_batch()
    begin(world.catalog, "count", 4)
    assert "is given up" in finish(None, world.context, world.catalog)  # type: ignore[arg-type]
    assert under_way(world.catalog) is None
    assert recorded_tasks(world.catalog) == {}


def test_while_one_is_half_done_no_other_is_begun(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark finishes a rewriting only with the same number of tasks. If another number were recorded, no start could
    finish it, and Spark starts no query on what is half rewritten."""
    failing(world, monkeypatch, "offsets")
    monkeypatch.setattr(repartition, "repartition_state", nothing_left_to_do)
    with pytest.raises(PenstockError, match="half done") as caught:
        carry_out(world.run, "count", 8)
    assert caught.value.name == "REPARTITION_FAILED"
    assert "Start the topology again" in caught.value.hint
    assert under_way(world.catalog) == ("count", 4)
    assert recorded_tasks(world.catalog) == {}


def test_one_that_is_half_done_can_be_asked_for_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(world, monkeypatch, "offsets")
    monkeypatch.setattr(repartition, "repartition_state", lambda *words: world.log("commits", 5))
    assert carry_out(world.run, "count", 4).tasks_after == 4
    assert under_way(world.catalog) is None
    assert recorded_tasks(world.catalog) == {"count": 4}
    assert world.catalog.last_batch("count") == 5


class CatalogAway:
    """A call of the catalog that fails so often."""

    def __init__(self, call: Callable[..., Any], times: float) -> None:
        self._call = call
        self._left = times

    def __call__(self, *words: Any) -> Any:
        self._left -= 1
        if self._left >= 0:
            raise PenstockError("CATALOG_UNREACHABLE", "the catalog: database or disk is full.", "Make room.")
        return self._call(*words)


def meta_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog goes away after Spark's rewriting was entered as a batch."""
    publish = world.catalog.publish

    def published(*words: Any) -> Any:
        monkeypatch.setattr(world.catalog, "set_meta", CatalogAway(world.catalog.set_meta, 1))
        return publish(*words)

    world.context.channels.publish = published


@pytest.mark.parametrize("away", ["publish", "set_meta"])
def test_a_catalog_that_is_away_after_spark_has_cut_the_state_is_waited_for(
    world: World, spark: RewritingSpark, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    monkeypatch.setattr(repartition, "CATALOG_PAUSE", 0.001)
    if away == "publish":
        world.context.channels.publish = CatalogAway(world.catalog.publish, 2)
    else:
        meta_away(world, monkeypatch)
    assert carry_out(world.run, "count", 4).tasks_after == 4
    assert spark.asked == 1
    assert recorded_tasks(world.catalog) == {"count": 4}
    assert under_way(world.catalog) is None
    assert world.catalog.last_batch("count") == 5
    assert [words[0] for words in world.told] == ["fault", "action"], "a fault is told once"


@pytest.mark.parametrize("ends", [False, True])
def test_a_catalog_that_stays_away_ends_the_topology_and_the_next_start_finishes_it(
    world: World, spark: RewritingSpark, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """On the rewritten checkpoint the query would find batches that the catalog does not know."""
    monkeypatch.setattr(repartition, "CATALOG_SECONDS", 3600.0 if ends else 0.01)
    monkeypatch.setattr(repartition, "CATALOG_PAUSE", 0.001)
    world.run.has_stopped = ends
    world.context.channels.publish = CatalogAway(world.catalog.publish, float("inf"))
    with pytest.raises(StaysStopped, match="could not be told") as caught:
        carry_out(world.run, "count", 4)
    assert caught.value.name == "REPARTITION_FAILED"
    assert "Start the topology again" in caught.value.hint
    assert kind_of(caught.value) is FailureKind.CERTAIN, "though the disk is full that the catalog is on"
    assert under_way(world.catalog) == ("count", 4)
    world.context.channels.publish = world.catalog.publish
    monkeypatch.setattr(rewriting, "repartition_state", nothing_left_to_do)
    assert "was finished" in finish(None, world.context, world.catalog)  # type: ignore[arg-type]
    assert recorded_tasks(world.catalog) == {"count": 4}


def test_who_lost_the_state_to_another_driver_does_not_wait(
    world: World, spark: RewritingSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(*_: object) -> None:
        raise PenstockError("STATE_TAKEN_OVER", "another driver has it.", "Stop that one.")

    monkeypatch.setattr(repartition, "CATALOG_SECONDS", 3600.0)
    world.context.channels.publish = taken
    with pytest.raises(StaysStopped) as caught:
        carry_out(world.run, "count", 4)
    assert caught.value.name == "STATE_TAKEN_OVER"


def test_a_start_finishes_one_where_there_is_no_state_to_rewrite(world: World, spark: RewritingSpark) -> None:
    """As an earlier Penstock may have left it. Spark would refuse a checkpoint without any batch at every start."""
    shutil.rmtree(world.checkpoint)
    begin(world.catalog, "count", 4)
    assert "was finished" in finish(None, world.context, world.catalog)  # type: ignore[arg-type]
    assert spark.asked == 0
    assert under_way(world.catalog) is None
    assert recorded_tasks(world.catalog) == {"count": 4}
