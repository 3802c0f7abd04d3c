"""Whatever Spark can stream: a function of the SparkSession that returns a streaming DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import Location
from penstock.kinds import SourceKind
from penstock.schema import Schema, parse_schema
from penstock.sources.mistakes import bad_source


def dataframe(function: Callable[[Any], Any], schema: Schema) -> DataframeSource:
    """A source that Spark reads: `function(spark)` returns a streaming DataFrame with this schema. An example for
    Kinesis:

    lambda spark: spark.readStream.format("kinesis").options(**options).load().selectExpr("CAST(data AS string)")"""
    where = Location.of_caller()
    if not callable(function):
        raise bad_source(
            f"the source's function is a {type(function).__name__}.", "Give a function that takes a SparkSession."
        )
    return DataframeSource(function, parse_schema(schema, where))


def socket(host: str, port: int) -> DataframeSource:
    """A source of text lines from a socket, with one column, `value string`, to try things out. Spark cannot read the
    lines again after a failure."""
    if not host or isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65_536:
        raise bad_source(f"a socket cannot have the address {host}:{port}.", "Give a host and a port from 1 to 65535.")
    return DataframeSource(SocketReader(host, port), parse_schema("value string", Location.of_caller()))


@dataclass(frozen=True)
class DataframeSource(SourceKind):
    function: Callable[[Any], Any]
    schema: pa.Schema

    kind = "dataframe"
    read_by_bundles = False

    @property
    def replayable(self) -> bool:
        return bool(getattr(self.function, "replayable", True))

    def describe(self) -> Mapping[str, Any]:
        described = getattr(self.function, "describe", None)
        if described is not None:
            return {"kind": self.kind, **described()}
        return {"kind": self.kind, "function": getattr(self.function, "__qualname__", type(self.function).__qualname__)}

    def stream(self, session: Any) -> Any:
        return self.function(session)


@dataclass(frozen=True)
class SocketReader:
    """Lines of text from a socket, through Spark's own reader."""

    host: str
    port: int

    replayable = False

    def __call__(self, spark: Any) -> Any:
        return spark.readStream.format("socket").option("host", self.host).option("port", self.port).load()

    def describe(self) -> Mapping[str, Any]:
        return {"socket": f"{self.host}:{self.port}"}
