"""Where rows go: what a user gives to `topology.sink`.

    topology.sink("out", sinks.parquet("/data/counts"), inputs=[counts])

Nothing here imports Spark: these are values that say where to write; penstock.engine writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import fspath
from pathlib import Path
from typing import Any

from penstock.errors import Location, PenstockError
from penstock.sinks.specs import ArrowSink, ConsoleSink, FunctionSink, JdbcSink, NoopSink, ParquetSink

__all__ = [
    "ArrowSink",
    "ConsoleSink",
    "FunctionSink",
    "JdbcSink",
    "NoopSink",
    "ParquetSink",
    "arrow",
    "console",
    "function",
    "jdbc",
    "noop",
    "parquet",
]

#: What a Parquet sink can do about a folder that has files of others.
EXISTING = ("refuse", "append")


def noop() -> NoopSink:
    """Rows are counted and forgotten: to measure a topology, not a database."""
    return NoopSink()


def parquet(path: str | Path, existing: str = "refuse") -> ParquetSink:
    """Parquet files in a folder. A run that begins on a state of its own in a folder with files of others is refused,
    because nobody could tell their rows apart; with `existing="append"` it adds to them. A run that goes on from its
    state goes on in its folder either way."""
    if not fspath(path):
        raise _bad_sink("the sink has an empty path.", "Give a folder.")
    if existing not in EXISTING:
        raise _bad_sink(f"existing is {existing!r}.", f"Give {' or '.join(map(repr, EXISTING))}.")
    return ParquetSink(fspath(path), existing)


def console(rows: int = 20, every: int = 1) -> ConsoleSink:
    """Prints up to `rows` rows of every batch, or of every so many-th batch."""
    for name, value in (("rows", rows), ("every", every)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise _bad_sink(f"{name} is {value!r}.", "Give a whole number of at least 1.")
    return ConsoleSink(rows, every)


def jdbc(
    url: str, table: str, properties: Mapping[str, str] | None = None, batch_column: str | None = None
) -> JdbcSink:
    """Rows are appended to a table of a database, through Spark's JDBC writer and the `properties` it knows (user,
    password, driver, ...). With a `batch_column` each row carries a number there that no other sink's batch has, and a
    batch that is run again first deletes what it wrote. Without, such rows may come twice."""
    if not url.startswith("jdbc:"):
        raise _bad_sink(
            "the URL of the database does not start with jdbc:.", 'Give one such as "jdbc:postgresql://host/db".'
        )
    if not table:
        raise _bad_sink("the sink names no table.", "Give the name of a table.")
    if batch_column is not None and not batch_column.isidentifier():
        raise _bad_sink(f'the batch column is called "{batch_column}".', "Use letters, digits and underscores.")
    return JdbcSink(url, table, dict(properties or {}), batch_column)


def arrow(function: Callable[[Any], Any]) -> ArrowSink:
    """The user's own, on the sink's slots: `function(record_batch)` for rows as they come, in as many instances as the
    sink has; what it returns is not looked at. A batch that is run again after a failure calls it again."""
    if not callable(function):
        raise _bad_sink(f"the sink's function is a {type(function).__name__}.", "Give a function of a RecordBatch.")
    return ArrowSink(function)


def function(function: Callable[[Any, int], Any]) -> FunctionSink:
    """The user's own: `function(dataframe, batch_id)` for every batch, as in Spark's foreachBatch. A batch that is run
    again after a failure has the same id, by which the function can tell that it did its work already."""
    if not callable(function):
        raise _bad_sink(
            f"the sink's function is a {type(function).__name__}.", "Give a function of a DataFrame and a batch id."
        )
    return FunctionSink(function)


def _bad_sink(message: str, hint: str) -> PenstockError:
    return PenstockError("BAD_SINK", message, hint, Location.of_caller())
