"""The statistics store's tables. Several topologies may share a database."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from penstock.monitor.metric import METRICS, Fold, Metric

#: Raise it with every change of the tables, hence of the stored metrics; a store with a higher number is left alone.
SCHEMA_VERSION = 5

tables = sa.MetaData()


def _name(column: str, *, key: bool = False) -> sa.Column[str]:
    return sa.Column(column, sa.Text, primary_key=key, nullable=False)


def _number(column: str, *, key: bool = False) -> sa.Column[int]:
    return sa.Column(column, sa.BigInteger, primary_key=key, nullable=False, autoincrement=False)


def _metric(metric: Metric) -> sa.Column[Any]:
    if metric.fold is Fold.MERGE:
        return sa.Column(metric.name, sa.Text)
    return sa.Column(metric.name, sa.Double if metric.unit == "s" else sa.BigInteger)


#: The topology "" holds what is true of the whole database: the version of the tables.
meta = sa.Table("penstock_statistics_meta", tables, _name("topology", key=True), _name("key", key=True), _name("value"))

#: What is read together: all operators, all slots, all streams, or all machines of one topology.
blocks = sa.Table(
    "penstock_blocks",
    tables,
    sa.Column("id", sa.Integer, primary_key=True),
    _name("topology"),
    _name("by"),
    sa.UniqueConstraint("topology", "by"),
)

#: Who statistics are about. An empty slot is all slots, an empty stream all streams. A machine stands under `slot`, and
#: has no operator.
series = sa.Table(
    "penstock_series",
    tables,
    sa.Column("id", sa.Integer, primary_key=True),
    _number("block"),
    _name("operator"),
    _name("slot"),
    _name("stream"),
    sa.UniqueConstraint("block", "operator", "slot", "stream"),
)

#: One row a series, level and interval; `time` is the interval's start in milliseconds since the epoch, and level 0 is
#: what was sampled. In SQLite the rows are in the index itself. Its order is that of time, so that writing appends,
#: deleting cuts off, and a day of a block is read in one go.
statistics = sa.Table(
    "penstock_statistics",
    tables,
    sa.Column("level", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("block", sa.Integer, primary_key=True, autoincrement=False),
    _number("time", key=True),
    sa.Column("series", sa.Integer, primary_key=True, autoincrement=False),
    *(_metric(metric) for metric in METRICS.values() if metric.stored),
    sqlite_with_rowid=False,
)

events = sa.Table(
    "penstock_events",
    tables,
    _name("topology", key=True),
    _number("id", key=True),
    sa.Column("time", sa.Double, nullable=False),
    _name("kind"),
    _name("subject"),
    _name("cause"),
    _name("reason"),
    #: JSON.
    _name("fields"),
    sqlite_with_rowid=False,
)

#: What a controller or a strategy decided, and what it turned out to be.
decisions = sa.Table(
    "penstock_decisions",
    tables,
    _name("topology", key=True),
    _number("id", key=True),
    sa.Column("time", sa.Double, nullable=False),
    _name("verdict"),
    #: JSON.
    _name("record"),
    sqlite_with_rowid=False,
)


def add_missing_metrics(connection: sa.Connection) -> None:
    """A store of an older Penstock gets columns for the metrics that have come since: what it has stays, and had not
    been measured."""
    there = {column["name"] for column in sa.inspect(connection).get_columns(statistics.name)}
    missing = [column for column in statistics.c if column.name not in there]
    # Another topology may be adding them at the same time; SQLite's have a file each.
    unless = "" if connection.dialect.name == "sqlite" else "IF NOT EXISTS "
    for column in missing:
        what = sa.schema.CreateColumn(column).compile(dialect=connection.dialect)
        connection.execute(sa.text(f"ALTER TABLE {statistics.name} ADD COLUMN {unless}{what}"))
