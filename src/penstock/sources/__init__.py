"""Where rows come from: what a user gives to `topology.source`.

    topology.source("lines", sources.rate(1000, sources.sentences()))
    topology.source("orders", sources.files("/data/orders", format="json", schema="id long, item string"))
    topology.source("clicks", sources.kafka("broker:9092", "clicks", value="json", schema="user long, page string"))

Every kind of source is one class in a file of its own, which says what it reads, how far it is, and how a range is read
(see penstock.kinds). Nothing here imports Spark.
"""

from __future__ import annotations

from typing import Any

from penstock.kinds import SourceKind
from penstock.kinds.registered import SOURCES, registered
from penstock.sources.columns import columns
from penstock.sources.content import Content, events, generated, numbers, sentences
from penstock.sources.csv_rows import CsvOptions
from penstock.sources.dataframe_source import DataframeSource, SocketReader, dataframe, socket
from penstock.sources.file_source import FileSource, files
from penstock.sources.kafka_source import KafkaSource, kafka
from penstock.sources.rate_source import RateSource, rate
from penstock.sources.redis_source import RedisSource, redis
from penstock.sources.schedule import Schedule, constant, stepped, trace

__all__ = [
    "Content",
    "CsvOptions",
    "DataframeSource",
    "FileSource",
    "KafkaSource",
    "RateSource",
    "RedisSource",
    "Schedule",
    "SocketReader",
    "columns",
    "constant",
    "dataframe",
    "events",
    "files",
    "generated",
    "kafka",
    "named",
    "numbers",
    "rate",
    "redis",
    "sentences",
    "socket",
    "stepped",
    "trace",
]


def named(name: str, *args: Any, **options: Any) -> SourceKind:
    """A source of the kind with this name: one of Penstock's own, or one that another package brings as an entry point
    of the group `penstock.sources`. The other arguments are those of the kind."""
    made: SourceKind = registered(SOURCES, name, SourceKind)(*args, **options)
    return made
