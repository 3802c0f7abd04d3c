"""The catalog: which segments, batches and read positions there are, in a database that survives the driver.

Only the driver uses it. A batch is published in one transaction, keyed by operator and batch number: a batch that Spark
replays finds itself published and changes nothing. That makes the streams exactly-once. Every write is fenced: the
driver that holds the catalog is the only one whose writes are taken (fence.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields

import sqlalchemy as sa

from penstock.channels import tables
from penstock.channels.database import Database, Prepared, Retries, Synchronous
from penstock.channels.fence import Fence
from penstock.channels.publishing import NewBatch, Publishing, move_positions, moved_position
from penstock.channels.records import BatchManifest, CatalogState, NewSegment, Position, Segment
from penstock.clock import wall_time
from penstock.logs import LOGGER

_SEGMENT_COLUMNS = tuple(tables.segments.c[field.name] for field in fields(Segment))


class Catalog:
    """One topology's share of a catalog database. Any thread may call it."""

    def __init__(self, database: Database, topology: str, clock: Callable[[], float]) -> None:
        self._database = database
        self._topology = topology
        self._clock = clock
        self._fence = Fence(database, topology)
        self._publishing = Publishing(database, topology, clock)
        self._move_committed = moved_position(database, "committed_rows")
        # Each deletes one row. A list of rows would be another statement for every length of the list, and SQLite's
        # driver keeps the last 128 statements ready: those with hundreds of values took megabytes, which came together
        # in the first hours of a driver.
        self._delete_segment = _deletion(database, tables.segments, channel="of_channel", first_row="of_row")
        self._delete_meta = _deletion(database, tables.meta, key="of_key")

    @staticmethod
    def open(
        url: str,
        topology: str,
        *,
        synchronous: Synchronous = "NORMAL",
        retries: Retries | None = None,
        clock: Callable[[], float] = wall_time,
    ) -> Catalog:
        """Open the catalog at an SQLite or PostgreSQL URL, and create its tables if they are missing.

        `synchronous` is SQLite's: NORMAL survives the end of the process at any moment, FULL a power cut as well."""
        database = Database.open(url, synchronous, retries)
        database.prepare(tables.meta, tables.SCHEMA_VERSION)
        return Catalog(database, topology, clock)

    def __repr__(self) -> str:
        return f"Catalog({self._database.shown}, {self._topology})"

    def hold(self) -> None:
        """Keep other drivers off until the catalog is closed: two drivers of one topology would take each other's
        batches for their own and delete each other's files. STATE_IN_USE if another process holds it. A driver that
        held it before can write no more."""
        self._database.hold(f"penstock/{self._topology}")
        self._fence.begin()

    def keep_hold(self) -> None:
        """Notice that the lock was lost, with its session or its file, and take it again. STATE_TAKEN_OVER if another
        driver has held the catalog meanwhile, CATALOG_WENT_BACK if something is missing that was written."""
        self._fence.check()
        if not self._database.still_held():
            # Another driver is about to take over, or the server does not know yet that our session is gone. Nothing
            # can go wrong meanwhile, since writes are fenced.
            LOGGER.warning("the lock of %r was lost, and could not be taken again yet", self)
            return
        self._fence.check()

    def wait_at_most(self, seconds: float) -> None:
        """From now on the database has so many seconds for every transaction, also for one that is under way: the
        topology ends. After the first that it does not answer in time, each fails with CATALOG_UNREACHABLE at once."""
        self._database.wait_at_most(seconds)

    def close(self) -> None:
        self._database.close()

    # What is published

    def publish(
        self,
        operator: str,
        batch: int,
        segments: Sequence[NewSegment],
        manifest: str,
        read_to: Mapping[str, int],
    ) -> list[Segment] | None:
        """One batch: see `publish_all`."""
        [placed] = self.publish_all([NewBatch(operator, batch, segments, manifest, read_to)])
        return placed

    def publish_all(self, batches: Sequence[NewBatch]) -> list[list[Segment] | None]:
        """Record batches, append their segments to their channels and move their operators' read positions, all in one
        transaction.

        Returns for each batch its segments with their places; None, and nothing of it is changed, if it was published
        before."""
        attempts = 0

        def work(connection: sa.Connection) -> list[list[Segment] | None]:
            nonlocal attempts
            attempts += 1
            # The commit of an attempt whose connection broke may have succeeded: then the batches are these very ones.
            return self._publishing.run(connection, batches, attempts > 1, self._fence.number)

        try:
            return self._fence.write(work)
        except sa.exc.IntegrityError:
            # Another connection published the same batch between our look at the last one and our insert: look again.
            LOGGER.info("one of %d batches was published by another connection meanwhile", len(batches))
            return self._fence.write(work)

    def published(self, operator: str, batch: int) -> bool:
        last = self.last_batch(operator)
        return last is not None and batch <= last

    def last_batch(self, operator: str) -> int | None:
        return self._database.run(lambda connection: self._last_batch(connection, operator))

    def manifests(self, operator: str, after_batch: int = -1) -> list[BatchManifest]:
        """The operator's batches above `after_batch`, oldest first."""
        table = tables.batches
        query = (
            sa.select(table.c.batch, table.c.published_at, table.c.manifest)
            .where(*self._mine(table, operator=operator), table.c.batch > after_batch)
            .order_by(table.c.batch)
        )
        return self._database.run(lambda connection: [BatchManifest(*row) for row in connection.execute(query)])

    def prune_batches(self, operator: str, keep: int) -> int:
        """Delete all but the newest `keep` batches and say how many. The newest always stays: replays are known by
        it."""
        table = tables.batches
        mine = self._mine(table, operator=operator)

        first_too_many = (
            sa.select(table.c.batch).where(*mine).order_by(table.c.batch.desc()).offset(max(keep, 1)).limit(1)
        )

        def look(connection: sa.Connection) -> int | None:
            newest: int | None = connection.scalar(first_too_many)
            return newest

        newest = self._database.run(look)  # mostly there is nothing to delete, and a write costs more than a look
        if newest is None:
            return 0
        delete = sa.delete(table).where(*mine, table.c.batch <= newest)
        return self._fence.write(lambda connection: connection.execute(delete).rowcount)

    # What is kept

    def load(self) -> CatalogState:
        """Read all that the in-memory index is built from."""
        return self._database.run(self._load)

    def load_settled(self) -> CatalogState:
        """The same as a write of this driver: refused if another driver has taken over. After a commit that was never
        answered the server may still be at it, and whoever only reads does not see what it is about to bring. A write
        waits for it at the fence."""
        return self._fence.write(self._load)

    def commit(self, operator: str, channel: str, row: int) -> None:
        """Record that nobody will ask again for rows of the channel below `row` on behalf of the operator."""
        self.commit_all({(operator, channel): row})

    def commit_all(self, rows: Mapping[tuple[str, str], int]) -> None:
        """The same for several operators and channels, in one transaction."""
        if not rows:
            return
        self._fence.write(
            lambda connection: move_positions(connection, self._move_committed, self._topology, "committed_rows", rows)
        )

    def forget(self, segments: Iterable[Segment]) -> None:
        """Delete segments from the catalog; their files are the caller's to delete, afterwards."""
        rows = [
            {"of_topology": self._topology, "of_channel": segment.channel, "of_row": segment.first_row}
            for segment in segments
        ]
        if rows:
            self._fence.write(lambda connection: self._delete_segment.run(connection, rows))

    # What others keep here

    def get_meta(self, key: str) -> str | None:
        table = tables.meta
        query = sa.select(table.c.value).where(*self._mine(table, key=key))
        return self._database.run(lambda connection: connection.scalar(query))

    def set_meta(self, key: str, value: str) -> None:
        self._fence.write(lambda connection: self._set_metas(connection, {key: value}))

    # Parts of the transactions above

    def _load(self, connection: sa.Connection) -> CatalogState:
        channels, segments, batches, positions = tables.channels, tables.segments, tables.batches, tables.positions
        ends = connection.execute(sa.select(channels.c.channel, channels.c.end_rows).where(*self._mine(channels)))
        kept = connection.execute(
            sa.select(*_SEGMENT_COLUMNS).where(*self._mine(segments)).order_by(segments.c.channel, segments.c.first_row)
        )
        lasts = connection.execute(
            sa.select(batches.c.operator, sa.func.max(batches.c.batch).label("last"))
            .where(*self._mine(batches))
            .group_by(batches.c.operator)
        )
        places = connection.execute(
            sa.select(
                positions.c.operator, positions.c.channel, positions.c.read_rows, positions.c.committed_rows
            ).where(*self._mine(positions))
        )
        return CatalogState(
            ends={row.channel: row.end_rows for row in ends},
            segments=tuple(Segment(*row) for row in kept),
            positions={(operator, channel): Position(read, done) for operator, channel, read, done in places},
            last_batches={row.operator: row.last for row in lasts},
        )

    def _mine(self, table: sa.Table, **values: str) -> list[sa.ColumnElement[bool]]:
        return [table.c.topology == self._topology, *(table.c[name] == value for name, value in values.items())]

    def _last_batch(self, connection: sa.Connection, operator: str) -> int | None:
        table = tables.batches
        query = sa.select(sa.func.max(table.c.batch)).where(*self._mine(table, operator=operator))
        last: int | None = connection.scalar(query)
        return last

    # Whose it is, and what a changed declaration gives up

    def topologies(self) -> set[str]:
        """The names of all topologies that have something in this database."""
        table = tables.meta
        query = sa.select(table.c.topology).distinct().where(table.c.topology != "")
        return self._database.run(lambda connection: set(connection.scalars(query)))

    def give_up(
        self,
        operators: Iterable[str],
        channels: Iterable[str],
        begin: Mapping[tuple[str, str], int],
        meta: Mapping[str, str],
    ) -> None:
        """Delete what is known of operators and channels, have readers begin at a row (by operator and channel), and
        set meta values: all of it or nothing. The files are the caller's to delete."""
        rows = [
            {
                "topology": self._topology,
                "operator": reader,
                "channel": channel,
                "read_rows": row,
                "committed_rows": row,
            }
            for (reader, channel), row in begin.items()
        ]

        def work(connection: sa.Connection) -> None:
            for operator in operators:
                for table in (tables.batches, tables.positions):
                    connection.execute(sa.delete(table).where(*self._mine(table, operator=operator)))
                column = tables.meta.c.key
                noted = column == f"finished/{operator}"
                # Notes of sources: the list of files has a word of its own; all other kinds note under "source".
                for notes in ("files", "source"):
                    noted |= column.startswith(f"{notes}/{operator}/", autoescape=True)
                connection.execute(sa.delete(tables.meta).where(*self._mine(tables.meta), noted))
            for channel in channels:
                for table in (tables.segments, tables.positions, tables.channels):
                    connection.execute(sa.delete(table).where(*self._mine(table, channel=channel)))
            if rows:
                connection.execute(sa.insert(tables.positions), rows)
            self._set_metas(connection, meta)

        operators, channels = list(operators), list(channels)
        self._fence.write(work)

    # Many values at once, for those who keep lists here

    def metas(self, prefix: str) -> dict[str, str]:
        """All values whose keys begin with a prefix, by the rest of their keys."""
        table = tables.meta
        query = sa.select(table.c.key, table.c.value).where(
            *self._mine(table), sa.func.substr(table.c.key, 1, len(prefix)) == prefix
        )
        return self._database.run(
            lambda connection: {key[len(prefix) :]: value for key, value in connection.execute(query)}
        )

    def change_metas(self, values: Mapping[str, str], gone: Sequence[str] = ()) -> None:
        """Write some values and delete others, in one transaction."""

        def work(connection: sa.Connection) -> None:
            self._set_metas(connection, values)
            if gone:
                self._delete_meta.run(connection, [{"of_topology": self._topology, "of_key": key} for key in gone])

        self._fence.write(work)

    def _set_metas(self, connection: sa.Connection, values: Mapping[str, str]) -> None:
        rows = [{"topology": self._topology, "key": key, "value": value} for key, value in values.items()]
        if rows:
            connection.execute(self._database.upsert_value(tables.meta), rows)


def _deletion(database: Database, table: sa.Table, **names: str) -> Prepared:
    """The statement that deletes a row of a topology. `names` has the columns that say which row, and what their values
    are called; the topology's is called of_topology."""
    columns = {"topology": "of_topology", **names}
    found = [table.c[column] == sa.bindparam(name) for column, name in columns.items()]
    return database.prepare_statement(sa.delete(table).where(*found))
