"""The line of a connection to PostgreSQL.

Any thread may cut it off: nothing else ends the wait for a server that hangs. What was sent may have arrived: after a
commit that was cut off, nobody knows whether it was done.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from penstock.logs import LOGGER


class Line:
    """The line of one connection, for as long as somebody uses it."""

    def __init__(self, connection: sa.Connection, *, needed: bool) -> None:
        """If no descriptor is left for a line that is `needed`, the connection is given up. Another one is used all the
        same, and cannot be cut off."""
        self._connection = connection
        self._socket = _socket(connection, needed)
        self._deciding = threading.Lock()
        self._is_over = False
        #: Why it was cut off; empty if it was not.
        self._why = ""

    def cut_off(self, why: str) -> None:
        """Whoever waits for an answer gets an error. After `used`, nobody does: the pool may have given the connection
        to somebody else by then."""
        with self._deciding:  # a timer that is cancelled may have begun with this already
            if self._is_over or self._why:
                return
            self._why = why
            if self._socket is not None:
                with suppress(OSError):  # the other end was faster
                    self._socket.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def used(self) -> Iterator[None]:
        with self._socket or nullcontext():
            try:
                yield
            except DBAPIError:
                if not self._why:
                    raise
                # The driver's own error says that the server has closed the connection, and may have crashed.
                raise lost_connection(TimeoutError(self._why)) from None
            finally:
                with self._deciding:
                    self._is_over = True
                if self._why:
                    self._connection.invalidate()  # also if all of it was done just in time

    @contextmanager
    def cut_off_after(self, seconds: float) -> Iterator[None]:
        """In this block, cut it off after so many seconds."""
        why = f"it has not answered for {seconds:g} s, so Penstock has cut off the connection"
        timer = threading.Timer(seconds, lambda: self.cut_off(why))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def lost_connection(problem: Exception) -> sa.exc.OperationalError:
    """The error of the database's driver for a connection that is of no use any more."""
    return sa.exc.OperationalError("", {}, problem, connection_invalidated=True)


def _socket(connection: sa.Connection, needed: bool) -> socket.socket | None:
    """The socket of a connection, with a descriptor of its own: by the time that it is used, the number of the other
    one may belong to another file."""
    try:
        return socket.socket(fileno=os.dup(connection.connection.fileno()))
    except (OSError, connection.dialect.loaded_dbapi.Error) as problem:  # no descriptor is left, or it has no socket
        if not needed:
            LOGGER.info("a connection to the database could not be cut off if need be: %s", type(problem).__name__)
            return None
        connection.invalidate()
        raise lost_connection(problem) from None
