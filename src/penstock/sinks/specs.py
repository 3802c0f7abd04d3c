"""What a sink is once declared. The engine runs them: it tells them apart by their `kind`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class NoopSink:
    """Counts rows and forgets them."""

    @property
    def kind(self) -> str:
        return "noop"

    def describe(self) -> Mapping[str, Any]:
        return {"kind": self.kind}


@dataclass(frozen=True)
class ParquetSink:
    path: str
    #: What to do about a folder that has files of others: "refuse", or "append" to them.
    existing: str = "refuse"

    @property
    def kind(self) -> str:
        return "parquet"

    def describe(self) -> Mapping[str, Any]:
        return {"kind": self.kind, "path": self.path, "existing": self.existing}


@dataclass(frozen=True)
class ConsoleSink:
    #: How many rows of a batch are shown at most.
    rows: int
    #: Of how many batches one is shown.
    every: int

    @property
    def kind(self) -> str:
        return "console"

    def describe(self) -> Mapping[str, Any]:
        return {"kind": self.kind, "rows": self.rows, "every": self.every}


@dataclass(frozen=True)
class JdbcSink:
    """A table of a database. URL and properties may hold a password, so neither appears where it is printed."""

    url: str = field(repr=False)
    table: str
    properties: Mapping[str, str] = field(repr=False)
    batch_column: str | None

    @property
    def kind(self) -> str:
        return "jdbc"

    def describe(self) -> Mapping[str, Any]:
        return {
            "kind": self.kind,
            "url": without_secrets(self.url),
            "table": self.table,
            # Their values are nobody's business: a password may be called anything.
            "properties": sorted(self.properties),
            "batch_column": self.batch_column,
        }


@dataclass(frozen=True)
class ArrowSink:
    function: Callable[[Any], Any]

    @property
    def kind(self) -> str:
        return "arrow"

    def describe(self) -> Mapping[str, Any]:
        return {"kind": self.kind, "function": _name_of(self.function)}


@dataclass(frozen=True)
class FunctionSink:
    function: Callable[[Any, int], Any]

    @property
    def kind(self) -> str:
        return "function"

    def describe(self) -> Mapping[str, Any]:
        return {"kind": self.kind, "function": _name_of(self.function)}


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def without_secrets(url: str) -> str:
    """The part of a JDBC URL that says which database, without user, password and parameters.

    Each database writes its URLs in its own way, so in doubt less is shown: only which driver."""
    driver = re.match(r"jdbc:\w*", url)
    in_doubt = f"{driver.group() if driver else 'jdbc'}:..."
    database, _, parameters = re.sub(r"[?;]", "\0", url, count=1).partition("\0")
    if "@" in parameters or re.search(r"passw|pwd|secret|token|=", database, re.IGNORECASE):
        return in_doubt  # The @ may end a password that has a ? in it.
    _, at, host = database.rpartition("@")
    return f"{in_doubt}@{host}" if at else database
