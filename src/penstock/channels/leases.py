"""The lease of a cluster: of the topologies on it, one changes at a time, in the order in which they asked; and each
sees what the others use.

All of them share a database. Every driver has a row there, with what it uses and, if it wants to change something, with
a ticket. Tickets are numbered as they are asked for, and never given twice; the lowest one has the lease. A row lasts
for so many seconds by the clock of the database, and its driver renews it. A driver that is dead does not, so the next
one in line gets the lease. A driver that comes back after that finds its row gone: its ticket is worth nothing any
more, and it asks again, at the end of the line.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa

from penstock.channels.database import NEIGHBOURS, Database, Retries
from penstock.errors import PenstockError

Result = TypeVar("Result")
SCHEMA_VERSION = 1
#: A row lasts so long, unless its driver renews it. Its driver should renew it several times within that.
LASTS_SECONDS = 30.0

lease_tables = sa.MetaData()
meta = sa.Table(
    "penstock_lease_meta",
    lease_tables,
    sa.Column("topology", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
#: One row a cluster: the last ticket that was given. Whoever changes anything of a cluster locks it first.
tickets = sa.Table(
    "penstock_lease_tickets",
    lease_tables,
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Column("last", sa.BigInteger, nullable=False),
)
drivers = sa.Table(
    "penstock_lease_drivers",
    lease_tables,
    sa.Column("cluster", sa.Text, primary_key=True),
    sa.Column("driver", sa.Text, primary_key=True),
    sa.Column("topology", sa.Text, nullable=False),
    #: NULL if it does not want to change anything.
    sa.Column("ticket", sa.BigInteger),
    #: By the clock of the database, in seconds since the epoch.
    sa.Column("until", sa.Double, nullable=False),
    #: What it uses: a JSON object.
    sa.Column("uses", sa.Text, nullable=False),
)


@dataclass(frozen=True)
class Neighbour:
    """A topology on the same cluster, as it was seen last."""

    topology: str
    driver: str
    #: Its place in the line; None if it does not want to change anything.
    ticket: int | None
    #: What it uses, by machine, in cores.
    uses: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "topology": self.topology,
            "driver": self.driver,
            "in_line": self.ticket is not None,
            "uses": dict(self.uses),
        }


class Leases:
    """The leases that one driver asks for. Any thread may call it."""

    def __init__(self, database: Database, cluster: str, topology: str, lasts: float = LASTS_SECONDS) -> None:
        self._database = database
        self._cluster = cluster
        self._topology = topology
        #: Seconds that the row of this driver lasts, unless it is renewed.
        self.lasts = lasts
        #: Unique, also after a restart of the same process: nobody must take a row for its own that is another's.
        self.driver = f"process {os.getpid()} on {socket.gethostname()} ({secrets.token_hex(4)})"

    @staticmethod
    def open(
        url: str, cluster: str, topology: str, lasts: float = LASTS_SECONDS, retries: Retries | None = None
    ) -> Leases:
        """`cluster` is a name that all topologies on the same machines give."""
        database = Database.open(url, retries=retries, content=NEIGHBOURS)
        database.prepare(meta, SCHEMA_VERSION)
        return Leases(database, cluster, topology, lasts)

    def tell(self, uses: Mapping[str, float]) -> None:
        """Renew this driver's row, and say what it uses now: cores by machine."""
        self._locked(lambda connection, now: self._renew(connection, now, uses=json.dumps(dict(uses))))

    def ask(self) -> int | None:
        """Stand in line, or go on standing in it; returns the ticket if it has the lease."""

        def work(connection: sa.Connection, now: float) -> int | None:
            self._renew(connection, now)
            mine = self._ticket(connection)
            if mine is None:
                mine = connection.execute(
                    sa.update(tickets)
                    .where(tickets.c.cluster == self._cluster)
                    .values(last=tickets.c.last + 1)
                    .returning(tickets.c.last)
                ).scalar_one()
                connection.execute(sa.update(drivers).where(*self._own).values(ticket=mine))
            return mine if self._first(connection) == mine else None

        return self._locked(work)

    def confirm(self, ticket: int) -> None:
        """Renew the lease before the next step of a change. LEASE_LOST if the ticket has it no longer: then another
        driver may be changing something already."""

        def work(connection: sa.Connection, now: float) -> bool:
            if self._ticket(connection) != ticket or self._first(connection) != ticket:
                return False
            self._renew(connection, now)
            return True

        if not self._locked(work):
            raise self.lost()

    def lost(self) -> PenstockError:
        """The error of a driver that did not renew its lease in time."""
        return PenstockError(
            "LEASE_LOST",
            f'"{self._topology}" could not renew its lease, which lasts {self.lasts:g} s: another topology may change.',
            "Nothing more of this change is done. Ask for it again.",
        )

    def leave(self) -> None:
        """Give the lease, or the place in the line, to the next one."""
        self._locked(lambda connection, _: connection.execute(sa.update(drivers).where(*self._own).values(ticket=None)))

    def neighbours(self) -> tuple[Neighbour, ...]:
        """The other topologies on this cluster: those in line first, in their order."""

        def work(connection: sa.Connection, _: float) -> tuple[Neighbour, ...]:
            query = sa.select(drivers).where(drivers.c.cluster == self._cluster, drivers.c.driver != self.driver)
            rows = connection.execute(query).all()
            found = [Neighbour(row.topology, row.driver, row.ticket, json.loads(row.uses)) for row in rows]
            return tuple(sorted(found, key=lambda one: (one.ticket is None, one.ticket, one.topology, one.driver)))

        return self._locked(work)

    def close(self) -> None:
        """Be no neighbour any more."""
        try:
            self._locked(lambda connection, _: connection.execute(sa.delete(drivers).where(*self._own)))
        finally:
            self._database.close()

    # Within a transaction

    def _locked(self, work: Callable[[sa.Connection, float], Result]) -> Result:
        """Do the work while no other driver of the cluster does any, after rows that are over were deleted. It may be
        done twice if the connection is lost, so all of it says how things are to be."""

        def run(connection: sa.Connection) -> Result:
            lock = self._database.insert(tickets).values(cluster=self._cluster, last=0)
            connection.execute(lock.on_conflict_do_update(index_elements=["cluster"], set_={"last": tickets.c.last}))
            now = float(connection.execute(sa.select(self._clock())).scalar_one())
            over = sa.delete(drivers).where(drivers.c.cluster == self._cluster, drivers.c.until <= now)
            connection.execute(over)
            # No row lasts longer than one that is renewed now, unless the clock was set back since: a driver that is
            # dead would be waited for until the clock is where it was.
            most = now + max(self.lasts, LASTS_SECONDS)
            later = sa.update(drivers).where(drivers.c.cluster == self._cluster, drivers.c.until > most)
            connection.execute(later.values(until=most))
            return work(connection, now)

        return self._database.run(run)

    def _clock(self) -> sa.ColumnElement[float]:
        """Of the database, at this moment. At its begin, the transaction may not have had the lock yet."""
        if self._database.is_sqlite:
            return sa.literal_column("(julianday('now') - 2440587.5) * 86400.0", sa.Double)
        return sa.literal_column("extract(epoch from clock_timestamp())::float8", sa.Double)

    def _renew(self, connection: sa.Connection, now: float, **more: str) -> None:
        row = {"cluster": self._cluster, "driver": self.driver, "topology": self._topology, "uses": "{}", **more}
        insert = self._database.insert(drivers).values(**row, until=now + self.lasts, ticket=None)
        changed = {"until": insert.excluded.until, **{name: insert.excluded[name] for name in more}}
        connection.execute(insert.on_conflict_do_update(index_elements=["cluster", "driver"], set_=changed))

    def _ticket(self, connection: sa.Connection) -> int | None:
        return connection.execute(sa.select(drivers.c.ticket).where(*self._own)).scalar_one_or_none()

    def _first(self, connection: sa.Connection) -> int | None:
        query = sa.select(sa.func.min(drivers.c.ticket)).where(drivers.c.cluster == self._cluster)
        found: int | None = connection.execute(query).scalar_one()
        return found

    @property
    def _own(self) -> tuple[sa.ColumnElement[bool], ...]:
        return drivers.c.cluster == self._cluster, drivers.c.driver == self.driver
