"""DataFrames of descriptors as Java has them: one row a partition, each with the executor that shall run it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql.types import BinaryType, StructField, StructType

from penstock.cluster.provider import Executor
from penstock.engine.spark.callback_connections import CallbackConnections
from penstock.engine.spark.java_values import STREAMING, JavaValues

DESCRIPTOR = StructType([StructField("descriptor", BinaryType())])
#: How many executors' names are kept as Java values: of more executors than there are at a time.
MOST_PLACES = 1000
_CATALYST = "org.apache.spark.sql.catalyst"


class DescriptorFrames:
    """Makes the DataFrames, and the offsets, of placed streams."""

    def __init__(self, java: JavaValues) -> None:
        self.java = java
        #: Over which Java calls the streams' sources.
        self.connections = CallbackConnections()
        self._object = java.class_named("java.lang.Object")
        self._row = java.class_named(f"{_CATALYST}.expressions.GenericInternalRow")
        self._offset = java.class_named(f"{STREAMING}.runtime.SerializedOffset")
        self._row_tag = java.class_named("scala.reflect.ClassTag").apply(
            java.class_named("java.lang.Class").forName(f"{_CATALYST}.InternalRow")
        )
        #: The schema of every such DataFrame, as Java has it.
        self.schema: Any = java.class_named("org.apache.spark.sql.types.DataType").fromJson(DESCRIPTOR.json())
        #: Where a partition is to run that may run on any executor.
        self.anywhere: Any = java.seq([])
        self._places: dict[Executor, Any] = {}

    def of(self, session: Any, partitions: Sequence[tuple[bytes, Executor | None]], streaming: bool = True) -> Any:
        """A DataFrame of one row a partition, each with its preferred executor, in a Java session."""
        return session.internalCreateDataFrame(self.rows(partitions), self.schema, streaming)

    def rows(self, partitions: Sequence[tuple[bytes, Executor | None]]) -> Any:
        """The same as an RDD of Spark's own rows."""
        pairs = [
            self.java.pair(self._row(self.java.array(self._object, [bytearray(descriptor)])), self._place(executor))
            for descriptor, executor in partitions
        ]
        return self.java.context.makeRDD(self.java.seq(pairs), self._row_tag)

    def empty(self, session: Any, streaming: bool = True) -> Any:
        """A DataFrame of no partition at all."""
        return session.internalCreateDataFrame(self.no_rows(), self.schema, streaming)

    def no_rows(self) -> Any:
        """An RDD of rows that has no partition."""
        return self.java.context.emptyRDD(self._row_tag)

    def offset(self, text: str) -> Any:
        """An offset of a placed stream, as Java has it."""
        return self._offset(text)

    def maybe_offset(self, text: str | None) -> Any:
        """The same as a Scala Option, which is empty where there is no offset yet."""
        return self.java.none if text is None else self.java.some(self._offset(text))

    def _place(self, executor: Executor | None) -> Any:
        if executor is None:
            return self.anywhere
        place = self._places.get(executor)
        if place is None:
            if len(self._places) >= MOST_PLACES:
                self._places.clear()  # most of these executors are gone
            place = self._places[executor] = self.java.seq([f"executor_{executor.host}_{executor.id}"])
        return place
