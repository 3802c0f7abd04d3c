"""What a run tells about its declaration when it starts."""

from __future__ import annotations

from no_standing_room import NO_ROOM

from penstock import Topology, sinks, sources
from penstock.engine.query.splitting import Splitting
from penstock.engine.query.standing_room import StandingRoom
from penstock.engine.run.notices import not_replayable, not_standing, shuffled


def test_a_source_that_cannot_send_rows_again_is_told_of() -> None:
    topology = Topology("heard")
    lines = topology.source("lines", sources.socket("localhost", 9999))
    numbers = topology.source("numbers", sources.rate(10))
    topology.sink("heard_lines", sinks.noop(), inputs=lines)
    topology.sink("made_numbers", sinks.noop(), inputs=numbers)
    ((operator, text),) = not_replayable(topology.definition())
    assert operator == "lines"
    assert text == (
        'a crash loses the rows that "lines" has read and not published: this source cannot send them again'
    )


def test_a_keyed_operator_whose_rows_spark_shuffles_is_told_of() -> None:
    found = shuffled({"split": Splitting(), "count": Splitting(why="it joins two inputs")})
    assert list(found) == [("count", "Spark shuffles its rows: it joins two inputs")]


def test_bundles_that_cannot_stand_are_told_of_and_that_it_is_slower() -> None:
    ((operator, text),) = not_standing(NO_ROOM)
    assert operator == ""
    assert NO_ROOM.lacking in text
    assert "slower" in text
    assert "spark.executor.cores" in text
    assert not list(not_standing(StandingRoom()))
