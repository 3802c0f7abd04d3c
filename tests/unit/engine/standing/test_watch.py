"""One of those that wait has the watch, and it waits as long as nothing can have changed."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.cluster.model import Slot
from penstock.engine.message.shares import Bundle
from penstock.engine.query.pacing import Pacer
from penstock.engine.standing.batches import Standing
from penstock.engine.standing.roster import Roster
from penstock.engine.standing.watch import LEAST_PATIENCE, LINGER_LOOK, PATIENCE, Watch, patience

BUNDLE = Bundle(Slot("a", 0), 1)


class Channels:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.notified = 0

    def notify(self) -> None:
        self.notified += 1


class Supply:
    any_bundle = True

    def __init__(self, rows: int, due: float | None) -> None:
        self.rows, self.due = rows, due

    def available(self) -> int:
        return self.rows

    def due_in(self) -> float | None:
        return self.due


def waiting(roster: Roster, channels: Channels, *seats: tuple[int, int], taken_at: float = 0.0) -> list[Standing]:
    stands = []
    for turn, index in seats:
        standing = Standing(turn, index, BUNDLE, Pacer(0.05, 10, 10), threading.Condition(channels.lock), asks=True)
        standing.taken_at = taken_at - index
        roster.sit(standing)
        stands.append(standing)
    return stands


def test_who_comes_first_has_the_watch_and_hands_it_to_who_has_had_no_work_for_longest() -> None:
    channels, roster = Channels(), Roster()
    roster.serve(1, (BUNDLE,) * 3, 0.0)
    watch: Any = Watch(channels, roster)  # type: ignore[arg-type]
    one, two, three = waiting(roster, channels, (1, 0), (1, 1), (1, 2))
    with channels.lock:
        assert watch.has(one)
        assert not watch.has(two)
        watch.leave(two)
        assert watch.has(one), "somebody else leaves"
        one.asks = False
        watch.leave(one)
        assert watch.has(three)
        assert not watch.has(two)


def test_who_is_gone_or_of_an_earlier_turn_never_has_the_watch() -> None:
    channels, roster = Channels(), Roster()
    roster.serve(2, (BUNDLE,), 0.0)
    watch = Watch(channels, roster)  # type: ignore[arg-type]
    before, gone = waiting(roster, channels, (1, 0), (2, 0))
    gone.gone = True
    with channels.lock:
        assert not watch.has(before)
        assert not watch.has(gone)
        watch.wake_all()
    assert channels.notified == 1


@pytest.mark.parametrize(
    ("rows", "due", "lingers", "seconds"),
    [
        (0, None, 1.0, PATIENCE),  # only a channel can bring rows, and it says so
        (0, 0.3, 0.0, 0.3),  # rows are due then
        (0, 0.3, 1.0, 0.3),  # and may be enough for a batch that does not linger
        (0, 0.001, 1.0, LINGER_LOOK),
        (0, 0.0, -1.0, LEAST_PATIENCE),
        (0, 60.0, 0.0, PATIENCE),
        (5, None, 0.5, 0.5),
        (5, 0.3, 0.5, LINGER_LOOK),  # a source's rows may be enough before
        (5, 0.3, 0.0, PATIENCE),  # there is no room, or others are behind
    ],
)
def test_how_long_the_watcher_waits(rows: int, due: float | None, lingers: float, seconds: float) -> None:
    assert patience(Supply(rows, due), lingers) == seconds  # type: ignore[arg-type]
