"""What an executor needs to run bundles of an operator, or of a chain of them: functions, what is read and written.

A program travels as one opaque block of bytes inside the query's closure and is unpacked once per worker process, so
that a micro-batch does not pay for the user's function again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyspark import cloudpickle

from penstock.channels.layout import Channel
from penstock.channels.segments import SegmentStore
from penstock.engine.message.shares import Descriptor, Piece
from penstock.errors import Location
from penstock.kinds import BadRow, FileWriter
from penstock.monitor.read_counts import ReadCounts
from penstock.topology.definition import MAIN_OUTPUT, OnError

#: How many programs a worker process keeps.
MOST_UNPACKED = 64
#: Rows, and the piece of a channel that they are from: None where they are not from a channel.
Portion = tuple[Piece | None, pa.RecordBatch]


class Reader(Protocol):
    """Gives each instance of a bundle its rows."""

    def read(
        self, descriptor: Descriptor, bad_rows: Sequence[BadRow] | None, counts: ReadCounts | None = None
    ) -> Sequence[Iterator[Portion]]:
        """One iterator for each instance. The bad rows of an instance go to its entry of `bad_rows`; where that is
        None, a bad row is an error. Rows of channels are counted by where they came from."""

    def born(self, descriptor: Descriptor) -> tuple[float, float]:
        """When the oldest and the newest of these rows came into the topology."""


@dataclass(frozen=True)
class Stage:
    """What one operator does with rows, and where they go."""

    operator: str
    where: Location
    #: None passes rows on as they are: sources, most sinks, and operators whose work Spark SQL does.
    function: Callable[..., Any] | None
    outputs: Mapping[str, pa.Schema]
    #: The channels to write, by output.
    channels: Mapping[str, tuple[Channel, ...]]
    on_error: OnError = OnError.FAIL
    file_writer: FileWriter | None = None
    #: The output whose rows the next stage of a chain gets as they are, without a channel; None where there is none.
    passes_on: str | None = None
    #: Whether the function is called once, with all rows that an instance has.
    gathers: bool = False
    #: The column that names the output of a row, where a DataFrame function has several outputs.
    output_column: str | None = None

    def keeps(self, output: str) -> bool:
        """Whether rows of this output are written somewhere: those of a sink that only counts are not."""
        return bool(self.channels.get(output)) or (self.file_writer is not None and output == MAIN_OUTPUT)


@dataclass(frozen=True)
class Program:
    """Stages that run one after the other in the same bundle, the first of which reads."""

    stages: tuple[Stage, ...]
    reader: Reader | None
    store: SegmentStore

    def pack(self) -> PackedProgram:
        code: bytes = cloudpickle.dumps(self)  # type: ignore[no-untyped-call]
        return PackedProgram(hashlib.sha256(code).hexdigest(), code)


@dataclass(frozen=True)
class PackedProgram:
    """A program as bytes, named by their digest."""

    digest: str
    code: bytes

    def unpack(self) -> Program:
        program = _UNPACKED.pop(self.digest, None)
        if program is None:
            # These bytes come from our own driver, through Spark's own authenticated closure.
            program = cloudpickle.loads(self.code)
        _UNPACKED[self.digest] = program
        while len(_UNPACKED) > MOST_UNPACKED:
            del _UNPACKED[next(iter(_UNPACKED))]
        return program


#: Programs this worker process has seen, the one used last at the end. A worker lives as long as its executor, and sees
#: every operator in each shape that its chain takes.
_UNPACKED: dict[str, Program] = {}
