"""The statistics store: what a topology did, by sampling interval, minute and ten minutes; and what happened to it.

It is a record for people and dashboards: strategies read the snapshot. Losing it loses no row. The one thing in it that
decisions depend on is what a controller remembers, its book: a controller without it begins anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import sqlalchemy as sa

from penstock.channels.database import STATISTICS, Database, Retries
from penstock.cluster.model import Placement
from penstock.cluster.readings import MachineUse
from penstock.monitor import statistics_tables as tables
from penstock.monitor.decisions import KeptDecision
from penstock.monitor.events import Event, EventKind
from penstock.monitor.history import HistoryQuery, SeriesHistory, answer
from penstock.monitor.intervals import Interval
from penstock.monitor.retention import Level, levels_of, prune, prune_decisions, prune_events, prune_series, roll_up
from penstock.monitor.series import By, Figures, SeriesKey, figures_of, figures_of_machine
from penstock.printable import printable
from penstock.settings import Settings
from penstock.topology.definition import TopologyDefinition

#: How often series without figures are looked for: it takes a look at everything that there is.
SERIES_SECONDS = 3600.0
#: The key of a controller's book in the meta table, which needs no other tables for it than it always had.
_BOOK = "controller_book"
#: A controller's thread waits for its book, and asks again in its next round. Once, because a server that was restarted
#: leaves a lost connection behind.
_IMPATIENT = Retries(times=1)
#: A statement that waits for a lock, for a disk or for a server that hangs would hold up the controller for good. It is
#: given up after this time.
BOOK_SECONDS = 10.0
_UNMEASURED: Figures = dict.fromkeys(column.name for column in tables.statistics.c if not column.primary_key)


class StatisticsStore:
    """One topology's share of a statistics database. Any thread may call it; one writes."""

    def __init__(self, database: Database, topology: str, settings: Settings, blocks: Mapping[By, int]) -> None:
        self._database = database
        self._topology = topology
        self._levels = levels_of(settings)
        self._sample_ms = settings.sample_seconds * 1000
        self._blocks = blocks
        #: What names a series in the statistics table.
        self._ids: dict[SeriesKey, Figures] = {}
        #: Up to where everything that was sampled is written, in milliseconds; 0 until this process has written.
        self._written_to = 0
        self._looked_at_series = 0.0

    @staticmethod
    def open(
        url: str, topology: str, settings: Settings | None = None, retries: Retries | None = None
    ) -> StatisticsStore:
        """Open the store at an SQLite or PostgreSQL URL, and create its tables if they are missing."""
        database = Database.open(url, retries=retries, content=STATISTICS)
        database.prepare(tables.meta, tables.SCHEMA_VERSION)
        database.run(tables.add_missing_metrics)
        blocks = database.run(lambda connection: _enter_blocks(connection, database, topology))
        return StatisticsStore(database, topology, settings or Settings(), blocks)

    def __repr__(self) -> str:
        return f"StatisticsStore({self._database.shown}, {self._topology})"

    def wait_at_most(self, seconds: float) -> None:
        """From now on the database has so many seconds for every transaction: the topology ends."""
        self._database.wait_at_most(seconds)

    def close(self) -> None:
        self._database.close()

    # Statistics

    def write(self, intervals: Sequence[Interval], definition: TopologyDefinition, placement: Placement) -> None:
        """Write intervals that are over, in one transaction. Writing one again changes nothing."""
        rows = [
            (key, _milliseconds(interval.start), figures)
            for interval in intervals
            for key, figures in figures_of(interval, definition, placement).items()
        ]
        self.write_rows(rows, max((interval.stop for interval in intervals), default=0.0))

    def write_machines(self, rows: Sequence[tuple[str, float, MachineUse]]) -> None:
        """What machines used, each with its name and the moment from which on."""
        figures = [
            # What is older than this may be rolled up already, and a row that came there would be missed.
            (SeriesKey.of_machine(name), max(_milliseconds(since), self._written_to), figures_of_machine(use))
            for name, since, use in rows
        ]
        self.write_rows(figures, 0.0)

    def write_rows(self, rows: Sequence[tuple[SeriesKey, int, Figures]], complete_to: float) -> None:
        """Figures by series and milliseconds since the epoch; all there will be up to `complete_to`."""

        def work(connection: sa.Connection) -> dict[SeriesKey, Figures]:
            ids = self._series(connection, {key for key, _, _ in rows})
            values = [_UNMEASURED | figures | ids[key] | {"time": time} for key, time, figures in rows]
            connection.execute(self._database.insert(tables.statistics).on_conflict_do_nothing(), values)
            return ids

        if rows:
            # Kept only now: ids of a transaction that failed were never given.
            self._ids = self._database.run(work)
        self._written_to = max(self._written_to, _milliseconds(complete_to))

    def keep_house(self, now: float) -> None:
        """Roll up what is complete, then delete what was kept for long enough; nothing goes before it is rolled up."""
        self._database.run(lambda connection: self._keep_house(connection, now))
        if now >= self._looked_at_series + SERIES_SECONDS:
            self._database.run(lambda connection: prune_series(connection, list(self._blocks.values())))
            self._ids = {}  # some of them are given to nobody now
            self._looked_at_series = now

    def history(self, query: HistoryQuery) -> list[SeriesHistory]:
        """In the finest intervals that give no more than the points asked for and are still kept. What is too young to
        be rolled up comes in finer ones."""

        def work(connection: sa.Connection) -> list[tuple[SeriesKey, int, tuple[Any, ...]]]:
            rows: list[tuple[SeriesKey, int, tuple[Any, ...]]] = []
            since, until, done = _milliseconds(query.since), _milliseconds(query.until), 0
            for level in reversed(self._levels[: self._level_for(connection, query) + 1]):
                stop = until if not level.width else min(until, self._mark(connection, "rolled", level))
                # An interval that began before counts if some of it is asked for.
                first = since - since % (level.width or 1)
                rows += self._rows(connection, query, level, max(first, done), stop)
                done = max(done, stop)
            return rows

        return answer(query, self._database.run(work))

    # Events

    def write_events(self, events: Sequence[Event]) -> None:
        rows = [
            {
                **{name: _writable(value) for name, value in event.as_json().items()},
                "topology": self._topology,
                "fields": json.dumps(dict(event.fields), default=str),
            }
            for event in events
        ]
        if rows:
            statement = self._database.insert(tables.events).on_conflict_do_nothing()
            self._database.run(lambda connection: connection.execute(statement, rows))

    def last_event(self) -> int:
        table = tables.events
        query = sa.select(sa.func.max(table.c.id)).where(table.c.topology == self._topology)
        return self._database.run(lambda connection: connection.scalar(query)) or 0

    def events(self, after: int = 0, limit: int = 1000) -> list[Event]:
        """The first `limit` events above an id."""
        table = tables.events
        query = (
            sa.select(table).where(table.c.topology == self._topology, table.c.id > after).order_by(table.c.id)
        ).limit(limit)
        rows = self._database.run(lambda connection: connection.execute(query).all())
        return [
            Event(row.time, EventKind(row.kind), row.subject, row.reason, row.cause, json.loads(row.fields), row.id)
            for row in rows
        ]

    # Decisions

    def write_decisions(self, decisions: Sequence[KeptDecision]) -> None:
        """A decision that is there already is replaced: it has a verdict by now."""
        rows = [
            {
                "topology": self._topology,
                "id": one.id,
                "time": one.time,
                "verdict": one.verdict,
                "record": _writable(json.dumps(dict(one.record), default=str)),
            }
            for one in decisions
        ]
        statement = self._database.insert(tables.decisions)
        newer = {name: statement.excluded[name] for name in ("time", "verdict", "record")}
        upsert = statement.on_conflict_do_update(index_elements=["topology", "id"], set_=newer)
        if rows:
            self._database.run(lambda connection: connection.execute(upsert, rows))

    def last_decision(self) -> int:
        table = tables.decisions
        query = sa.select(sa.func.max(table.c.id)).where(table.c.topology == self._topology)
        return self._database.run(lambda connection: connection.scalar(query)) or 0

    def decisions(self, after: int = 0, limit: int = 1000) -> list[KeptDecision]:
        """The first `limit` decisions above an id."""
        table = tables.decisions
        mine = sa.select(table).where(table.c.topology == self._topology, table.c.id > after)
        query = mine.order_by(table.c.id).limit(limit)
        rows = self._database.run(lambda connection: connection.execute(query).all())
        return [KeptDecision(row.time, row.verdict, json.loads(row.record), row.id) for row in rows]

    # The controller's book

    def book(self) -> str | None:
        """What the controller of this topology has written last; None if it has written nothing."""
        return self._database.run(lambda connection: self._meta(connection, _BOOK), _IMPATIENT, BOOK_SECONDS)

    def write_book(self, text: str) -> None:
        row = {"topology": self._topology, "key": _BOOK, "value": text}

        def work(connection: sa.Connection) -> None:
            connection.execute(self._database.upsert_value(tables.meta), row)

        self._database.run(work, _IMPATIENT, BOOK_SECONDS)

    # Parts of the transactions above

    def _keep_house(self, connection: sa.Connection, now: float) -> None:
        complete_to, blocks = self._written_to, list(self._blocks.values())
        for level in self._levels[1:]:
            start, stop = self._mark(connection, "rolled", level), complete_to - complete_to % level.width
            if stop > start:
                roll_up(connection, blocks, level, start, stop)
                self._set_mark(connection, "rolled", level, stop)
            complete_to = max(start, stop)
        for level, coarser in zip(self._levels, (*self._levels[1:], None), strict=True):
            before = _milliseconds(now - level.keep)
            if coarser is not None:
                before = min(before, self._mark(connection, "rolled", coarser))
            if before > self._mark(connection, "pruned", level):
                prune(connection, blocks, level, before)
                self._set_mark(connection, "pruned", level, before)
        prune_events(connection, self._topology, now - self._levels[-1].keep)
        prune_decisions(connection, self._topology, now - self._levels[-1].keep)

    def _level_for(self, connection: sa.Connection, query: HistoryQuery) -> int:
        milliseconds = max(query.until - query.since, 0.0) * 1000
        for level in self._levels[:-1]:
            points = milliseconds / (level.width or self._sample_ms)
            if points <= query.points and self._mark(connection, "pruned", level) <= _milliseconds(query.since):
                return level.number
        return self._levels[-1].number

    def _rows(
        self, connection: sa.Connection, query: HistoryQuery, level: Level, start: int, stop: int
    ) -> Iterator[tuple[SeriesKey, int, tuple[Any, ...]]]:
        block = self._blocks[query.by]
        whose = [tables.series.c.block == block]
        whose += [tables.series.c.operator == query.operator] if query.operator is not None else []
        keys = {row.id: SeriesKey(*row[2:]) for row in connection.execute(sa.select(tables.series).where(*whose))}
        table = tables.statistics.c
        statement = (
            sa.select(table.series, table.time, *(table[name] for name in query.columns))
            .where(table.level == level.number, table.block == block, table.time >= start, table.time < stop)
            .order_by(table.time)
        )
        if query.operator is not None:
            statement = statement.where(table.series.in_(keys))
        for row in connection.execute(statement):
            yield keys[row[0]], row[1], row[2:]

    def _series(self, connection: sa.Connection, keys: set[SeriesKey]) -> dict[SeriesKey, Figures]:
        """What names each series; those that are new are entered."""
        missing = sorted(keys - self._ids.keys())
        if not missing:
            return self._ids
        table = tables.series
        rows = [{"block": self._blocks[key.by], **vars(key)} for key in missing]
        connection.execute(self._database.insert(table).on_conflict_do_nothing(), rows)
        found = connection.execute(sa.select(table).where(table.c.block.in_(self._blocks.values())))
        return {
            SeriesKey(row.operator, row.slot, row.stream): {"level": 0, "block": row.block, "series": row.id}
            for row in found
        }

    def _mark(self, connection: sa.Connection, what: str, level: Level) -> int:
        """Up to where a level is rolled up, or deleted."""
        return int(self._meta(connection, f"{what}:{level.number}") or 0)

    def _meta(self, connection: sa.Connection, key: str) -> str | None:
        table = tables.meta
        query = sa.select(table.c.value).where(table.c.topology == self._topology, table.c.key == key)
        return connection.scalar(query)

    def _set_mark(self, connection: sa.Connection, what: str, level: Level, to: int) -> None:
        row = {"topology": self._topology, "key": f"{what}:{level.number}", "value": str(to)}
        connection.execute(self._database.upsert_value(tables.meta), row)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _enter_blocks(connection: sa.Connection, database: Database, topology: str) -> dict[By, int]:
    table = tables.blocks
    rows = [{"topology": topology, "by": by} for by in get_args(By)]
    connection.execute(database.insert(table).on_conflict_do_nothing(), rows)
    found = connection.execute(sa.select(table).where(table.c.topology == topology))
    return {row.by: row.id for row in found}


def _writable(value: Any) -> Any:
    """What somebody asked for may be quoted in an event, and PostgreSQL takes no NUL in a text."""
    return printable(value).replace("\0", "\ufffd") if isinstance(value, str) else value
