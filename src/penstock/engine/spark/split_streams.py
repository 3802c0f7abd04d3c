"""Trick 16: a streaming DataFrame whose rows lie where Spark's shuffle would send them, and that says so to Spark.

The batches of an ordinary placed source are descriptors, and a `mapInArrow` behind it reads the rows. Here the source
itself gives the rows: a `LogicalRDD` with a `HashPartitioning` by the key. Spark's planner then puts no Exchange in
front of a stateful operator with that key. Wherever the partitioning is not what an operator needs (another grouping),
the planner adds an Exchange, as it always does: nothing here has to know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.cluster.provider import Executor
from penstock.engine.spark.descriptor_frames import DescriptorFrames
from penstock.engine.spark.java_callbacks import Feed, PlacedSource
from penstock.engine.spark.java_values import STREAMING, java_of

_PHYSICAL = "org.apache.spark.sql.catalyst.plans.physical"


@dataclass(frozen=True)
class SplitRows:
    """The rows of a split stream: how they are read from descriptors, what they are, and what they are split by."""

    #: A function of record batches, as for `mapInArrow`.
    read: Any
    schema: StructType
    key: Sequence[str]


class SplitSource(PlacedSource):
    """A placed source of rows. Partition n has the rows whose key has the hash n, modulo the number of partitions."""

    def __init__(self, frames: DescriptorFrames, name: str, feed: Feed, spark: SparkSession, rows: SplitRows) -> None:
        super().__init__(frames, name, feed, spark._jsparkSession)
        self._spark = spark
        self._rows = rows
        java = frames.java
        self._logical_rdd = java.class_named("org.apache.spark.sql.execution.LogicalRDD")
        self._hash_partitioning = java.class_named(f"{_PHYSICAL}.HashPartitioning")
        self._unknown_partitioning = java.class_named(f"{_PHYSICAL}.UnknownPartitioning")
        self._schema = java.class_named("org.apache.spark.sql.types.DataType").fromJson(rows.schema.json())
        self._of_rows = dataset_of(spark)

    def schema(self) -> Any:
        return self._schema

    def _frame(self, partitions: Sequence[tuple[bytes, Executor | None]]) -> Any:
        java, session = self._frames.java, self._session
        descriptors = self._frames.of(session, partitions, streaming=False) if partitions else self._no_descriptors()
        rows = DataFrame(descriptors, self._spark).mapInArrow(self._rows.read, self._rows.schema)
        execution = rows._jdf.queryExecution()
        output = execution.analyzed().output()
        split = self._unknown_partitioning(0)
        if partitions:
            key = [output.apply(self._rows.schema.names.index(column)) for column in self._rows.key]
            split = self._hash_partitioning(java.seq(key), len(partitions))
        plan = self._logical_rdd(
            output, execution.toRdd(), split, java.seq([]), True, java.none, session, java.none, java.none, False
        )
        return self._of_rows(session, plan)

    def _no_descriptors(self) -> Any:
        return self._frames.empty(self._session, streaming=False)


def split_stream(frames: DescriptorFrames, spark: SparkSession, name: str, feed: Feed, rows: SplitRows) -> DataFrame:
    """A streaming DataFrame of rows in `spark`. Its feed has a descriptor for each task, in their order, or none."""
    java, session = frames.java, spark._jsparkSession
    relation = java.class_named(f"{STREAMING}.runtime.StreamingExecutionRelation")
    attributes = spark.createDataFrame([], rows.schema)._jdf.queryExecution().analyzed().output()
    unnamed = getattr(relation, "$lessinit$greater$default$4")()
    source = SplitSource(frames, name, feed, spark, rows)
    return DataFrame(dataset_of(spark)(session, relation(source, attributes, java.none, unnamed, session)), spark)


def dataset_of(spark: SparkSession) -> Any:
    """What makes a Java Dataset of a Java session and a logical plan."""
    # Found through its package: a companion object is not a class that JavaClass could name.
    return getattr(getattr(java_of(spark).org.apache.spark.sql.classic, "Dataset$"), "MODULE$").ofRows
