"""How a standing bundle and the driver talk: over a TCP connection on which both have proved that they know a random
key. What they exchange is JSON and bytes that are parsed, never a pickle.

A bundle says once which seat it takes. Then the driver sends work, the bundle answers with the reports of that work,
and so on, until the driver says that the turn is over. While it works, a bundle says from time to time that it is
alive: one that is stopped or cut off is silent, and its work is given to another.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection


class Gone(Exception):
    """The other side has closed the connection, or cannot be reached any more."""


#: Seconds between two signs of life of a bundle that works.
ALIVE_SECONDS = 1.0
_ALIVE, _REPORTS = b"a", b"r"


#: A connection on which nothing passes is asked after 10 s whether it lives. One that does not answer is given up after
#: half a minute at most.
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}


@dataclass(frozen=True)
class Address:
    """Where the driver listens, and the key that both sides must know. It travels in Spark's own closure."""

    host: str
    port: int
    key: bytes

    def __repr__(self) -> str:
        return f"Address({self.host}:{self.port})"  # nobody prints the key


@dataclass(frozen=True)
class Seat:
    """Which place a bundle takes: of which query, in which turn, and the how-manieth of its bundles."""

    query: str
    turn: int
    index: int
    slot: str
    instances: int
    #: The how-manieth attempt of Spark at the task. An earlier one may still be there, if it was only cut off.
    attempt: int = 0

    def as_text(self) -> bytes:
        return json.dumps(vars(self)).encode()

    @staticmethod
    def parse(text: bytes) -> Seat:
        fields = json.loads(text)
        wanted = {"query": str, "turn": int, "index": int, "slot": str, "instances": int, "attempt": int}
        if not isinstance(fields, dict) or {name: type(value) for name, value in fields.items()} != wanted:
            raise ValueError("a bundle says first which seat it takes")
        return Seat(**fields)


@dataclass(frozen=True)
class SentShare:
    """One share of one batch, on its way to a bundle."""

    batch: int
    #: The how-manieth share of the batch.
    part: int
    descriptor: bytes

    def as_text(self) -> bytes:
        return b"%d %d " % (self.batch, self.part) + self.descriptor

    @staticmethod
    def parse(text: bytes) -> SentShare:
        batch, part, descriptor = text.split(b" ", 2)
        return SentShare(int(batch), int(part), descriptor)


def connect(address: Address) -> Connection:
    """A bundle's connection to the driver."""
    connection = Client((address.host, address.port), authkey=address.key)
    with _socket_of(connection) as own:
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        notice_a_dead_network(own)
    return connection


def prepare(connection: Connection, seconds: float) -> None:
    """The driver's end of a connection: small messages go at once, and who stops in the middle of one is given up after
    so many seconds."""
    with _socket_of(connection) as own:
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        notice_a_dead_network(own)


def notice_a_dead_network(own: socket.socket) -> None:
    """Have an end that waits find out when the other end cannot be reached any more. A firewall that has forgotten a
    connection tells nobody."""
    own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        # macOS has other names for some, and a kernel need not have them all: the connection works without.
        with suppress(AttributeError, OSError):
            own.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def crosses_a_link(connection: Connection) -> bool:
    """Whether the other end is on another machine: what a computer sends to itself has the same address at both
    ends."""
    with _socket_of(connection) as own:
        return bool(own.getsockname()[0] != own.getpeername()[0])


def hang_up(connection: Connection) -> None:
    """End a connection on which another thread may be waiting."""
    # What was closed already, by either side, needs no end.
    with suppress(OSError), _socket_of(connection) as own:
        own.shutdown(socket.SHUT_RDWR)


@contextmanager
def while_there() -> Iterator[None]:
    """Name what goes wrong on a connection in this block, so that nobody takes it for an error of a user's function."""
    try:
        yield
    except (EOFError, OSError) as error:
        raise Gone(f"{type(error).__name__}: {error}") from error


def _socket_of(connection: Connection) -> socket.socket:
    return socket.socket(fileno=os.dup(connection.fileno()))


# What the driver says


def send_share(connection: Connection, share: SentShare | None) -> int:
    """None: the turn is over. Returns how many bytes were sent."""
    text = b"" if share is None else share.as_text()
    connection.send_bytes(text)
    return len(text)


def receive_share(connection: Connection) -> SentShare | None:
    text = connection.recv_bytes()
    return SentShare.parse(text) if text else None


# What a bundle says


def send_alive(connection: Connection) -> None:
    connection.send_bytes(_ALIVE)


def send_reports(connection: Connection, reports: Sequence[bytes]) -> None:
    connection.send_bytes(_REPORTS + b"[" + b",".join(reports) + b"]")


def receive_reports(connection: Connection, patience: float) -> bytes:
    """The reports of the work that was sent last, as a JSON list. Raises TimeoutError when the bundle has not said for
    so many seconds that it is alive."""
    while True:
        if not connection.poll(patience):
            raise TimeoutError(f"the bundle has said nothing for {patience:g} s")
        text = connection.recv_bytes()
        if text[:1] == _REPORTS:
            return text[1:]
        if text != _ALIVE:
            raise ValueError("a bundle says that it is alive, or it reports")
