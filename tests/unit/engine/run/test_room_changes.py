"""A state that finds room for bundles to stand at one start and none at the next: no row is skipped as a replay or read
twice, and a start that cannot go on is refused before it touches anything. There is no Spark here: the host is a
double, and the checkpoints are as Spark writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opened_state import CHANNEL, REPORT, OpenedState

from penstock.engine.message.shares import Spread
from penstock.engine.query.context import RunContext
from penstock.engine.query.feeds import ChannelInput
from penstock.engine.standing.query import StandingQuery
from penstock.engine.standing.supplies import ChannelSupply

World = OpenedState


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    world.start()  # the first start of a state has nothing to compare
    yield world
    world.close()


def check_stand(context: RunContext, row: int, batch: int) -> None:
    """Both operators stand, and begin with this row and this batch."""
    rows, out = context.definition.operators
    assert context.room.stands(rows)
    assert context.room.stands(out)
    query: Any = object.__new__(StandingQuery)
    query.context, query.operator = context, rows
    assert (query._read_so_far() or 0) == row
    supply = ChannelSupply("out", [ChannelInput(CHANNEL, Spread.SHUFFLE)], context.channels, 1 << 20)
    assert supply.position == {CHANNEL: row}
    assert {name: context.channels.last_batch(name) for name in ("rows", "out")} == dict.fromkeys(
        ("rows", "out"), batch - 1 if batch else None
    )


def check_micro_batches(context: RunContext, row: int, batch: int) -> None:
    """Both operators run in micro-batches, and Spark goes on with this row and this batch, which is the next one of the
    catalog."""
    for operator in context.definition.operators:
        assert not context.room.stands(operator)
        log, is_source = context.checkpoint_log(operator.name), operator.name == "rows"
        assert log.finished() == batch - 1 == context.channels.last_batch(operator.name)
        assert log.ends(batch - 1, of_source=is_source) == ({"0": row} if is_source else {CHANNEL: row})


def test_bundles_that_stood_stand_again(world: World) -> None:
    world.stood(0, 1, 2)
    check_stand(world.start(), row=30, batch=3)


def test_micro_batches_go_on_in_micro_batches(world: World) -> None:
    world.ran_in_micro_batches(0, 1, 2)
    check_micro_batches(world.start_without_room(), row=30, batch=3)
    world.ran_in_micro_batches(3)
    check_micro_batches(world.start_without_room(), row=40, batch=4)


# From micro-batches to bundles that stand


def test_bundles_stand_where_micro_batches_have_ended(world: World) -> None:
    world.ran_in_micro_batches(0, 1, 2)
    check_stand(world.start(), row=30, batch=3)
    world.stood(3, 4)
    check_stand(world.start(), row=50, batch=5)


def test_a_batch_that_spark_had_only_planned_is_cut_anew(world: World) -> None:
    world.ran_in_micro_batches(0, 1)
    world.planned(2, rows=7)
    check_stand(world.start(), row=20, batch=2)


def test_a_published_batch_that_spark_had_not_finished_is_not_cut_again(world: World) -> None:
    world.ran_in_micro_batches(0, 1)
    world.planned(2)
    world.stood(2)  # what a driver leaves that dies between publishing and Spark's commit
    check_stand(world.start(), row=30, batch=3)


def test_bundles_do_not_stand_on_a_catalog_that_lacks_what_spark_has_finished(world: World) -> None:
    world.ran_in_micro_batches(0, 1)
    world._write("rows", "commits", 2, "v1\n{}")
    assert world.refused(room=True).name == "CATALOG_WENT_BACK"


def test_bundles_do_not_stand_where_the_catalog_does_not_say_how_far_a_source_was_read(world: World) -> None:
    world.catalog.publish("rows", 0, [], json.dumps(REPORT), {})  # as an older Penstock wrote it
    error = world.refused(room=True)
    assert error.name == "STATE_DOES_NOT_FIT"
    assert "--forget rows" in error.hint


# From bundles that stand to micro-batches


@pytest.mark.parametrize("batches", [1, 3])
def test_bundles_that_stood_do_not_go_on_in_micro_batches(world: World, batches: int) -> None:
    """There is no checkpoint: Spark would begin with batch 0."""
    world.stood(*range(batches))
    error = world.refused(room=False)
    assert error.name == "STATE_DOES_NOT_FIT"
    assert "Spark has run no batch" in error.message
    assert "spark.executor.cores" in error.hint
    check_stand(world.start(), row=10 * batches, batch=batches)


def test_bundles_that_stood_after_micro_batches_do_not_go_on_in_micro_batches(world: World) -> None:
    """Spark would give the number of a published batch to the rows that it reads next."""
    world.ran_in_micro_batches(0, 1)
    world.stood(2, 3)
    error = world.refused(room=False)
    assert error.name == "STATE_DOES_NOT_FIT"
    assert "Spark is at batch 1" in error.message
    check_stand(world.start(), row=40, batch=4)


def test_one_batch_of_bundles_that_stood_with_another_end_than_spark_had_planned_is_refused(world: World) -> None:
    world.ran_in_micro_batches(0, 1)
    world.planned(2, rows=7)
    world.stood(2)
    assert world.refused(room=False).name == "STATE_DOES_NOT_FIT"


def test_bundles_that_stood_and_published_nothing_leave_micro_batches_as_they_were(world: World) -> None:
    world.ran_in_micro_batches(0, 1)
    world.start()
    check_micro_batches(world.start_without_room(), row=20, batch=2)
