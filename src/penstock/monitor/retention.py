"""Short intervals become longer ones, and what is too old goes: statements on the tables of the statistics store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from penstock.monitor.latency import LatencySketch, merged
from penstock.monitor.metric import METRICS, Fold
from penstock.monitor.statistics_tables import decisions, events, series, statistics
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


def roll_up(connection: sa.Connection, blocks: Sequence[int], level: Level, start: int, stop: int) -> None:
    """Make the rows of a level for [start, stop), which are whole intervals of it, from the level below."""
    # Written out: to PostgreSQL two parameters are not the same expression, even if their values are.
    width = sa.literal_column(str(level.width), sa.BigInteger)
    table = statistics.c
    bucket = (table.time - table.time % width).label("bucket")
    finer = sa.and_(table.level == level.number - 1, table.block.in_(blocks), table.time >= start, table.time < stop)
    folded = {metric.name: _folded(metric.name) for metric in METRICS.values() if metric.fold in (Fold.SUM, Fold.MAX)}
    query = (
        sa.select(sa.literal(level.number), table.block, bucket, table.series, *folded.values())
        .where(finer)
        .group_by(table.block, bucket, table.series)
    )
    connection.execute(sa.insert(statistics).from_select(["level", "block", "time", "series", *folded], query))
    with_sketch = sa.and_(finer, table.latency.is_not(None))
    _merge_sketches(connection, level, sa.select(table.block, bucket, table.series, table.latency).where(with_sketch))


def prune(connection: sa.Connection, blocks: Sequence[int], level: Level, before: int) -> None:
    """Delete what is older."""
    table = statistics.c
    old = sa.and_(table.level == level.number, table.block.in_(blocks), table.time < before)
    connection.execute(sa.delete(statistics).where(old))


def prune_series(connection: sa.Connection, blocks: Sequence[int]) -> None:
    """Delete the names of series without any figure: slots that have been gone for longer than anything is kept."""
    used = sa.select(statistics.c.series).where(statistics.c.block.in_(blocks)).distinct()
    connection.execute(sa.delete(series).where(series.c.block.in_(blocks), series.c.id.not_in(used)))


def prune_events(connection: sa.Connection, topology: str, before: float) -> None:
    """The newest stays, so that ids go on from there."""
    newest = sa.select(sa.func.max(events.c.id)).where(events.c.topology == topology).scalar_subquery()
    old = sa.delete(events).where(events.c.topology == topology, events.c.time < before, events.c.id < newest)
    connection.execute(old)


def prune_decisions(connection: sa.Connection, topology: str, before: float) -> None:
    """The newest stays, so that ids go on from there."""
    newest = sa.select(sa.func.max(decisions.c.id)).where(decisions.c.topology == topology).scalar_subquery()
    old = sa.delete(decisions).where(
        decisions.c.topology == topology, decisions.c.time < before, decisions.c.id < newest
    )
    connection.execute(old)


def _folded(name: str) -> sa.ColumnElement[object]:
    column = statistics.c[name]
    if METRICS[name].fold is Fold.MAX:
        return sa.func.max(column).label(name)
    # A sum with an unknown part is unknown; SQL's own would leave the part out.
    return sa.case((sa.func.count(column) == sa.func.count(), sa.func.sum(column))).label(name)


def _merge_sketches(connection: sa.Connection, level: Level, query: sa.Select[Any]) -> None:
    found: dict[tuple[int, int, int], list[LatencySketch]] = defaultdict(list)
    for block, bucket, one, text in connection.execute(query):
        found[block, bucket, one].append(LatencySketch.parse(text))
    if not found:
        return
    table = statistics.c
    statement = (
        sa.update(statistics)
        .where(
            table.level == level.number,
            table.block == sa.bindparam("of_block"),
            table.time == sa.bindparam("of_time"),
            table.series == sa.bindparam("of_series"),
        )
        .values(latency=sa.bindparam("merged"))
    )
    connection.execute(
        statement,
        [
            {"of_block": block, "of_time": bucket, "of_series": one, "merged": merged(sketches).as_text()}
            for (block, bucket, one), sketches in found.items()
        ],
    )
