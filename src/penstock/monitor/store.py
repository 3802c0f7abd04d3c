"""The statistics store: what a topology did, by sampling interval, minute and ten minutes; and what happened to it.

It is a record for people and dashboards: strategies read the snapshot. Losing it loses no row and changes no decision.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from penstock.channels.database import STATISTICS, Database, Retries
from penstock.cluster.model import Placement
from penstock.monitor import statistics_tables as tables
from penstock.monitor.events import Event, EventKind
from penstock.monitor.history import HistoryQuery, SeriesHistory, answer
from penstock.monitor.intervals import Interval
from penstock.monitor.retention import Level, levels_of, prune, prune_events, roll_up
from penstock.monitor.series import Figures, SeriesKey, figures_of
from penstock.settings import Settings
from penstock.topology.definition import TopologyDefinition

_COLUMNS = tuple(column.name for column in tables.statistics.c if not column.primary_key)


class StatisticsStore:
    """One topology's share of a statistics database. Any thread may call it; one writes."""

    def __init__(self, database: Database, topology: str, settings: Settings) -> None:
        self._database = database
        self._topology = topology
        self._levels = levels_of(settings)
        self._sample_ms = settings.sample_seconds * 1000
        self._lock = threading.Lock()
        self._ids: dict[SeriesKey, int] = {}
        #: Up to where everything that was sampled is written, in milliseconds; 0 until this process has written.
        self._written_to = 0

    @staticmethod
    def open(
        url: str, topology: str, settings: Settings | None = None, retries: Retries | None = None
    ) -> StatisticsStore:
        """Open the store at an SQLite or PostgreSQL URL, and create its tables if they are missing."""
        database = Database.open(url, retries=retries, content=STATISTICS)
        database.prepare(tables.meta, tables.SCHEMA_VERSION)
        return StatisticsStore(database, topology, settings or Settings())

    def __repr__(self) -> str:
        return f"StatisticsStore({self._database.shown}, {self._topology})"

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

    def write_rows(self, rows: Sequence[tuple[SeriesKey, int, Figures]], complete_to: float) -> None:
        """Figures by series and milliseconds since the epoch; all there will be up to `complete_to`."""

        def work(connection: sa.Connection) -> None:
            ids = self._series(connection, {key for key, _, _ in rows})
            values = [
                {"level": 0, "series": ids[key], "time": time, **dict.fromkeys(_COLUMNS), **figures}
                for key, time, figures in rows
            ]
            connection.execute(self._database.insert(tables.statistics).on_conflict_do_nothing(), values)

        if rows:
            self._database.run(work)
        self._written_to = max(self._written_to, _milliseconds(complete_to))

    def keep_house(self, now: float) -> None:
        """Roll up what is complete, then delete what was kept for long enough; nothing goes before it is rolled up."""
        self._database.run(lambda connection: self._keep_house(connection, now))

    def history(self, query: HistoryQuery) -> list[SeriesHistory]:
        """In the finest intervals that give no more than the points asked for and are still kept. What is too young to
        be rolled up comes in finer ones."""

        def work(connection: sa.Connection) -> list[tuple[SeriesKey, int, tuple[Any, ...]]]:
            rows: list[tuple[SeriesKey, int, tuple[Any, ...]]] = []
            start = _milliseconds(query.since)
            for level in reversed(self._levels[: self._level_for(connection, query) + 1]):
                stop = _milliseconds(query.until)
                if level.width:
                    start -= start % level.width
                    stop = min(stop, self._mark(connection, "rolled", level))
                rows += self._rows(connection, query, level, start, stop)
                start = max(start, stop)
            return rows

        return answer(query, self._database.run(work))

    # Events

    def write_events(self, events: Sequence[Event]) -> None:
        rows = [
            {**event.as_json(), "topology": self._topology, "fields": json.dumps(dict(event.fields), default=str)}
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

    # Parts of the transactions above

    def _keep_house(self, connection: sa.Connection, now: float) -> None:
        complete_to = self._written_to
        for level in self._levels[1:]:
            start, stop = self._mark(connection, "rolled", level), complete_to - complete_to % level.width
            if stop > start:
                roll_up(connection, self._topology, level, start, stop)
                self._set_mark(connection, "rolled", level, stop)
            complete_to = max(start, stop)
        mine = self._my_series(connection)
        for level, coarser in zip(self._levels, (*self._levels[1:], None), strict=True):
            before = _milliseconds(now - level.keep)
            if coarser is not None:
                before = min(before, self._mark(connection, "rolled", coarser))
            if before > self._mark(connection, "pruned", level):
                prune(connection, level, mine, before)
                self._set_mark(connection, "pruned", level, before)
        prune_events(connection, self._topology, now - self._levels[-1].keep)

    def _level_for(self, connection: sa.Connection, query: HistoryQuery) -> int:
        milliseconds = max(query.until - query.since, 0.0) * 1000
        for level in self._levels[:-1]:
            points = milliseconds / (level.width or self._sample_ms)
            if points <= query.points and self._mark(connection, "pruned", level) <= _milliseconds(query.since):
                return level.number
        return self._levels[-1].number

    def _rows(
        self, connection: sa.Connection, query: HistoryQuery, level: Level, start: int, stop: int
    ) -> Iterable[tuple[SeriesKey, int, tuple[Any, ...]]]:
        series, statistics = tables.series, tables.statistics
        whose = [series.c.topology == self._topology]
        whose += [series.c.operator == query.operator] if query.operator is not None else []
        whose.append(series.c.slot != "" if query.by == "slot" else series.c.slot == "")
        whose.append(series.c.stream != "" if query.by == "stream" else series.c.stream == "")
        found = connection.execute(
            sa.select(series.c.id, series.c.operator, series.c.slot, series.c.stream).where(*whose)
        )
        keys = {row.id: SeriesKey(row.operator, row.slot, row.stream) for row in found}
        statement = (
            sa.select(statistics.c.time, *(statistics.c[name] for name in query.columns))
            .where(statistics.c.level == level.number, statistics.c.series == sa.bindparam("of_series"))
            .where(statistics.c.time >= start, statistics.c.time < stop)
            .order_by(statistics.c.time)
        )
        for one, key in keys.items():
            for row in connection.execute(statement, {"of_series": one}):
                yield key, row[0], row[1:]

    def _series(self, connection: sa.Connection, keys: set[SeriesKey]) -> dict[SeriesKey, int]:
        """The ids of series; those that are new are entered."""
        with self._lock:
            known = dict(self._ids)
        missing = sorted(keys - known.keys())
        if not missing:
            return known
        table = tables.series
        rows = [{"topology": self._topology, **vars(key)} for key in missing]
        connection.execute(self._database.insert(table).on_conflict_do_nothing(), rows)
        found = connection.execute(sa.select(table).where(table.c.topology == self._topology))
        known = {SeriesKey(row.operator, row.slot, row.stream): row.id for row in found}
        with self._lock:
            self._ids = known
        return known

    def _my_series(self, connection: sa.Connection) -> list[int]:
        table = tables.series
        return list(connection.scalars(sa.select(table.c.id).where(table.c.topology == self._topology)))

    def _mark(self, connection: sa.Connection, what: str, level: Level) -> int:
        """Up to where a level is rolled up, or deleted."""
        table = tables.meta
        query = sa.select(table.c.value).where(
            table.c.topology == self._topology, table.c.key == f"{what}:{level.number}"
        )
        return int(connection.scalar(query) or 0)

    def _set_mark(self, connection: sa.Connection, what: str, level: Level, to: int) -> None:
        row = {"topology": self._topology, "key": f"{what}:{level.number}", "value": str(to)}
        statement = self._database.insert(tables.meta).values(row)
        upsert = statement.on_conflict_do_update(
            index_elements=["topology", "key"], set_={"value": statement.excluded.value}
        )
        connection.execute(upsert)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
