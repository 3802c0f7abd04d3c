"""Trick 16: a streaming DataFrame whose rows lie where Spark's shuffle would send them, and that says so to Spark.

The batches of an ordinary placed source are descriptors, and a `mapInArrow` behind it reads the rows. Here the source
itself gives the rows: a `LogicalRDD` with a `HashPartitioning` by the key. Spark's planner then puts no Exchange in
front of a stateful operator with that key. Wherever the partitioning is not what an operator needs (another grouping),
the planner adds an Exchange, as it always does: nothing here has to know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.cluster.provider import Executor
from penstock.engine.spark.descriptor_frames import DescriptorFrames
from penstock.engine.spark.java_callbacks import Feed, PlacedSource
from penstock.engine.spark.java_values import STREAMING, java_of

_EXECUTION = "org.apache.spark.sql.execution"
_PHYSICAL = "org.apache.spark.sql.catalyst.plans.physical"


@dataclass(frozen=True)
class SplitRows:
    """The rows of a split stream: how they are read from descriptors, what they are, and what they are split by."""

    #: A function of record batches, as for `mapInArrow`.
    read: Any
    schema: StructType
    key: Sequence[str]


class SplitFrames:
    """Makes DataFrames of rows that say how they are split, in one session."""

    def __init__(self, frames: DescriptorFrames, spark: SparkSession, schema: StructType) -> None:
        self._frames = frames
        self._spark = spark
        self._schema = schema
        java = frames.java
        self._logical_rdd = java.class_named(f"{_EXECUTION}.LogicalRDD")
        self._scan = java.class_named(f"{_EXECUTION}.RDDScanExec")
        self._hash_partitioning = java.class_named(f"{_PHYSICAL}.HashPartitioning")
        self._unknown_partitioning = java.class_named(f"{_PHYSICAL}.UnknownPartitioning")
        self._of_rows = dataset_of(spark)
        self._nothing = java.seq([])
        #: By number of partitions: how rows are split by the key. The columns are the same in all batches.
        self._splits: dict[int, Any] = {}

    def reading(self, read: Any, key: Sequence[str]) -> Callable[[Sequence[tuple[bytes, Executor | None]]], Any]:
        """What makes a Java DataFrame of the rows that a function reads from descriptors. Partition n has the rows
        whose key has the hash n, modulo the number of partitions.

        The step that reads is planned once, and gets other descriptors for every batch: planning it again took longer
        than all other calls for a batch together."""
        frames, session = self._frames, self._spark._jsparkSession
        none = DataFrame(frames.empty(session, streaming=False), self._spark).mapInArrow(read, self._schema)
        execution = none._jdf.queryExecution()
        output, step = execution.analyzed().output(), execution.sparkPlan()
        descriptors = step.children().head().output()

        def batch(partitions: Sequence[tuple[bytes, Executor | None]]) -> Any:
            rows = frames.rows(partitions) if partitions else frames.no_rows()
            unknown = self._unknown_partitioning(len(partitions))
            scan = self._scan(descriptors, rows, "descriptors", unknown, self._nothing, frames.java.none)
            read_rows = step.withNewChildren(frames.java.seq([scan])).execute()
            return self._made(output, read_rows, key, len(partitions))

        return batch

    def of_no_rows(self, key: Sequence[str], tasks: int) -> DataFrame:
        """A stream without rows, to be looked at and never run."""
        frame = self._made(self.attributes(), self._frames.no_rows(), key, tasks)
        return DataFrame(frame, self._spark)

    def attributes(self) -> Any:
        """The columns of the rows, as Java has them: other ones at every call."""
        return self._spark.createDataFrame([], self._schema)._jdf.queryExecution().analyzed().output()

    def _made(self, output: Any, rows: Any, key: Sequence[str], partitions: int) -> Any:
        java, session = self._frames.java, self._spark._jsparkSession
        split = self._splits.get(partitions)
        if split is None:
            split = self._unknown_partitioning(partitions)
            if key and partitions:
                columns = [output.apply(self._schema.names.index(column)) for column in key]
                split = self._hash_partitioning(java.seq(columns), partitions)
            self._splits[partitions] = split
        plan = self._logical_rdd(
            output, rows, split, self._nothing, True, java.none, session, java.none, java.none, False
        )
        return self._of_rows(session, plan)


class SplitSource(PlacedSource):
    """A placed source of rows: partition n of every batch is task n."""

    def __init__(self, frames: DescriptorFrames, name: str, feed: Feed, spark: SparkSession, rows: SplitRows) -> None:
        super().__init__(frames, name, feed, spark._jsparkSession)
        self._batch = SplitFrames(frames, spark, rows.schema).reading(rows.read, rows.key)
        self._schema = frames.java.class_named("org.apache.spark.sql.types.DataType").fromJson(rows.schema.json())

    def schema(self) -> Any:
        return self._schema

    def _frame(self, partitions: Sequence[tuple[bytes, Executor | None]]) -> Any:
        return self._batch(partitions)


def split_stream(frames: DescriptorFrames, spark: SparkSession, name: str, feed: Feed, rows: SplitRows) -> DataFrame:
    """A streaming DataFrame of rows in `spark`. Its feed has a descriptor for each task, in their order, or none."""
    java, session = frames.java, spark._jsparkSession
    relation = java.class_named(f"{STREAMING}.runtime.StreamingExecutionRelation")
    attributes = SplitFrames(frames, spark, rows.schema).attributes()
    unnamed = getattr(relation, "$lessinit$greater$default$4")()
    source = SplitSource(frames, name, feed, spark, rows)
    return DataFrame(dataset_of(spark)(session, relation(source, attributes, java.none, unnamed, session)), spark)


def dataset_of(spark: SparkSession) -> Any:
    """What makes a Java Dataset of a Java session and a logical plan."""
    # Found through its package: a companion object is not a class that JavaClass could name.
    return getattr(getattr(java_of(spark).org.apache.spark.sql.classic, "Dataset$"), "MODULE$").ofRows
