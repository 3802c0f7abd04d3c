"""Rows of a rate source: due by its schedule, whoever asks for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock import sources
from penstock.cluster.model import Slot
from penstock.engine.message.shares import Bundle
from penstock.engine.query.feeds import SourceFeed
from penstock.engine.query.seats import Seats
from penstock.kinds import SourcePlace, Unit

BEGAN = 1_000.0


def feed(memory: dict[str, float], now: float, position: int = 0) -> SourceFeed:
    gate: Any = SimpleNamespace(add=lambda feed: None, closed=False)
    notes: Any = None
    offsets = sources.rate(10).offsets(SourcePlace("rows", notes, lambda: now, memory=memory))
    made = SourceFeed(offsets, Unit.ROWS, gate, Seats(lambda: [Bundle(Slot("a", 0), 1)], lambda slot: None))
    made.seek(str(position))
    return made


def test_rows_are_due_by_the_schedule_from_the_first_look_on() -> None:
    began: dict[str, float] = {}
    assert feed(began, BEGAN).available() == 0
    assert feed(began, BEGAN + 3).available() == 30


def test_a_query_that_takes_the_place_of_another_finds_what_was_due_meanwhile() -> None:
    began: dict[str, float] = {}
    feed(began, BEGAN).available()
    # The first one emitted 20 rows, was stopped after 2 s, and the next one starts 3 s later.
    assert feed(began, BEGAN + 5, position=20).unmet == 30


def test_before_spark_has_said_where_a_stream_is_nothing_is_owed_and_no_schedule_begins() -> None:
    began: dict[str, float] = {}
    unknown = feed(began, BEGAN)
    unknown.found = False
    assert unknown.unmet == 0
    assert began == {}
    # Spark asks for the last batch of the run before: rows up to 20 were emitted then.
    unknown.partitions("10", "20")
    assert unknown.unmet == 0
    assert began == {"began": pytest.approx(BEGAN - 2)}


def test_a_run_that_goes_on_after_a_pause_owes_nothing_for_it() -> None:
    later = feed({}, BEGAN + 3600, position=20)
    assert later.unmet == 0
    assert later.due_in() == pytest.approx(0.1)
