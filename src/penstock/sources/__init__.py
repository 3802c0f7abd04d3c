"""Where rows come from: what a user gives to `topology.source`.

    topology.source("lines", sources.rate(1000, sources.sentences()))
    topology.source("orders", sources.files("/data/orders", format="json", schema="id long, item string"))
    topology.source("clicks", sources.dataframe(read_kafka, schema="key string, value string"))

Nothing here imports Spark: these are values that say what to read; penstock.engine reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from os import fspath
from pathlib import Path
from typing import Any

from penstock.errors import Location
from penstock.sources.columns import columns
from penstock.sources.content import Content, events, generated, numbers, sentences
from penstock.sources.csv_rows import CsvOptions
from penstock.sources.mistakes import bad_source, check_whole
from penstock.sources.reading import FORMATS, check_types, unknown_format
from penstock.sources.schedule import Schedule, constant, stepped, trace
from penstock.sources.specs import DataframeSource, FileSource, RateSource, SocketReader
from penstock.topology.schema import Schema, parse_schema

__all__ = [
    "Content",
    "CsvOptions",
    "DataframeSource",
    "FileSource",
    "RateSource",
    "Schedule",
    "SocketReader",
    "columns",
    "constant",
    "dataframe",
    "events",
    "files",
    "generated",
    "numbers",
    "rate",
    "sentences",
    "socket",
    "stepped",
    "trace",
]


def rate(rows_per_second: float | Schedule, content: Content | None = None, rows: int | None = None) -> RateSource:
    """Made-up rows at a rate, or after a schedule: `constant`, `stepped` or `trace`. `content` says what they hold
    (numbers, unless given); after `rows` of them the source ends."""
    schedule = rows_per_second if isinstance(rows_per_second, Schedule) else constant(rows_per_second)
    made = numbers() if content is None else content
    if not (hasattr(made, "schema") and hasattr(made, "rows")):
        raise bad_source(
            f"the content of the source is a {type(made).__name__}.",
            "Use one of sources.sentences, numbers, events, columns, generated.",
        )
    if rows is not None:
        check_whole("rows", rows)
    return RateSource(schedule, made, rows)


def files(
    path: str | Path,
    *,
    format: str,
    schema: Schema,
    header: bool | None = None,
    separator: str | None = None,
    follow: bool = True,
) -> FileSource:
    """The rows of a file, or of all files in a folder: JSON lines ("json"), "csv" or "parquet".

    Columns that a file lacks are null, others that it has are ignored. For CSV, `header` says whether the first line
    names the columns (it does, unless said otherwise), and `separator` what stands between values (a comma).
    With `follow`, files that appear later are read too; without, the source ends with those that are there."""
    where = Location.of_caller()
    if format not in FORMATS:
        raise unknown_format(format)
    if not fspath(path):
        raise bad_source("the source has an empty path.", "Give a file or a folder.")
    if format != "csv" and (header is not None or separator is not None):
        raise bad_source(f"header and separator are given for {format} files.", 'They are for format="csv" only.')
    if separator is not None and (len(separator) != 1 or not separator.isascii() or separator in '"\r\n'):
        raise bad_source(f"the separator is {separator!r}.", 'Give one character, such as ";" or "\\t".')
    parsed = parse_schema(schema, where)
    check_types(format, parsed)
    options = CsvOptions(header is not False, separator or ",") if format == "csv" else None
    return FileSource(fspath(path), format, parsed, options, follow)


def dataframe(function: Callable[[Any], Any], schema: Schema) -> DataframeSource:
    """Anything Spark can stream: `function(spark)` returns a streaming DataFrame with this schema. For Kafka:

    lambda spark: spark.readStream.format("kafka").options(**options).load().selectExpr("CAST(value AS string)")"""
    where = Location.of_caller()
    if not callable(function):
        raise bad_source(f"the source's function is a {type(function).__name__}.", "Give a function of a SparkSession.")
    return DataframeSource(function, parse_schema(schema, where))


def socket(host: str, port: int) -> DataframeSource:
    """`value string`: lines of text from a socket, to try things out. Spark cannot replay them after a failure."""
    if not host or isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65_536:
        raise bad_source(f"{host}:{port} is not the address of a socket.", "Give a host and a port from 1 to 65535.")
    return DataframeSource(SocketReader(host, port), parse_schema("value string", Location.of_caller()))
