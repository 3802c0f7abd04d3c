"""The transaction in which batches are published: recorded, their segments appended to their channels, and the read
positions of their operators moved.

Several batches share one transaction, of several operators or of one: what a transaction costs does not depend on how
many they are. Statements are made once, with names in place of values: to make one costs more than to run it. What one
transaction has left behind, the next one need not ask for: the fence says whether anything was written in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import sqlalchemy as sa

from penstock.channels import tables
from penstock.channels.database import Database, Prepared
from penstock.channels.records import NewSegment, Segment

_SEGMENT_NAMES = tuple(one.name for one in fields(Segment))
_SEGMENT_COLUMNS = tuple(tables.segments.c[name] for name in _SEGMENT_NAMES)


@dataclass(frozen=True)
class NewBatch:
    """A batch that is to be published: what it wrote, and how far its operator has read with it."""

    operator: str
    number: int
    segments: Sequence[NewSegment]
    #: A JSON text that only its writer and the monitor understand.
    manifest: str
    #: By channel.
    read_to: Mapping[str, int]


@dataclass
class _Left:
    """What a transaction has left in the catalog, as far as it was asked for since something else was written."""

    #: The number of the write, by the fence's count.
    number: int | None = None
    #: By operator, the number of its last batch; -1 if it has none.
    lasts: dict[str, int] = field(default_factory=dict)
    #: By channel, where it ends in rows and bytes.
    ends: dict[str, tuple[int, int]] = field(default_factory=dict)


class Publishing:
    """Of one topology. One thread at a time runs it."""

    def __init__(self, database: Database, topology: str, clock: Callable[[], float]) -> None:
        self._topology = topology
        self._clock = clock
        of: sa.BindParameter[str] = sa.bindparam("of_topology")
        batches, segments, channels = tables.batches, tables.segments, tables.channels
        self._last_batches = (
            sa.select(batches.c.operator, sa.func.max(batches.c.batch))
            .where(batches.c.topology == of, batches.c.operator.in_(sa.bindparam("operators", expanding=True)))
            .group_by(batches.c.operator)
        )
        self._segments_of = (
            sa.select(*_SEGMENT_COLUMNS)
            .where(
                segments.c.topology == of,
                segments.c.operator == sa.bindparam("of_operator"),
                segments.c.batch == sa.bindparam("of_batch"),
            )
            .order_by(segments.c.channel, segments.c.first_row)
        )
        self._insert_batches = database.prepare_statement(sa.insert(batches), batches.c.keys())
        self._insert_segments = database.prepare_statement(sa.insert(segments), ["topology", *_SEGMENT_NAMES])
        # The order of the names is the same for everyone, so that two transactions never wait for each other.
        self._lock_ends = (
            sa.select(channels.c.channel, channels.c.end_rows, channels.c.end_bytes)
            .where(channels.c.topology == of, channels.c.channel.in_(sa.bindparam("channels", expanding=True)))
            .order_by(channels.c.channel)
            .with_for_update()
        )
        self._insert_ends = database.insert(channels).on_conflict_do_nothing()
        self._move_ends = database.prepare_statement(
            sa.update(channels)
            .where(channels.c.topology == of, channels.c.channel == sa.bindparam("of_channel"))
            .values(end_rows=sa.bindparam("to_rows"), end_bytes=sa.bindparam("to_bytes"))
        )
        self._move_read = moved_position(database, "read_rows")
        self._left = _Left()

    def run(
        self, connection: sa.Connection, batches: Sequence[NewBatch], again: bool, number: int | None = None
    ) -> list[list[Segment] | None]:
        """For each batch its segments with their places; None for one that was published before, of which nothing is
        changed, and for those of the same operator behind it. `again`: an earlier attempt may have succeeded without
        our knowing. `number` is the number of this write, if the database is known to have the write before it and
        nothing after that (`Fence.number`)."""
        if number is None or self._left.number != number - 1:
            self._left = _Left()
        self._left.number = number
        lasts = self._lasts(connection, {one.operator for one in batches})
        placed: list[list[Segment] | None] = []
        new: list[NewBatch] = []
        #: Operators of which somebody has published a batch already that was to be published now.
        behind: set[str] = set()
        for one in batches:
            # Batch numbers of an operator only grow, so one that is not above the last was published, even if pruned.
            if one.number <= lasts[one.operator]:
                placed.append(self._own(connection, one) if again else None)
                behind.add(one.operator)
                continue
            # What is in the catalog may be another batch, with other rows: what was cut behind ours does not follow it.
            if one.operator in behind:
                placed.append(None)
                continue
            lasts[one.operator] = one.number
            new.append(one)
            placed.append([])
        if not new:
            return placed
        self._record(connection, new)
        fresh = {id(one): own for one, own in zip(new, self._append(connection, new), strict=True)}
        return [fresh.get(id(one), was) for one, was in zip(batches, placed, strict=True)]

    def _lasts(self, connection: sa.Connection, operators: set[str]) -> dict[str, int]:
        """The last batches of operators: of these, and perhaps of others."""
        known = self._left.lasts
        if unknown := operators - known.keys():
            values = {"of_topology": self._topology, "operators": sorted(unknown)}
            known.update(dict.fromkeys(unknown, -1))
            known.update((row[0], row[1]) for row in connection.execute(self._last_batches, values))
        return known

    def _own(self, connection: sa.Connection, batch: NewBatch) -> list[Segment] | None:
        """The published segments of a batch if they are the given ones: no two attempts share a file name."""
        values = {"of_topology": self._topology, "of_operator": batch.operator, "of_batch": batch.number}
        found = [Segment(*row) for row in connection.execute(self._segments_of, values)]
        same = {segment.path for segment in found} == {segment.path for segment in batch.segments}
        return found if found and same else None

    def _record(self, connection: sa.Connection, batches: Sequence[NewBatch]) -> None:
        now = self._clock()
        self._insert_batches.run(
            connection,
            [
                {
                    "topology": self._topology,
                    "operator": one.operator,
                    "batch": one.number,
                    "published_at": now,
                    "manifest": one.manifest,
                }
                for one in batches
            ],
        )
        read: dict[tuple[str, str], int] = {}
        for one in batches:
            for channel, row in one.read_to.items():
                read[one.operator, channel] = max(row, read.get((one.operator, channel), 0))
        move_positions(connection, self._move_read, self._topology, "read_rows", read)

    def _append(self, connection: sa.Connection, batches: Sequence[NewBatch]) -> list[list[Segment]]:
        """Give each segment the next rows of its channel, in the given order."""
        channels = sorted({segment.channel for one in batches for segment in one.segments})
        if not channels:
            return [[] for _ in batches]
        ends = self._ends(connection, channels)
        placed: list[list[Segment]] = []
        for one in batches:
            own = []
            for segment in one.segments:
                rows, size = ends[segment.channel]
                own.append(Segment(**vars(segment), first_row=rows, operator=one.operator, batch=one.number))
                ends[segment.channel] = (rows + segment.rows, size + segment.bytes)
            placed.append(own)
        of = {"topology": self._topology}
        self._insert_segments.run(connection, [of | vars(segment) for own in placed for segment in own])
        self._move_ends.run(
            connection,
            [
                {
                    "of_topology": self._topology,
                    "of_channel": channel,
                    "to_rows": ends[channel][0],
                    "to_bytes": ends[channel][1],
                }
                for channel in channels
            ],
        )
        return placed

    def _ends(self, connection: sa.Connection, channels: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Where channels end, in rows and bytes: these, and perhaps others. Nobody else may move an end until the
        transaction is over."""
        known = self._left.ends
        unknown = [channel for channel in channels if channel not in known]
        if unknown:
            known.update(self._locked(connection, unknown))
        missing = [channel for channel in unknown if channel not in known]
        if missing:
            new = {"topology": self._topology, "end_rows": 0, "end_bytes": 0}
            connection.execute(self._insert_ends, [{**new, "channel": channel} for channel in missing])
            known.update(self._locked(connection, missing))
        return known

    def _locked(self, connection: sa.Connection, channels: Sequence[str]) -> dict[str, tuple[int, int]]:
        values: dict[str, Any] = {"of_topology": self._topology, "channels": channels}
        return {channel: (rows, size) for channel, rows, size in connection.execute(self._lock_ends, values)}


def moved_position(database: Database, column: str) -> Prepared:
    """The statement that moves one kind of position forward; never back."""
    table = tables.positions
    statement = database.insert(table)
    to = statement.excluded[column]
    moved = statement.on_conflict_do_update(
        index_elements=["topology", "operator", "channel"],
        set_={column: sa.case((to > table.c[column], to), else_=table.c[column])},
    )
    return database.prepare_statement(moved, table.c.keys())


def move_positions(
    connection: sa.Connection,
    statement: Prepared,
    topology: str,
    column: str,
    rows: Mapping[tuple[str, str], int],
) -> None:
    """Run that statement; rows are by operator and channel."""
    if rows:
        start = {"topology": topology, "read_rows": 0, "committed_rows": 0}
        statement.run(
            connection,
            [
                {**start, "operator": operator, "channel": channel, column: row}
                for (operator, channel), row in sorted(rows.items())
            ],
        )
