"""The driver's end of the connections to standing bundles: who connects, proves that it knows the key, and takes a seat
gets work until its turn is over. One server for all queries of a run, one thread for every bundle."""

from __future__ import annotations

import json
import secrets
import socket
import threading
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from typing import Protocol

from penstock.engine.message import wire
from penstock.engine.message.wire import Address, Seat
from penstock.engine.standing.dealer import Dealer, Standing
from penstock.logs import LOGGER
from penstock.monitor.report import BundleReport

#: Seconds without a sign of life after which a bundle's work is given to another.
SILENT_SECONDS = 15.0
#: Seconds that somebody who connects may take to say who it is.
GREETING_SECONDS = 10.0
#: Who it is takes no more than this to say.
GREETING_BYTES = 4096


class Served(Protocol):
    """A query whose bundles connect here."""

    dealer: Dealer

    def seat_taken(self, seat: Seat) -> Standing | None:
        """A bundle takes a seat; None if there is no such seat (any more)."""

    def fail(self, error: Exception) -> None:
        """Something went wrong here, in the driver, with what a bundle has done."""


class BundleServer:
    """Listens on one address. A stranger who connects and does not know the key is not listened to."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        key = secrets.token_bytes(32)
        self._listener = Listener((host, 0), backlog=128)
        self.address = Address(host, int(self._listener.address[1]), key)
        self._queries: dict[str, Served] = {}
        self._closed = False
        self._connections: set[Connection] = set()
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
        with suppress(OSError):
            socket.create_connection((self.address.host, self.address.port), timeout=1).close()  # ends accept()
        self._thread.join(timeout=1)
        self._listener.close()
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
            except OSError:
                continue  # a stranger who was gone before we answered
            threading.Thread(target=self._serve, args=(connection,), name="penstock-bundle", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with self._lock:
            self._connections.add(connection)
        try:
            with connection:
                self._speak(connection)
        except (EOFError, OSError, ValueError, AuthenticationError) as problem:
            # A bundle that is gone is nothing unusual: another one gets what it had to do, and Spark starts it again.
            LOGGER.info("a connection of a bundle ended: %s: %s", type(problem).__name__, problem)
        finally:
            with self._lock:
                self._connections.discard(connection)

    def _speak(self, connection: Connection) -> None:
        wire.without_delay(connection)
        # Keys are compared here and not in accept(): a stranger who says nothing keeps nobody else waiting.
        deliver_challenge(connection, self.address.key)
        answer_challenge(connection, self.address.key)
        if not connection.poll(GREETING_SECONDS):
            return
        seat = Seat.parse(connection.recv_bytes(GREETING_BYTES))
        query = self._queries.get(seat.query)
        standing = query.seat_taken(seat) if query is not None else None
        if query is None or standing is None:
            wire.send_work(connection, None)
        else:
            _speak_for(standing, query, connection)


def _speak_for(standing: Standing, query: Served, connection: Connection) -> None:
    """Give a bundle one share after the other, until it is to leave or is gone."""
    dealer = query.dealer
    try:
        while True:
            try:
                dealt = dealer.take(standing)
            except Exception as error:
                query.fail(error)
                return
            if dealt is None:
                wire.send_work(connection, None)
                return
            descriptor = dealt.share.as_descriptor()
            wire.send_work(connection, wire.Work(dealt.batch.number, dealt.part, descriptor))
            text = wire.receive_reports(connection, SILENT_SECONDS)
            reports = tuple(BundleReport.of(one) for one in json.loads(text))
            try:
                dealer.done(standing, reports)
            except Exception as error:
                query.fail(error)
                return
    finally:
        dealer.lost(standing)
