"""What a source is once declared. The engine runs them: it tells them apart by their `kind`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.sources.content import Content
from penstock.sources.csv_rows import CsvOptions
from penstock.sources.schedule import Schedule


@dataclass(frozen=True)
class RateSource:
    """Made-up rows, so many a second."""

    schedule: Schedule
    content: Content
    #: After this many rows the source has ended.
    rows: int | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.content.schema

    @property
    def kind(self) -> str:
        return "rate"

    def due(self, elapsed: float) -> int:
        """How many rows should have been given so many seconds after the start."""
        due = self.schedule.due(elapsed)
        return due if self.rows is None else min(due, self.rows)

    def describe(self) -> Mapping[str, Any]:
        return {
            "kind": self.kind,
            "schedule": self.schedule.describe(),
            "rows": self.rows,
            "content": self.content.describe(),
        }


@dataclass(frozen=True)
class FileSource:
    """The rows of files: those that are there, and, when it follows, those that come."""

    path: str
    format: str
    schema: pa.Schema
    #: For CSV; None for other formats.
    options: CsvOptions | None
    follow: bool

    @property
    def kind(self) -> str:
        return "files"

    def describe(self) -> Mapping[str, Any]:
        csv = {} if self.options is None else {"header": self.options.header, "separator": self.options.separator}
        return {"kind": self.kind, "path": self.path, "format": self.format, "follow": self.follow, **csv}


@dataclass(frozen=True)
class DataframeSource:
    """Whatever Spark can read: the function takes the SparkSession and returns a streaming DataFrame."""

    function: Callable[[Any], Any]
    schema: pa.Schema

    @property
    def kind(self) -> str:
        return "dataframe"

    def describe(self) -> Mapping[str, Any]:
        described = getattr(self.function, "describe", None)
        if described is not None:
            return {"kind": self.kind, **described()}
        return {"kind": self.kind, "function": getattr(self.function, "__qualname__", type(self.function).__qualname__)}


@dataclass(frozen=True)
class SocketReader:
    """Lines of text from a socket, through Spark's own reader."""

    host: str
    port: int

    def __call__(self, spark: Any) -> Any:
        return spark.readStream.format("socket").option("host", self.host).option("port", self.port).load()

    def describe(self) -> Mapping[str, Any]:
        return {"socket": f"{self.host}:{self.port}"}
