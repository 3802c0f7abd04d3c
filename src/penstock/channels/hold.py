"""Keeping other processes off a database: a lock on a file beside SQLite's, or one of a PostgreSQL session.

Both can be lost while their holder lives: somebody deletes the file, or the server is restarted. So the holder asks now
and then whether it still has the lock. In between, the fence (fence.py) keeps the catalog right, not the lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, Protocol

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from penstock.logs import LOGGER, traced

#: Settings of the server for the session that holds a lock: it notices a client that is gone.
_SERVER_KEEPALIVE = {"tcp_keepalives_idle": 10, "tcp_keepalives_interval": 5, "tcp_keepalives_count": 3}


class Hold(Protocol):
    """A lock that one process has at a time, until it releases it or ends."""

    def take(self) -> bool:
        """Take the lock; False if somebody else has it."""

    def lost(self) -> bool:
        """Whether the lock is no longer ours, though we did not release it."""

    def release(self) -> None:
        """Give the lock back, if we have it."""


class NoHold:
    """The hold on a database in memory, which nobody else can open."""

    def take(self) -> bool:
        return True

    def lost(self) -> bool:
        return False

    def release(self) -> None:
        pass


class FileHold:
    """A lock on a file, which is made for it and stays."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def take(self) -> bool:
        self.release()
        lock = os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600), "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            if not isinstance(error, BlockingIOError):  # that one says that somebody else has the lock
                LOGGER.warning("%s could not be locked: %s", self._path, error)
            return False
        self._file = lock
        return True

    def lost(self) -> bool:
        """Whether the file is gone or another one: then somebody else can make or lock a file of this name."""
        try:
            return self._file is None or not os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except OSError as error:
            LOGGER.warning("the lock on %s was lost: %s", self._path, error)
            return True

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class SessionHold:
    """An advisory lock of PostgreSQL, on a connection of its own: it ends with that session."""

    def __init__(
        self, engine: sa.Engine, name: str, watched: Callable[[sa.Connection], AbstractContextManager[Any]]
    ) -> None:
        """`watched` makes a block in which a connection is cut off if the server must not be waited for any longer."""
        self._engine = engine
        self._name = name
        self._watched = watched
        self._connection: sa.Connection | None = None

    def take(self) -> bool:
        self.release()
        try:
            return self._try()
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
        # The pool had kept a connection that was lost too; now it has none of them left.
        LOGGER.info("a connection to the database was lost before it could be locked: Penstock tries a new one")
        return self._try()

    def _try(self) -> bool:
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            with self._watched(connection):
                has_it = self._ask(connection)
            if has_it:
                self._connection = connection
                return True
        except DBAPIError:
            connection.invalidate()
            connection.close()
            raise
        connection.close()
        return False

    def _ask(self, connection: sa.Connection) -> bool:
        for setting, value in _SERVER_KEEPALIVE.items():
            # So that a driver whose machine is gone does not keep the lock for hours.
            connection.execute(sa.text(f"SET {setting} = {value}"))
        # Locks are a database's, tables a schema's.
        whole = f"{connection.scalar(sa.select(sa.func.current_schema()))}/{self._name}"
        key = int.from_bytes(hashlib.sha256(whole.encode()).digest()[:8], "big", signed=True)
        return bool(connection.scalar(sa.select(sa.func.pg_try_advisory_lock(key))))

    def lost(self) -> bool:
        if self._connection is None:
            return True
        try:
            with self._watched(self._connection):
                self._connection.scalar(sa.select(1))
        except DBAPIError as error:
            # Only its kind is written down: the text of a database's error may hold a secret of the URL.
            LOGGER.warning("the session that held the lock of the database was lost: %s", type(error).__name__)
            return True
        return False

    def release(self) -> None:
        if self._connection is None:
            return
        # It fails where the server has ended the session, and with it the lock.
        with traced("the lock of a PostgreSQL session could not be given back", DBAPIError):
            self._connection.invalidate()  # the lock is the session's: it must not go back to the pool
            self._connection.close()
        self._connection = None
