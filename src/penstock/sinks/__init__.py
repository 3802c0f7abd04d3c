"""Where rows go: what a user gives to `topology.sink`.

    topology.sink("out", sinks.parquet("/data/counts"), inputs=[counts])

Every kind of sink is one class in a file of its own, which says where rows go and how they are written (see
penstock.kinds).
Nothing here imports Spark.
"""

from __future__ import annotations

from typing import Any

from penstock.kinds import SinkKind
from penstock.kinds.registered import SINKS, registered
from penstock.sinks.arrow_sink import ArrowSink, arrow
from penstock.sinks.console_sink import ConsoleSink, console
from penstock.sinks.function_sink import FunctionSink, function
from penstock.sinks.jdbc_sink import JdbcSink, jdbc
from penstock.sinks.kafka_sink import KafkaSink, kafka
from penstock.sinks.noop_sink import NoopSink, noop
from penstock.sinks.parquet_sink import ParquetSink, parquet

__all__ = [
    "ArrowSink",
    "ConsoleSink",
    "FunctionSink",
    "JdbcSink",
    "KafkaSink",
    "NoopSink",
    "ParquetSink",
    "arrow",
    "console",
    "function",
    "jdbc",
    "kafka",
    "named",
    "noop",
    "parquet",
]


def named(name: str, *args: Any, **options: Any) -> SinkKind:
    """A sink of the kind with this name: one of Penstock's own, or one that another package brings as an entry point
    of the group `penstock.sinks`. The other arguments are those of the kind."""
    made: SinkKind = registered(SINKS, name, SinkKind)(*args, **options)
    return made
