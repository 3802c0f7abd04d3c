"""Files where Spark reads and writes them, by any URI that Spark understands, and with Spark's own settings."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


class HadoopFiles:
    """The Hadoop file systems that a session knows."""

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        self._java: Any = context._jvm
        self._conf: Any = context._jsc.hadoopConfiguration()

    def names(self, folder: str) -> list[str]:
        """The names of what is in a folder; none if there is no such folder."""
        system, path = self._found(folder)
        return [status.getPath().getName() for status in system.listStatus(path)] if system.exists(path) else []

    def text(self, path: str) -> str | None:
        """The text of a file; None if there is no such file."""
        system, found = self._found(path)
        if not system.exists(found):
            return None
        stream = system.open(found)
        try:
            text: str = self._java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        return text

    def delete(self, folder: str) -> None:
        """Delete a folder with all that is in it; a folder that is not there is fine."""
        system, path = self._found(folder)
        system.delete(path, True)

    def _found(self, location: str) -> tuple[Any, Any]:
        path = self._java.org.apache.hadoop.fs.Path(location)
        return path.getFileSystem(self._conf), path
