"""The driver's end of the connections to bundles: who knows the key gets work, who falls silent loses it."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.channels.records import NewSegment
from penstock.cluster.model import Slot
from penstock.engine.executor import standing
from penstock.engine.message import wire
from penstock.engine.message.shares import Bundle, Descriptor, Share
from penstock.engine.message.wire import Seat
from penstock.engine.query.feeds import Batch
from penstock.engine.query.pacing import Pacer
from penstock.engine.standing import server as module
from penstock.engine.standing.batches import CutBatch, OpenBatch, Standing
from penstock.engine.standing.dealer import Dealer
from penstock.engine.standing.server import BundleServer
from penstock.monitor.report import BundleReport

BUNDLE = Bundle(Slot("a", 0), 1)
REPORT = BundleReport("a/0", 1, 0, None, "", 0, 10, 0, {}, 0.01, 0.01, 0.0, 0.01, 0.0, 0.0)


class Channels:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.last_batch = None
        self._changed = threading.Condition(self.lock)

    def full(self, channel: str, coming: Sequence[NewSegment] = ()) -> bool:
        return False

    def pause(self, timeout: float) -> None:
        with self.lock:
            self._changed.wait(timeout)

    def notify(self) -> None:
        with self.lock:
            self._changed.notify_all()


class Rows:
    any_bundle = counts_rows = True

    def __init__(self) -> None:
        self.position = 0

    def look(self) -> None:
        pass

    def available(self) -> int:
        return 20 - self.position

    def due_in(self) -> float | None:
        return None

    def cut(self, most: int, bundles: Sequence[Bundle]) -> CutBatch | None:
        start, self.position = self.position, self.position + 10
        return CutBatch(Batch({}, 10), (Share(bundles[0], load={"rows": start}),), {"0": self.position})

    def go_back(self, ends: Mapping[str, Any] | None) -> None:
        raise AssertionError("nothing is cut again here")


class Query:
    """A query with one seat."""

    operator: Any = SimpleNamespace(name="map")

    def __init__(self) -> None:
        self.published: list[int] = []
        self.ended = False
        self.failure: Exception | None = None
        channels: Any = Channels()
        self.dealer = Dealer(channels, [], lambda: Pacer(1.0, 10, 10), lambda: 0.0, self._publish)
        self.dealer.feed_from(Rows())
        self.dealer.open()
        self.dealer.serve(1, [BUNDLE])

    def _publish(self, batches: Sequence[OpenBatch]) -> None:
        self.published.extend(batch.number for batch in batches)

    def publishes(self) -> None:
        """As a query does, in a thread of its own."""
        while not self.ended:
            self.dealer.publish_next(0.05)

    def seat_taken(self, seat: Seat) -> Standing | None:
        return self.dealer.stand(seat.turn, seat.index, BUNDLE, seat.attempt) if seat.turn == 1 else None

    def fail(self, error: Exception) -> None:
        self.failure = error


@pytest.fixture
def server() -> Iterator[BundleServer]:
    made = BundleServer()
    yield made
    made.close()


@pytest.fixture
def query() -> Iterator[Query]:
    made = Query()
    thread = threading.Thread(target=made.publishes, daemon=True)
    thread.start()
    yield made
    made.ended = True
    thread.join(5)


def seated(server: BundleServer, name: str, turn: int = 1) -> Connection:
    connection = wire.connect(server.address)
    connection.send_bytes(Seat(name, turn, 0, "a/0", 1).as_text())
    return connection


def received(connection: Connection) -> wire.SentShare | None:
    assert connection.poll(5)
    return wire.receive_share(connection)


def test_a_bundle_gets_share_after_share_and_leaves_when_it_is_told_to(server: BundleServer, query: Query) -> None:
    with seated(server, server.add(query)) as connection:
        for number in range(2):
            work = received(connection)
            assert work is not None
            assert (work.batch, work.part) == (number, 0)
            assert Descriptor.parse(work.descriptor).load == {"rows": 10 * number}
            wire.send_alive(connection)
            wire.send_reports(connection, [REPORT.as_json()])
        deadline = time.monotonic() + 5
        while query.dealer.in_batch and time.monotonic() < deadline:
            time.sleep(0.01)
        query.dealer.end()
        assert received(connection) is None
    assert query.published == [0, 1]


@pytest.mark.parametrize("bundle_is_at", ["127.0.0.1", "127.0.0.7"])
def test_messages_count_where_they_cross_a_link(
    server: BundleServer, query: Query, monkeypatch: pytest.MonkeyPatch, bundle_is_at: str
) -> None:
    done: list[tuple[BundleReport, ...]] = []
    original = query.dealer.done
    monkeypatch.setattr(query.dealer, "done", lambda one, reports: done.append(reports) or original(one, reports))
    reports = [REPORT.as_json(), REPORT.as_json()]
    with socket.socket() as own:
        own.bind((bundle_is_at, 0))
        own.connect((server.address.host, server.address.port))
        connection = Connection(own.detach())
    with connection:
        answer_challenge(connection, server.address.key)
        deliver_challenge(connection, server.address.key)
        connection.send_bytes(Seat(server.add(query), 1, 0, "a/0", 1).as_text())
        text = connection.recv_bytes()
        wire.send_reports(connection, reports)
        assert received(connection) is not None
    [first, second] = done[0]
    crossed = (len(text), len(b",".join(reports)) + 2) if bundle_is_at == "127.0.0.7" else (0, 0)
    assert (first.from_driver, first.to_driver) == crossed
    assert (second.from_driver, second.to_driver) == (0, 0)


def test_a_stranger_gets_nothing(server: BundleServer, query: Query) -> None:
    server.add(query)
    with pytest.raises((AuthenticationError, EOFError, OSError)):
        Client((server.address.host, server.address.port), authkey=b"a guess").recv_bytes()
    with socket.create_connection((server.address.host, server.address.port), timeout=5) as stranger:
        stranger.sendall(b"GET / HTTP/1.0\r\n\r\n" + b"\0" * 64)
        answer = b""
        with suppress(ConnectionError):
            while data := stranger.recv(1000):
                answer += data
    assert b"rows" not in answer
    # And all others are served as before.
    with seated(server, server.add(query)) as connection:
        assert received(connection) is not None


@pytest.mark.parametrize("turn", [0, 2])
def test_who_comes_for_another_turn_is_sent_away(server: BundleServer, query: Query, turn: int) -> None:
    with seated(server, server.add(query), turn) as connection:
        assert received(connection) is None


def test_who_comes_for_a_query_that_is_gone_is_sent_away(server: BundleServer, query: Query) -> None:
    name = server.add(query)
    server.remove(name)
    with seated(server, name) as connection:
        assert received(connection) is None


def test_the_work_of_a_bundle_that_is_gone_or_silent_goes_to_the_next(
    server: BundleServer, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.2)
    name = server.add(query)
    with seated(server, name) as gone:
        assert received(gone) is not None
    with seated(server, name) as silent:
        work = received(silent)
        assert work is not None
        assert work.batch == 0
        with pytest.raises((EOFError, ConnectionError)):  # the driver has closed the connection
            silent.recv_bytes()
        with seated(server, name) as third:
            work = received(third)
            assert work is not None
            assert work.batch == 0
            wire.send_reports(third, [REPORT.as_json()])
            assert received(third) is not None
            deadline = time.monotonic() + 5
            while not query.published and time.monotonic() < deadline:
                time.sleep(0.01)
    assert query.published == [0]


def until_it_fails(query: Query) -> Exception:
    deadline = time.monotonic() + 5
    while query.failure is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert query.failure is not None
    return query.failure


def test_a_report_that_cannot_be_read_fails_the_query(server: BundleServer, query: Query) -> None:
    """Executors may have another Penstock. The bundle would do its share again and again, and nobody would know."""
    with seated(server, server.add(query)) as connection:
        assert received(connection) is not None
        wire.send_reports(connection, [b'{"x": 1}'])
        assert isinstance(until_it_fails(query), (TypeError, KeyError))


def test_an_answer_that_nobody_understands_fails_the_query(server: BundleServer, query: Query) -> None:
    with seated(server, server.add(query)) as connection:
        assert received(connection) is not None
        connection.send_bytes(b"?")
        assert isinstance(until_it_fails(query), ValueError)


def test_a_share_that_cannot_be_sent_fails_the_query(
    server: BundleServer, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source of somebody else's whose range is no JSON."""

    def cut(self: Rows, most: int, bundles: Sequence[Bundle]) -> CutBatch:
        return CutBatch(Batch({}, 10), (Share(bundles[0], load={"rows": {1, 2}}),), {"0": 1})

    monkeypatch.setattr(Rows, "cut", cut)
    with seated(server, server.add(query)):
        assert isinstance(until_it_fails(query), TypeError)


