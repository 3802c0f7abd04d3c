"""How the ranges of a source are dealt to bundles, and what the end of a query does to its feeds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from dealing import Channels

from penstock import Settings
from penstock.cluster.model import Slot
from penstock.engine.message.shares import Bundle
from penstock.engine.query.feeds import SourceFeed
from penstock.engine.query.intake import Intake
from penstock.engine.query.pacing import Pacer
from penstock.engine.query.query import OperatorQuery
from penstock.engine.query.seats import Seats
from penstock.kinds import Offset, Offsets, Range, Unit


class Dealt(Seats):
    """Two bundles; remembers which of them got which ranges."""

    def __init__(self) -> None:
        super().__init__(lambda: [Bundle(Slot("a", index), 1) for index in range(2)], lambda slot: None)
        self.batches: list[list[tuple[int, list[Any]]]] = []

    def partitions(self, shares: Any) -> Any:
        self.batches.append([(share.bundle.slot.index, [load for load, _ in share.load["ranges"]]) for share in shares])
        return []


class Partitions(Offsets):
    def __init__(self, count: int) -> None:
        self.count = count

    def ranges(self, start: Offset | None, end: Offset, instances: int) -> list[Range]:
        return [Range(number, 10) for number in range(self.count)]


@pytest.mark.parametrize(
    ("count", "wanted"),
    [
        (2, [[(0, [0]), (1, [1])]] * 3),  # a partition stays with its worker, which has fetched more of it
        (1, [[(1, [0])], [(0, [0])], [(1, [0])]]),  # small batches go around
    ],
)
def test_bundles_take_turns_only_where_there_are_fewer_ranges_than_bundles(count: int, wanted: Any) -> None:
    gate: Any = SimpleNamespace(add=lambda feed: None)
    seats = Dealt()
    feed = SourceFeed(Partitions(count), Unit.ROWS, gate, seats)
    for end in range(3):
        feed.partitions(None, str(end))
    assert seats.batches == wanted


def test_a_source_that_says_it_has_rows_and_gives_none_is_asked_again() -> None:
    class Late(Offsets):
        """It finds its rows only when it is asked the second time for the end of a batch."""

        position: Offset = None
        asked = 0

        def available(self) -> int:
            return 5

        def end(self, most: int, instances: int) -> Offset | None:
            self.asked += most > 0
            return 5 if self.asked > 1 else None

    channels: Any = Channels()
    intake = Intake(channels, [], Pacer(0.05, 10), 0.0, lambda error: None)
    feed = SourceFeed(Late(), Unit.ROWS, intake, Dealt())
    intake.open()
    assert feed.latest() is None
    assert not intake.in_batch, "Spark runs no batch without an offset"
    assert feed.latest() == "5"
    assert intake.in_batch


def test_feeds_are_closed_also_where_the_query_does_not_stop_as_it_should(caplog: pytest.LogCaptureFixture) -> None:
    def gone() -> None:
        raise ConnectionError("the session is gone")

    closed: list[int] = []

    def broken() -> None:
        closed.append(0)
        raise OSError("a feed that cannot be closed")

    query: Any = object.__new__(OperatorQuery)
    query.context = SimpleNamespace(settings=Settings(latency_under_load=0.1, latency_with_backlog=0.1))
    query.operator = SimpleNamespace(name="rows")
    query.intake = SimpleNamespace(close=lambda: None, in_batch=False)
    query.query = SimpleNamespace(isActive=True, stop=gone)
    query.feeds = [SimpleNamespace(close=broken), SimpleNamespace(close=lambda: closed.append(1))]
    query._runs = True
    query.stop()
    assert closed == [0, 1]
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == [
        "a feed that cannot be closed",
        "the session is gone",
    ]
