"""A small Spark in this process for DataFrame functions, started when the first of them is to run.

A function gets what it gets in production: streaming DataFrames. All rows of its inputs are there when the query
starts; it works them off in one micro-batch, in the operator's output mode, then lets the watermark pass, and ends. So
an operator with output_mode="update" gives one row for each key, and a window with a watermark gives what is final.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.cluster.local import LocalCluster
from penstock.engine.query.rehearsal import frame_of, input_groups
from penstock.engine.spark.failures import named_error, told_once
from penstock.engine.spark.session import open_session
from penstock.settings import Settings
from penstock.topology.definition import Keyed, Map, Operator, Sink, Stream, TopologyDefinition

#: The threads of its local master, and how many tasks a keyed operator's state has at most: rows are few.
THREADS = 2


def session() -> SparkSession:
    """The Spark session that runs in this process already, or else a small local one that ends with the process."""
    running = SparkSession.getActiveSession()
    if running is None:
        provider = LocalCluster(slots=1, cores=1, task_threads=THREADS)
        provider.start()
        running = open_session("penstock-testing", provider, Settings(), (), {})
        atexit.register(stop_spark)
    return running


def stop_spark() -> None:
    """End the Spark session of this process, whoever started it. The next test that needs Spark starts it again."""
    running = SparkSession.getActiveSession()
    if running is not None:
        running.stop()


@told_once()
def rows_through_spark(
    definition: TopologyDefinition,
    operator: Operator,
    rows: Callable[[tuple[Stream, ...]], pa.Table],
    folder: Path,
) -> list[pa.RecordBatch]:
    """What the DataFrame function of an operator makes of the rows of its inputs."""
    if not isinstance(operator, Map | Keyed):
        raise TypeError(f'"{operator.name}" has no DataFrame function')
    own = session().newSession()  # functions may name their views alike
    own.conf.set("spark.sql.session.timeZone", "UTC")
    if isinstance(operator, Keyed):
        own.conf.set("spark.sql.shuffle.partitions", str(min(operator.tasks, THREADS)))
    groups = input_groups(definition, operator)
    frames = [_stream(own, rows(tuple(group)), folder / str(index)) for index, group in enumerate(groups)]
    frame = frame_of(operator, operator.function, frames)
    name = f"penstock_testing_{uuid4().hex}"
    writer = frame.writeStream.format("memory").queryName(name)
    writer = writer.outputMode(operator.output_mode if isinstance(operator, Keyed) else "append")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    try:
        query = writer.start()
        query.awaitTermination()
        batches: list[pa.RecordBatch] = own.table(name).toArrow().to_batches()
        own.catalog.dropTempView(name)
    except Exception as error:
        raise named_error(operator, error) from error
    return batches


def call_with_frame(sink: Sink, function: Callable[[Any, int], Any], table: pa.Table) -> None:
    """Call the function of a function sink as for one batch: with its rows as a DataFrame, and the batch id 0."""
    own = session().newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        function(own.createDataFrame(table), 0)
    except Exception as error:
        raise named_error(sink, error) from error


def _stream(own: SparkSession, table: pa.Table, folder: Path) -> Any:
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "rows.parquet")
    return own.readStream.schema(from_arrow_schema(table.schema)).parquet(str(folder))