def test_what_a_bundle_says_is_parsed_and_nothing_else(server: BundleServer, query: Query) -> None:
    name = server.add(query)
    for nonsense in (b"\x80\x04\x95nonsense", json.dumps(["a", "list"]).encode()):
        with wire.connect(server.address) as connection:
            connection.send_bytes(nonsense)
            with pytest.raises((EOFError, ConnectionError)):
                connection.recv_bytes()
    with seated(server, name) as connection:
        assert received(connection) is not None


def test_a_bundle_that_was_given_up_takes_its_seat_again(
    server: BundleServer, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped for a while. If its task failed instead, Spark would end the query after a few times."""
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.2)
    seconds = iter([0.6, 0.0, 0.0])

    def stopped() -> list[BundleReport]:
        time.sleep(next(seconds))
        return [REPORT]

    stands_until_two_are_published(server, query, monkeypatch, stopped)


def test_a_bundle_that_was_given_up_does_not_fail_over_what_it_finds_then(
    server: BundleServer, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have done its share meanwhile, and the segments that it reads are swept."""
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.2)
    runs = iter([True, False, False])

    def swept() -> list[BundleReport]:
        if next(runs):
            time.sleep(0.6)
            raise RuntimeError("SEGMENT_UNREADABLE")
        return [REPORT]

    stands_until_two_are_published(server, query, monkeypatch, swept)


