"""What a call into the JVM may raise. Spark's own errors have a class in PySpark, but not all of them: the others come
as Py4J raises them, and so does the end of the JVM."""

from __future__ import annotations

from typing import TypeAlias

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

#: For `isinstance`, and for types.
SparkError: TypeAlias = PySparkException | Py4JError
#: For `except`.
SPARK_ERRORS = (PySparkException, Py4JError)
#: What is raised when the JVM of the driver is gone, or about to go.
JVM_GONE = (Py4JError, OSError)
