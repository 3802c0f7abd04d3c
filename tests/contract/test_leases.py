"""Of the topologies on one cluster, one changes at a time: on SQLite and on PostgreSQL."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import pytest
from catalog_samples import QUICK

from penstock.channels.leases import Leases
from penstock.errors import PenstockError

Open = Callable[..., Leases]
LONG, SHORT = 60.0, 0.5


@pytest.fixture
def open_leases(url: str) -> Iterator[Open]:
    opened: list[Leases] = []

    def open_(topology: str, cluster: str = "rack", lasts: float = LONG) -> Leases:
        opened.append(Leases.open(url, cluster, topology, lasts, QUICK))
        return opened[-1]

    yield open_
    for leases in opened:
        leases.close()


def lost(leases: Leases, ticket: int) -> bool:
    try:
        leases.confirm(ticket)
    except PenstockError as error:
        assert error.name == "LEASE_LOST"
        return True
    return False


def until(granted: Callable[[], int | None], seconds: float = 30.0) -> int:
    """Ask again and again: what ends a lease is the clock of the database, which nobody can wait for otherwise."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (ticket := granted()) is not None:
            return ticket
        threading.Event().wait(0.02)
    raise AssertionError("the lease did not come")


def test_one_at_a_time_in_the_order_of_asking(open_leases: Open) -> None:
    one, two, three = (open_leases(name) for name in ("one", "two", "three"))
    first = one.ask()
    assert first is not None
    assert (two.ask(), three.ask()) == (None, None)
    assert one.ask() == first, "who asks again has the same ticket"
    one.leave()
    assert three.ask() is None, "two asked before"
    second = two.ask()
    assert second is not None and second > first
    assert one.ask() is None, "who was there goes to the end of the line"
    two.leave()
    assert three.ask() is not None
    three.leave()
    assert one.ask() is not None


def test_neither_starves_when_both_always_want_to(open_leases: Open) -> None:
    both = [open_leases("one"), open_leases("two")]
    for leases in both:
        leases.ask()
    had = []
    for _ in range(10):
        for place, leases in enumerate(both):
            if leases.ask() is not None:
                had.append(place)
                leases.leave()
                leases.ask()
    assert had == [0, 1] * 10


def test_never_two_at_once_whoever_asks_when(open_leases: Open) -> None:
    inside, most, had = 0, 0, []
    guard = threading.Lock()

    def work(leases: Leases, name: int) -> None:
        nonlocal inside, most
        for _ in range(4):
            ticket = until(leases.ask)
            with guard:
                inside += 1
                most = max(most, inside)
                had.append((ticket, name))
            leases.confirm(ticket)
            with guard:
                inside -= 1
            leases.leave()

    topologies = [open_leases(f"topology-{number}") for number in range(3)]
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work, leases, number) for number, leases in enumerate(topologies)]:
            done.result(timeout=60)
    assert most == 1
    assert [ticket for ticket, _ in had] == sorted({ticket for ticket, _ in had}), "in the order of their tickets"
    assert len(had) == 12


def test_other_clusters_have_leases_of_their_own(open_leases: Open) -> None:
    assert open_leases("one").ask() is not None
    assert open_leases("two", cluster="another").ask() is not None


def test_each_sees_what_the_others_use(open_leases: Open) -> None:
    one, two = open_leases("one"), open_leases("two")
    one.tell({"m1": 1.5, "m2": 0.25})
    two.tell({"m1": 0.5})
    [seen] = two.neighbours()
    assert (seen.topology, seen.ticket, dict(seen.uses)) == ("one", None, {"m1": 1.5, "m2": 0.25})
    ticket = one.ask()
    one.tell({"m1": 2.0})
    [seen] = two.neighbours()
    assert (seen.ticket, dict(seen.uses)) == (ticket, {"m1": 2.0}), "who tells something keeps its place in the line"


def test_a_lease_that_is_not_renewed_is_over_and_fenced(open_leases: Open) -> None:
    slow, next_ = open_leases("slow", lasts=SHORT), open_leases("next")
    ticket = slow.ask()
    assert ticket is not None
    assert next_.ask() is None
    later = until(next_.ask)
    assert later > ticket
    assert lost(slow, ticket)
    assert slow.ask() is None, "it stands in line again, behind the others"
    assert lost(slow, ticket), "its old ticket is worth nothing, also while it stands in line"
    assert not lost(next_, later)


def test_a_clock_that_is_set_back_makes_no_lease_last_longer(
    open_leases: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the database: a driver that was killed would hold the lease for as long, and nobody could change."""
    real, ahead = Leases._clock, [3600.0]
    monkeypatch.setattr(Leases, "_clock", lambda self: real(self) + ahead[0])
    killed, next_ = open_leases("killed"), open_leases("next")
    assert killed.ask() is not None
    ahead[0] = 0.0
    assert next_.ask() is None
    ahead[0] = LONG + 1
    assert next_.ask() is not None


def test_who_renews_keeps_the_lease(open_leases: Open) -> None:
    mine, other = open_leases("mine", lasts=SHORT), open_leases("other")
    ticket = mine.ask()
    assert ticket is not None
    end = time.monotonic() + 4 * SHORT
    while time.monotonic() < end:
        mine.confirm(ticket)
        assert other.ask() is None
        threading.Event().wait(SHORT / 10)


def hold(url: str, pipe: Connection) -> None:
    leases = Leases.open(url, "rack", "doomed", SHORT, QUICK)
    pipe.send(leases.ask())
    signal.pause()


def test_a_driver_that_was_killed_does_not_hold_the_lease(url: str, open_leases: Open) -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    doomed = context.Process(target=hold, args=(url, there))
    doomed.start()
    try:
        assert here.poll(60)
        ticket = here.recv()
        assert ticket is not None
        os.kill(doomed.pid or 0, signal.SIGKILL)
    finally:
        doomed.kill()
        doomed.join(30)
    alive = open_leases("alive")
    assert until(alive.ask) > ticket
    assert alive.neighbours() == ()
