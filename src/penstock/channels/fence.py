"""The fence around a topology's catalog: one driver writes, and all that it wrote is still there.

A driver that takes hold of the catalog begins a new epoch. The first statement of everything that it writes counts the
write in the row that says whose epoch it is, and finds no such row if another driver has taken over, or if the database
has gone back to an earlier state (a replica that lagged took over, a copy was restored). Writers wait for each other at
that row, so it holds under READ COMMITTED too.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import sqlalchemy as sa

from penstock.channels import tables
from penstock.channels.database import Database
from penstock.errors import PenstockError

Result = TypeVar("Result")

#: The first statement of every write.
_COUNT = (
    sa.update(tables.drivers)
    .where(
        tables.drivers.c.topology == sa.bindparam("of_topology"),
        tables.drivers.c.epoch == sa.bindparam("of_epoch"),
        tables.drivers.c.driver == sa.bindparam("of_driver"),
        tables.drivers.c.writes.between(sa.bindparam("confirmed"), sa.bindparam("sent")),
    )
    .values(writes=sa.bindparam("next"))
)


@dataclass(frozen=True)
class Term:
    """The time in which one driver writes. The driver's name is unique, since a database that went back to an earlier
    state may give the number of an epoch again."""

    epoch: int
    driver: str


class Fence:
    """Any thread may call it. Before `begin` no write is fenced: that is for tests, which have no driver."""

    def __init__(self, database: Database, topology: str) -> None:
        self._database = database
        self._topology = topology
        self._count = database.prepare_statement(_COUNT)
        self._term: Term | None = None
        #: Writes are counted one after the other.
        self._writing = threading.Lock()
        #: The count of the last write that is known to be in the database, and of the last that was sent: when a
        #: connection breaks during a commit, nobody knows which of them the database has.
        self._confirmed = 0
        self._sent = 0

    @property
    def number(self) -> int | None:
        """The number of the write that is under way, if the database is known to have the write before it and nothing
        after that; None otherwise. Only whoever writes may ask."""
        return self._sent if self._term is not None and self._confirmed == self._sent - 1 else None

    def begin(self) -> None:
        """Take over from the driver that wrote before; a write that it has under way is finished first, or refused."""
        driver = f"process {os.getpid()} on {socket.gethostname()} ({secrets.token_hex(4)})"
        new = {"topology": self._topology, "epoch": 1, "driver": driver, "since": time.time(), "writes": 0}
        table = tables.drivers
        insert = self._database.insert(table).values(new)
        upsert = insert.on_conflict_do_update(
            index_elements=["topology"],
            set_={
                "epoch": table.c.epoch + 1,
                "driver": insert.excluded.driver,
                "since": insert.excluded.since,
            },
        ).returning(table.c.epoch, table.c.writes)
        with self._writing:
            epoch, writes = self._database.run(lambda connection: connection.execute(upsert).one())
            self._term = Term(epoch, driver)
            self._confirmed = self._sent = writes

    def write(self, work: Callable[[sa.Connection], Result]) -> Result:
        """Do the work in one transaction if this driver may, and STATE_TAKEN_OVER or CATALOG_WENT_BACK otherwise."""
        with self._writing:
            result = self._database.run(lambda connection: self._counted(connection, work))
            self._confirmed = self._sent
            return result

    def check(self) -> None:
        """Raise the same errors without writing anything."""
        with self._writing:
            if self._term is not None:
                self._database.run(self._compare)

    def _counted(self, connection: sa.Connection, work: Callable[[sa.Connection], Result]) -> Result:
        if self._term is not None:
            values = {
                "of_topology": self._topology,
                "of_epoch": self._term.epoch,
                "of_driver": self._term.driver,
                "confirmed": self._confirmed,
                "sent": self._sent,
                "next": self._sent + 1,
            }
            if self._count.run(connection, [values]) != 1:
                self._compare(connection)
                raise RuntimeError("the catalog refused a write, though this driver still holds it")
            self._sent += 1
        return work(connection)

    def _compare(self, connection: sa.Connection) -> None:
        table, mine = tables.drivers, self._term
        assert mine is not None
        query = sa.select(table.c.epoch, table.c.driver, table.c.writes).where(table.c.topology == self._topology)
        row = connection.execute(query).one_or_none()
        if row is not None and row.driver != mine.driver and row.epoch >= mine.epoch:
            raise PenstockError(
                "STATE_TAKEN_OVER",
                f'{row.driver} has taken over the topology "{self._topology}" on the catalog {self._database.shown}: '
                "this process writes nothing more.",
                "Let the other process run, or stop it and start this one again.",
            )
        if row is None or row.driver != mine.driver or not self._confirmed <= row.writes <= self._sent:
            raise PenstockError(
                "CATALOG_WENT_BACK",
                f"The catalog {self._database.shown} no longer has all that this process wrote: the database was "
                "restored from an older copy, or a replica that lagged took its place.",
                "Give the topology the database that has everything; this process has stopped and deleted nothing.",
            )
