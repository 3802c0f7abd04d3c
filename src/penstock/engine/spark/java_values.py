"""Java's classes and values, made and read from Python through Py4J: what the other modules of this room are built of.

Looking a Java class up costs several round trips to the JVM, so the classes that every batch needs are looked up once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

#: The Java package of Spark's streaming engine.
STREAMING = "org.apache.spark.sql.execution.streaming"


def java_of(spark: SparkSession) -> Any:
    """The driver's Java classes, by their full name."""
    return spark.sparkContext._jvm


def query_manager(session: Any) -> Any:
    """The manager of the streaming queries of a Java session."""
    return session.sessionState().streamingQueryManager()


class JavaValues:
    """The gateway to the driver's JVM, which may call Python back from now on."""

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        #: The Java SparkContext.
        self.context: Any = context._jsc.sc()
        self._gateway: Any = context._gateway
        ensure_callback_server_started(self._gateway)  # type: ignore[no-untyped-call]
        self._option = self.class_named("scala.Option")
        #: Scala's None.
        self.none: Any = self._option.empty()
        #: scala.Tuple2, to be called with both values.
        self.pair: Any = self.class_named("scala.Tuple2")
        self._converters = self.class_named("scala.jdk.javaapi.CollectionConverters")
        self._list = self.class_named("java.util.ArrayList")

    def class_named(self, name: str) -> Any:
        return JavaClass(name, self._gateway._gateway_client)

    def some(self, value: Any) -> Any:
        """Scala's Some(value)."""
        return self._option.apply(value)

    def seq(self, items: Sequence[Any]) -> Any:
        """A Scala Seq of these items."""
        array = self._list()
        for item in items:
            array.add(item)
        return self._converters.asScala(array).toSeq()

    def each(self, collection: Any) -> Any:
        """A Scala collection as a Java one, which Python can iterate over."""
        return self._converters.asJava(collection)

    def array(self, kind: Any, items: Sequence[Any]) -> Any:
        """A Java array of a class."""
        array = self._gateway.new_array(kind, len(items))
        for index, item in enumerate(items):
            array[index] = item
        return array

    def empty_set(self) -> Any:
        """An empty Java set."""
        return self.class_named("java.util.HashSet")()

    def empty_map(self) -> Any:
        """An empty immutable Scala Map."""
        utilities = self.class_named("org.apache.spark.api.python.PythonUtils")
        return utilities.toScalaMap(self.class_named("java.util.HashMap")())
