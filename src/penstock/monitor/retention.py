"""Short intervals become longer ones, and what is too old goes: statements on the tables of the statistics store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from penstock.monitor.latency import LatencySketch, merged
from penstock.monitor.metric import METRICS, Fold
from penstock.monitor.statistics_tables import events, series, statistics
from penstock.settings import Settings

HOUR = 3600.0
MINUTE_MS = 60_000


@dataclass(frozen=True)
class Level:
    """Statistics of one length of interval, and for how many seconds they are kept."""

    number: int
    #: Milliseconds; 0 for what was sampled, which is as long as it was sampled.
    width: int
    keep: float


def levels_of(settings: Settings) -> tuple[Level, ...]:
    """The finest first: sampling intervals, minutes, ten minutes."""
    return (
        Level(0, 0, settings.statistics_samples_hours * HOUR),
        Level(1, MINUTE_MS, settings.statistics_minutes_hours * HOUR),
        Level(2, 10 * MINUTE_MS, settings.statistics_days * 24 * HOUR),
    )


def roll_up(connection: sa.Connection, topology: str, level: Level, start: int, stop: int) -> None:
    """Make the rows of a level for [start, stop), which are whole intervals of it, from the level below."""
    finer = level.number - 1
    # Written out: to PostgreSQL two parameters are not the same expression, even if their values are.
    width = sa.literal_column(str(level.width), sa.BigInteger)
    bucket = (statistics.c.time - statistics.c.time % width).label("bucket")
    folded = {metric.name: _folded(metric.name) for metric in METRICS.values() if metric.fold in (Fold.SUM, Fold.MAX)}
    mine = _mine(topology, finer, start, stop)
    query = (
        sa.select(sa.literal(level.number), statistics.c.series, bucket, *folded.values())
        .select_from(mine)
        .group_by(statistics.c.series, bucket)
    )
    connection.execute(sa.insert(statistics).from_select(["level", "series", "time", *folded], query))
    _merge_sketches(connection, level, sa.select(statistics.c.series, bucket, statistics.c.latency).select_from(mine))


def prune(connection: sa.Connection, level: Level, of: Sequence[int], before: int) -> None:
    """Delete what is older of these series: one range of the index each."""
    statement = sa.delete(statistics).where(
        statistics.c.level == level.number,
        statistics.c.series == sa.bindparam("of_series"),
        statistics.c.time < sa.bindparam("before"),
    )
    if of:
        connection.execute(statement, [{"of_series": one, "before": before} for one in of])


def prune_events(connection: sa.Connection, topology: str, before: float) -> None:
    """The newest stays, so that ids go on from there."""
    newest = sa.select(sa.func.max(events.c.id)).where(events.c.topology == topology).scalar_subquery()
    old = sa.delete(events).where(events.c.topology == topology, events.c.time < before, events.c.id < newest)
    connection.execute(old)


def _mine(topology: str, level: int, start: int, stop: int) -> sa.Join:
    return sa.join(
        series,
        statistics,
        sa.and_(
            series.c.topology == topology,
            statistics.c.level == level,
            statistics.c.series == series.c.id,
            statistics.c.time >= start,
            statistics.c.time < stop,
        ),
    )


def _folded(name: str) -> sa.ColumnElement[object]:
    column = statistics.c[name]
    if METRICS[name].fold is Fold.MAX:
        return sa.func.max(column).label(name)
    # A sum with an unknown part is unknown; SQL's own would leave the part out.
    return sa.case((sa.func.count(column) == sa.func.count(), sa.func.sum(column))).label(name)


def _merge_sketches(connection: sa.Connection, level: Level, query: sa.Select[Any]) -> None:
    found: dict[tuple[int, int], list[LatencySketch]] = defaultdict(list)
    for one, bucket, text in connection.execute(query.where(statistics.c.latency.is_not(None))):
        found[one, bucket].append(LatencySketch.parse(text))
    if not found:
        return
    statement = (
        sa.update(statistics)
        .where(
            statistics.c.level == level.number,
            statistics.c.series == sa.bindparam("of_series"),
            statistics.c.time == sa.bindparam("of_time"),
        )
        .values(latency=sa.bindparam("merged"))
    )
    connection.execute(
        statement,
        [
            {"of_series": one, "of_time": bucket, "merged": merged(sketches).as_text()}
            for (one, bucket), sketches in found.items()
        ],
    )
