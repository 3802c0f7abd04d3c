"""The driver's end of the connections to standing bundles: who connects, proves that it knows the key, and takes a seat
gets work until its turn is over. One server for all queries of a run, one thread for every bundle."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from typing import Protocol

from penstock.engine.message import wire
from penstock.engine.message.wire import Address, Seat
from penstock.engine.standing.batches import Standing
from penstock.engine.standing.dealer import Dealer
from penstock.logs import LOGGER, traced
from penstock.monitor.report import reports_of_share
from penstock.topology.definition import Operator

#: Seconds without a sign of life after which a bundle's work is given to another. They double each time that happens to
#: the same work: a function that lets no other thread run for a minute could otherwise never finish.
SILENT_SECONDS = 15.0
MOST_DOUBLINGS = 8
#: So many may be connected and not have said who they are.
MOST_STRANGERS = 256
#: Seconds before the next try where a connection could not be taken.
PAUSE_SECONDS = 0.05
#: Who it is takes no more than this to say.
GREETING_BYTES = 4096


class Served(Protocol):
    """A query whose bundles connect here."""

    dealer: Dealer

    @property
    def operator(self) -> Operator: ...

    def seat_taken(self, seat: Seat) -> Standing | None:
        """A bundle takes a seat; None if there is no such seat (any more)."""

    def fail(self, error: Exception) -> None:
        """Something went wrong here, in the driver, with what a bundle has done."""


class BundleServer:
    """Listens on one address. A stranger who connects and does not know the key is not listened to."""

    def __init__(self, host: str = "127.0.0.1", bind: str = "") -> None:
        """`bind` is the address that it listens on, where that is not the one by which bundles reach it."""
        key = secrets.token_bytes(32)
        family = "AF_INET6" if ":" in (bind or host) else "AF_INET"
        self._listener = Listener((bind or host, 0), family, backlog=128)
        self._bound = self._listener.address
        self.address = Address(host, int(self._bound[1]), key)
        self._queries: dict[str, Served] = {}
        self._closed = False
        self._connections: set[Connection] = set()
        #: Those of them that have not said who they are.
        self._strangers = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, name="penstock-bundles", daemon=True)
        self._thread.start()

    def add(self, query: Served) -> str:
        """Returns the name under which its bundles ask for it."""
        name = secrets.token_hex(8)
        self._queries[name] = query
        return name

    def remove(self, name: str) -> None:
        self._queries.pop(name, None)

    def close(self) -> None:
        self._closed = True
        with traced("the thread that waits for bundles could not be woken to end", OSError):
            socket.create_connection(self._bound[:2], timeout=1).close()  # ends accept()
        self._thread.join(timeout=1)
        self._listener.close()
        with self._lock:
            for connection in self._connections:
                wire.hang_up(connection)  # the thread that speaks on it closes it

    def _accept(self) -> None:
        refused = ""
        while not self._closed:
            why = self._accept_one()
            if why and why != refused and not self._closed:  # the same one comes again and again
                LOGGER.warning("a bundle could not be let in: %s", why)
            refused = why

    def _accept_one(self) -> str:
        """Let in the next that connects; what was in the way, if anything was."""
        try:
            connection = self._listener.accept()
        except OSError as problem:
            time.sleep(PAUSE_SECONDS)  # a stranger who was gone before we answered, or no more open files
            return f"{type(problem).__name__}: {problem}"
        if self._strangers >= MOST_STRANGERS:
            connection.close()
            return f"{MOST_STRANGERS} connections have not said who they are"
        try:
            threading.Thread(target=self._serve, args=(connection,), name="penstock-bundle", daemon=True).start()
        except RuntimeError as problem:  # no more threads
            connection.close()
            time.sleep(PAUSE_SECONDS)
            return str(problem)
        return ""

    def _greeted(self, connection: Connection) -> Seat:
        """Who it is, once it has proved that it knows the key. Keys are compared here and not in accept(): a stranger
        who says nothing keeps nobody else waiting."""
        with self._lock:
            self._strangers += 1
        try:
            deliver_challenge(connection, self.address.key)
            answer_challenge(connection, self.address.key)
            return Seat.parse(connection.recv_bytes(GREETING_BYTES))
        finally:
            with self._lock:
                self._strangers -= 1

    def _serve(self, connection: Connection) -> None:
        with self._lock:
            self._connections.add(connection)
        try:
            with connection:
                self._speak(connection)
        except (EOFError, OSError, ValueError, AuthenticationError, AssertionError) as problem:
            # A bundle that is gone is nothing unusual: another one gets what it had to do, and Spark starts it again.
            LOGGER.info("a connection of a bundle ended: %s: %s", type(problem).__name__, problem)
        finally:
            with self._lock:
                self._connections.discard(connection)

    def _speak(self, connection: Connection) -> None:
        wire.prepare(connection, SILENT_SECONDS)
        seat = self._greeted(connection)
        query = self._queries.get(seat.query)
        standing = query.seat_taken(seat) if query is not None else None
        if query is None or standing is None:
            wire.send_share(connection, None)
        else:
            _speak_for(standing, query, connection)


def _speak_for(standing: Standing, query: Served, connection: Connection) -> None:
    """Give a bundle one share after the other, until it is to leave or is gone."""
    dealer = query.dealer
    try:
        # Asked once: what stays on a machine is not counted.
        crosses = wire.crosses_a_link(connection)
        while True:
            try:
                dealt = dealer.take(standing)
                descriptor = b"" if dealt is None else dealt.share.as_descriptor()
            except Exception as error:
                query.fail(error)
                return
            if dealt is None:
                wire.send_share(connection, None)
                return
            sent = wire.send_share(connection, wire.SentShare(dealt.batch.number, dealt.part, descriptor))
            try:
                text = wire.receive_reports(connection, SILENT_SECONDS * 2 ** min(dealt.silences, MOST_DOUBLINGS))
            except TimeoutError:
                dealt.silences += 1
                if dealt.silences > 1:
                    LOGGER.warning(
                        'a share of batch %d of "%s" was given to another bundle for the %d. time, because the bundle '
                        "that had it was silent: was it stopped, or does a function let no other thread run?",
                        dealt.batch.number,
                        query.operator.name,
                        dealt.silences,
                    )
                raise
            except ValueError as error:  # it speaks another language than this driver
                query.fail(error)
                return
            try:
                dealer.done(standing, reports_of_share(text, sent if crosses else 0, len(text) if crosses else 0))
            except Exception as error:
                # The bundle would take its seat again and do the same share for ever.
                query.fail(error)
                return
    finally:
        dealer.lost(standing)
