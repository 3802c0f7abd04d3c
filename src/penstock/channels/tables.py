"""The catalog's tables. Several topologies may share a database, so every row carries the name of its topology."""

from __future__ import annotations

import sqlalchemy as sa

#: Raise it with every change of the tables; a catalog with a higher number is left alone. One with a lower number gets
#: the tables that it lacks, so a new version may add tables only, or must say how the old ones are changed.
#: 1: the first. 2: `drivers`; manifests say how far a batch read (`ends`). 3: manifests leave out what is as usual.
SCHEMA_VERSION = 3

tables = sa.MetaData()


def _name(column: str) -> sa.Column[str]:
    return sa.Column(column, sa.Text, primary_key=True)


def _number(column: str, *, key: bool = False) -> sa.Column[int]:
    return sa.Column(column, sa.BigInteger, primary_key=key, nullable=False, autoincrement=False)


#: The topology "" holds what is true of the whole database: the version of the tables.
meta = sa.Table(
    "penstock_meta",
    tables,
    _name("topology"),
    _name("key"),
    sa.Column("value", sa.Text, nullable=False),
)

#: How much was ever published. It outlives the segments: numbering goes on when all of them are deleted.
channels = sa.Table(
    "penstock_channels",
    tables,
    _name("topology"),
    _name("channel"),
    _number("end_rows"),
    _number("end_bytes"),
)

segments = sa.Table(
    "penstock_segments",
    tables,
    _name("topology"),
    _name("channel"),
    _number("first_row", key=True),
    _number("rows"),
    _number("bytes"),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("operator", sa.Text, nullable=False),
    _number("batch"),
    sa.Column("slot", sa.Text, nullable=False),
    sa.Column("born_from", sa.Double, nullable=False),
    sa.Column("born_to", sa.Double, nullable=False),
)

batches = sa.Table(
    "penstock_batches",
    tables,
    _name("topology"),
    _name("operator"),
    _number("batch", key=True),
    sa.Column("published_at", sa.Double, nullable=False),
    sa.Column("manifest", sa.Text, nullable=False),
)

positions = sa.Table(
    "penstock_positions",
    tables,
    _name("topology"),
    _name("operator"),
    _name("channel"),
    _number("read_rows"),
    _number("committed_rows"),
)

#: One row a topology: which driver writes, in which epoch, and how often anybody has written (see fence.py).
drivers = sa.Table(
    "penstock_drivers",
    tables,
    _name("topology"),
    _number("epoch"),
    sa.Column("driver", sa.Text, nullable=False),
    sa.Column("since", sa.Double, nullable=False),
    _number("writes"),
)
