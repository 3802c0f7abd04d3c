"""Spark's checkpoints of one topology: a folder an operator, below a path or a URI that Spark can open."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.engine.spark.hadoop_files import HadoopFiles
from penstock.engine.state.checkpoint_log import CheckpointLog

_OFFSETS = "offsets"


class Checkpoints:
    """The checkpoints below a location, which belongs to the topology alone."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self.spark = spark
        self.location = location
        self._is_uri = ":" in location.partition("/")[0]

    def has(self, operator: str) -> bool:
        """Whether Spark has begun to write down how far the operator's query is."""
        return _OFFSETS in self._names(operator)

    def unfinished(self, operator: str) -> bool:
        """Whether a batch was begun whose end was not written down: Spark will have it read once more."""
        log = CheckpointLog.open(self.spark, f"{self.location}/{operator}")
        return log.planned() > log.finished()

    def operators(self) -> list[str]:
        """The operators that have a checkpoint here, declared or not."""
        return [name for name in self._names("") if not name.startswith(".") and self.has(name)]

    def drop(self, operator: str) -> None:
        """Delete the checkpoint of an operator, if it has one."""
        folder = f"{self.location}/{operator}"
        if self._is_uri:
            HadoopFiles(self.spark).delete(folder)
        elif Path(folder).is_dir():
            shutil.rmtree(folder)

    def _names(self, folder: str) -> list[str]:
        """The names of what is in a folder; none if there is no such folder."""
        if self._is_uri:
            return HadoopFiles(self.spark).names(f"{self.location}/{folder}".rstrip("/"))
        path = Path(self.location) / folder
        return sorted(one.name for one in path.iterdir()) if path.is_dir() else []
