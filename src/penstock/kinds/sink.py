"""What a kind of sink says about itself, in one class: where rows go, and who writes them.

Rows are written in one of three ways. Bundles call a function with every Arrow batch (`bundle_function`), bundles write
files that appear when their batch is published (`file_writer`), or the driver gets every micro-batch as a DataFrame
(`batch_writer`). A kind that names none of them counts its rows and forgets them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from penstock.errors import Location


class FileWriter(Protocol):
    """Writes the rows of a sink to a file that only appears under its final name once the batch is published."""

    def write(self, batches: Sequence[pa.RecordBatch], name: str) -> tuple[str, str]:
        """Write the rows to a staged file, and return (staged path, final path)."""

    def clear(self, before: int | None = None) -> None:
        """Delete staged files that were never published. The driver calls it without `before` when nothing runs yet, to
        delete all of them, and later with the number of a batch, to delete those of earlier batches."""


class BatchWriter(Protocol):
    """Gets every micro-batch as a DataFrame of Spark's, on the driver."""

    def write(self, frame: Any, batch: int) -> None: ...


@dataclass(frozen=True)
class SinkPlace:
    """Where a sink stands: what its writer needs of the topology that it is part of."""

    #: The name of the sink.
    operator: str = ""
    #: What a sink writes into a place that others write to as well has this mark. No other sink and no other state has
    #: it: they all count their batches from 0, and none may replace what another has written.
    mark: str = ""
    #: Added to the mark where another query than the sink's own writes.
    by: str = ""
    #: How many batches the sink may have had before it began anew and counted them from 0 again.
    batches_before: int = 0
    #: The driver's Java classes, by a SparkSession.
    java: Callable[[Any], Any] | None = None
    #: Whether what is written must survive a power cut (the setting catalog_durability).
    durable: bool = False


class SinkKind:
    """The base of all kinds of sinks. A kind is a frozen dataclass: what a user gives to `topology.sink`."""

    #: The name of the kind, as people and the state see it.
    kind: ClassVar[str]
    #: Whether bundles write its rows: then it can be chained. Otherwise `batch_writer` gets DataFrames.
    written_by_bundles: ClassVar[bool] = True
    #: Whether it is nothing but a function of the user's own: then `penstock.testing.run` calls it. Rows for all other
    #: kinds are collected there, and nothing outside is written to.
    users_function: ClassVar[bool] = False

    def describe(self) -> Mapping[str, Any]:
        """What is shown of the sink, to people and in JSON. It must hold no secrets."""
        return {"kind": self.kind}

    @property
    def folder(self) -> str | None:
        """The folder of its files, for a kind that has one. A run that goes on from a state writes to the same
        folder."""
        return None

    def check_rows(self, schema: pa.Schema, where: Location) -> None:
        """Raise a named error about rows that this sink cannot write, when the topology is declared."""

    def check(self, sink: str, identity: str, goes_on: bool, where: Location | None) -> None:
        """Raise a named error if the sink cannot be written to. Penstock calls it before a run touches its state. No
        other state has the same `identity`. `goes_on` says whether the sink has written to the same place before."""

    def check_not_ahead(self, sink: str, mark: str, batches: Mapping[str, int], where: Location | None) -> None:
        """Raise a named error if the sink has rows of batches that a state which goes on does not know: that state is
        an older copy. `batches` has the last batch of each query that may write to the sink, by what `SinkPlace.by`
        says of the query; -1 if it has published none."""

    def bundle_function(self) -> Callable[[pa.RecordBatch], Any] | None:
        """The function that a bundle calls with each record batch. Penstock ignores what the function returns. The
        function travels to the executors, so it must be picklable. If a batch is run again after a failure, Penstock
        calls the function again with the same rows."""
        return None

    def file_writer(self, place: SinkPlace) -> FileWriter | None:
        """For a kind whose rows go to files that appear when their batch is published."""
        return None

    def batch_writer(self, place: SinkPlace) -> BatchWriter | None:
        """For a kind whose rows the driver writes (`written_by_bundles = False`)."""
        return None
