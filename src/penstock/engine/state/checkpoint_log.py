"""What Spark's checkpoint of a query tells: which batches were planned, which are finished, and where each ended.

Spark writes `offsets/N` before batch N runs and `commits/N` after it, so what is finished was planned, and at most one
batch more was planned than is finished. A file of `offsets` has a line for its version, one for the query's settings,
and one for every input: where it ends, or "-" where it has given nothing yet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession

from penstock.engine.spark.hadoop_files import HadoopFiles
from penstock.engine.spark.unplaced import unwrapped_offset
from penstock.logs import LOGGER

#: How far a query has read: channel -> row, or, for sources, the number of the input -> its offset.
Positions = Mapping[str, Any]

_HEADER_LINES = 2


class Files(Protocol):
    """As much of a file system as it takes to read a checkpoint."""

    def names(self, folder: str) -> list[str]:
        """The names of all files in a folder; none if there is no such folder."""

    def text(self, path: str) -> str | None:
        """The text of a file; None if there is no such file."""


class LocalFiles:
    """The files of this computer, by their paths."""

    def names(self, folder: str) -> list[str]:
        try:
            return [path.name for path in Path(folder).iterdir()]
        except FileNotFoundError:
            return []

    def text(self, path: str) -> str | None:
        try:
            return Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None


class CheckpointLog:
    """The logs of one query's checkpoint."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self.folder = folder

    @staticmethod
    def open(spark: SparkSession, folder: str) -> CheckpointLog:
        """A plain path is a local one; any other place is read as Spark reads it, with its settings."""
        scheme = folder.partition("/")[0].partition(":")
        if scheme[1] and scheme[0] != "file":
            return CheckpointLog(HadoopFiles(spark), folder)
        return CheckpointLog(LocalFiles(), _local_path(folder))

    def planned(self) -> int:
        """The newest batch that Spark has begun; -1 if there is none."""
        return self._newest("offsets")

    def finished(self) -> int:
        """The newest batch that Spark has finished; -1 if there is none."""
        return self._newest("commits")

    def ends(self, batch: int, *, of_source: bool) -> Positions | None:
        """Where a batch ends; None if that is not written down, or cannot be read."""
        ends: dict[str, Any] = {}
        try:
            text = self._files.text(f"{self.folder}/offsets/{batch}")
            lines = (text or "").splitlines()[_HEADER_LINES:]
            for index, line in enumerate(lines):
                if of_source and line != "-":
                    ends[str(index)] = _offset_of_source(line)
                elif line != "-":
                    ends.update(unwrapped_offset(json.loads(line)) or {})
        except ValueError:
            # Spark was cut off while it wrote the file; whoever asked refuses the state.
            LOGGER.warning("%s/offsets/%d cannot be read", self.folder, batch, exc_info=True)
            return None
        return ends if lines else None

    def _newest(self, log: str) -> int:
        # Beside the files of batches are their check sums, and files that were being written.
        names = self._files.names(f"{self.folder}/{log}")
        return max((int(name) for name in names if name.isdecimal()), default=-1)


def _offset_of_source(line: str) -> Any:
    """The offset in a line. That of a source which is not Penstock's is a text, which need not be JSON."""
    try:
        return unwrapped_offset(json.loads(line))
    except ValueError:
        return line


def _local_path(folder: str) -> str:
    """The path /x, of file:/x, file:///x or /x."""
    return "/" + folder.removeprefix("file:").lstrip("/") if folder.startswith("file:") else folder
