"""Operators for experiments: they wait as long as an operator would work, and pass on as many rows as it would.

A wait needs no core, so a cluster of many machines can be tried out on a laptop; and it is exact, so a measured rate
can be held against a computed one. On machines that have a share of the cores (docs/lab.md) operators can really work.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import sinks
from penstock.errors import Location, PenstockError
from penstock.schema import Schema
from penstock.sources.counter import Draws, draws, unit
from penstock.topology.declaration import Topology
from penstock.topology.output import Input, Output


@dataclass(frozen=True)
class ServiceTime:
    """Waits for every row, then gives each row `selectivity` times on average."""

    seconds_per_row: float
    selectivity: float
    seed: int

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.seconds_per_row and batch.num_rows:
            time.sleep(batch.num_rows * self.seconds_per_row)
        return self._select(batch)

    def _select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A selectivity of 2.3 gives every row twice, and a third time those whose hash is in the lower 30%. The hash
        is the row's own, so neither the cut into batches nor the place of the operator changes what comes out."""
        copies = math.floor(self.selectivity)
        share = self.selectivity - copies
        if share == 0 and copies == 1:
            return batch
        counts = np.full(batch.num_rows, copies)
        if share:
            counts += unit(draws(self.seed, 0, _hashes(batch.column(0)))) < share
        return batch.take(pa.array(np.repeat(np.arange(batch.num_rows), counts)))


@dataclass(frozen=True)
class WorkTime(ServiceTime):
    """Works for every row instead: it uses so many seconds of a core, however long that takes."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        end = time.thread_time() + batch.num_rows * self.seconds_per_row
        while time.thread_time() < end:
            # A little arithmetic between two looks at the clock: the clock is the kernel's, and is not all of the work.
            sum(range(200))
        return self._select(batch)


@dataclass(frozen=True)
class SplitBy:
    """Each row goes to the output that a column of it names; a row that names none is dropped."""

    column: str
    outputs: tuple[str, ...]

    def __call__(self, batch: pa.RecordBatch) -> Mapping[str, pa.RecordBatch]:
        names = batch.column(self.column)
        return {output: batch.filter(pc.equal(names, output)) for output in self.outputs}


def service_time(seconds_per_row: float, selectivity: float = 1.0, seed: int = 0) -> ServiceTime:
    """An Arrow function for any schema that takes so long for a row, and gives `selectivity` rows for each.

    Which rows those are follows from a hash of the first column, so that column should tell rows apart. Operators one
    after the other need seeds of their own: with the same one, the second keeps just what the first has kept."""
    _require_numbers(seconds_per_row=seconds_per_row, selectivity=selectivity)
    return ServiceTime(seconds_per_row, selectivity, seed)


def work_time(cpu_seconds_per_row: float, selectivity: float = 1.0, seed: int = 0) -> WorkTime:
    """As `service_time`, but the operator works: it uses so many seconds of a core for a row. Where it gets only a
    share of a core, or shares one with others, it takes as much longer."""
    _require_numbers(cpu_seconds_per_row=cpu_seconds_per_row, selectivity=selectivity)
    return WorkTime(cpu_seconds_per_row, selectivity, seed)


def _require_numbers(**values: float) -> None:
    for name, value in values.items():
        if not math.isfinite(value) or value < 0:
            raise PenstockError(
                "BAD_FUNCTION", f"{name} is {value!r}.", "Give a number of at least 0.", Location.of_caller()
            )


def split_by(column: str, outputs: Sequence[str]) -> SplitBy:
    """An Arrow function with several outputs: a row goes to the one that `column` names."""
    return SplitBy(column, tuple(outputs))


@dataclass(frozen=True)
class StandIns:
    """Declares operators that stand in for those of a published topology, of which only the names, the streams and the
    relative cost are known: each waits `load` times `seconds_per_load` for a row. They are never chained: the papers'
    operators run side by side."""

    topology: Topology
    schema: Schema
    instances: int
    tasks: int
    #: Storm's load of 100 is one core; what matters here is how the loads compare.
    seconds_per_load: float = 0.000_1

    def add(self, name: str, inputs: Sequence[Input] | Input, load: float = 10, selectivity: float = 1.0) -> Output:
        return self.topology.map(
            name,
            self.function(name, load, selectivity),
            inputs=inputs,
            schema=self.schema,
            instances=self.instances,
            tasks=self.tasks,
            chained=False,
        )

    def add_last(self, name: str, inputs: Sequence[Input] | Input, load: float = 10) -> None:
        """An operator that works and lets rows leave, as Storm's last bolts do."""
        self.topology.sink(
            name, sinks.arrow(self.function(name, load)), inputs=inputs, instances=self.instances, chained=False
        )

    def function(self, name: str, load: float = 10, selectivity: float = 1.0) -> ServiceTime:
        """The wait alone, for an operator that does something else besides. Its name is its seed."""
        return service_time(load * self.seconds_per_load, selectivity, seed=crc32(name.encode()))


def _hashes(column: pa.Array) -> Draws:
    """A hash of each value that does not depend on its neighbours, its process or its machine."""
    values = _as_binary(column).fill_null(b"").to_numpy(zero_copy_only=False)
    return np.fromiter(map(crc32, values), dtype=np.uint64, count=len(values))


def _as_binary(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return column
    try:
        return column.cast(pa.string()).cast(pa.binary())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # Lists and the like have no text in Arrow.
        return pa.array([repr(value).encode() for value in column.to_pylist()], pa.binary())