def test_a_bundle_that_fails_while_it_is_listened_to_fails_its_task(
    server: BundleServer, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> list[BundleReport]:
        raise RuntimeError("the function's own fault")

    with pytest.raises(RuntimeError, match="own fault"):
        stands_until_two_are_published(server, query, monkeypatch, fails)


def test_work_that_takes_long_in_silence_is_finished_in_the_end(
    server: BundleServer, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that lets no other thread run, so that nobody can say that it is alive."""
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.1)
    monkeypatch.setattr(wire, "ALIVE_SECONDS", 60.0)

    def lets_nobody_else_run() -> list[BundleReport]:
        time.sleep(0.5)
        return [REPORT]

    stands_until_two_are_published(server, query, monkeypatch, lets_nobody_else_run)


def test_a_driver_that_turns_a_bundle_away_once_is_asked_again(
    server: BundleServer, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, turned_away = wire.connect, []

    def connect(address: wire.Address) -> Connection:
        if not turned_away:
            turned_away.append(True)
            raise EOFError
        return real(address)

    monkeypatch.setattr(wire, "connect", connect)
    stands_until_two_are_published(server, query, monkeypatch, lambda: [REPORT])
    assert turned_away


def test_a_driver_that_is_gone_fails_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "AGAIN_SECONDS", 0.0)
    program: Any = None
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = wire.Address("127.0.0.1", unused.getsockname()[1], b"key")
        with pytest.raises(wire.Gone):
            standing._stand(program, address, b"")


def stands_until_two_are_published(
    server: BundleServer, query: Query, monkeypatch: pytest.MonkeyPatch, run: Callable[[], list[BundleReport]]
) -> None:
    """A bundle whose shares are done by `run` stands until two batches are published, and its task ends as usual."""
    monkeypatch.setattr(standing, "ShareRun", lambda *_: SimpleNamespace(run=run))
    seat = Seat(server.add(query), 1, 0, "a/0", 1).as_text()
    program: Any = None
    ends: list[Any] = []

    def stand() -> None:
        try:
            ends.append(standing._stand(program, server.address, seat))
        except Exception as error:
            ends.append(error)

    bundle = threading.Thread(target=stand, daemon=True)
    bundle.start()
    deadline = time.monotonic() + 10
    while len(query.published) < 2 and not ends and time.monotonic() < deadline:
        time.sleep(0.01)
    query.dealer.end()
    bundle.join(5)
    if ends and isinstance(ends[0], Exception):
        raise ends[0]
    assert query.published == [0, 1]
    assert ends, "the task ends as usual when its turn is over"


def test_both_ends_notice_that_the_network_between_them_is_gone(server: BundleServer) -> None:
    """A firewall that forgets a connection tells neither end: a bundle that waits for work would wait for ever."""
    listener = socket.create_server(("127.0.0.1", 0))
    ours = socket.create_connection(listener.getsockname())
    theirs, _ = listener.accept()
    for end in (ours, theirs):
        wire.notice_a_dead_network(end)
        assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert 0 < end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 60_000
        end.close()
    listener.close()
    with wire.connect(server.address) as bundle, socket.socket(fileno=os.dup(bundle.fileno())) as own:
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
