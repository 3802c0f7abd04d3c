"""Where rows go: what a user gives to `topology.sink`.

    topology.sink("out", sinks.parquet("/data/counts"), inputs=[counts])

Every kind of sink is one class in a file of its own: where rows go, and how they are written (see penstock.kinds).
Nothing here imports Spark.
"""

from __future__ import annotations

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
    "noop",
    "parquet",
]
