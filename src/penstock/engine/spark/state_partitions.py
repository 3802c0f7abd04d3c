"""The partitions of a query's state as Spark's state store coordinator knows them, and another number of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.engine.spark.java_errors import SPARK_ERRORS
from penstock.engine.spark.java_values import STREAMING, JavaValues


@dataclass(frozen=True)
class StatePartition:
    """One store of one task: a query may have several stateful operators, and a join several stores."""

    #: The state folder of the query's checkpoint.
    checkpoint: str
    #: The number of the stateful operator in the query.
    operator: int
    partition: int
    #: The name of the store.
    name: str

    def in_java(self, java: JavaValues, query: StreamingQuery) -> Any:
        """The identity by which Spark's coordinator knows this partition in this run of the query."""
        identity = java.class_named(f"{STREAMING}.state.StateStoreId")(
            self.checkpoint, self.operator, self.partition, self.name
        )
        run = java.class_named("java.util.UUID").fromString(str(query.runId))
        return java.class_named(f"{STREAMING}.state.StateStoreProviderId")(identity, run)


def state_folder(query: StreamingQuery) -> str:
    """The state folder of a query's checkpoint, spelt as Spark spells it in the identity of a state partition."""
    return f"{query._jsq.streamingQuery().resolvedCheckpointRoot()}/state"


def repartition_state(spark: SparkSession, checkpoint: str, partitions: int) -> None:
    """Have Spark rewrite the state in a stopped query's checkpoint. State that has this number of partitions already
    is left as it is."""
    try:
        spark._streamingCheckpointManager.repartition(checkpoint, partitions)
    except SPARK_ERRORS as error:  # not all of Spark's errors have a class in Python
        if "SHUFFLE_PARTITIONS_ALREADY_MATCH" not in str(error):
            raise
