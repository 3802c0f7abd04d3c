"""A processor's micro-batches without Spark: its state in memory, its timers by a clock, its watermark by its rows.

The order of things is Spark's. First the processor gets the rows of every key, then the timers that have come. A batch
runs with the watermark of the rows before it; when its own rows move the watermark, a batch without rows follows.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.schema import schema_text
from penstock.testing.clock import Clock
from penstock.topology.state.held import EPOCH, milliseconds
from penstock.topology.state.memory import Key, MemoryHandle
from penstock.topology.state.processing import EVENT_TIME, NO_TIME, Processing
from penstock.topology.state.worker import Worker

Rows = Sequence[Mapping[str, Any]]
_MILLISECOND = timedelta(milliseconds=1)


class ProcessorBatches:
    """The life of one stateful operator in a test."""

    def __init__(self, processing: Processing, clock: Clock) -> None:
        self._processing = processing
        self._clock = clock
        self.handle = MemoryHandle()
        #: In milliseconds; 0 before the first rows, as on Spark.
        self.watermark = 0
        #: Rows that the watermark had passed when they came.
        self.late_rows = 0

    def work(self, rows: Rows) -> list[dict[str, Any]]:
        """What the operator emits for these rows, and for the timers that have come by then."""
        emitted = self._batch(rows)
        return emitted + self._batch([]) if self._move(self._newest(rows)) else emitted

    def pass_to(self, at: datetime) -> list[dict[str, Any]]:
        """What the operator emits when rows of other keys move the watermark to this moment."""
        return self._batch([]) if self._move(milliseconds(at)) else []

    def processor(self, key: Key) -> Any:
        """A copy of the processor with the state of a key, to look into."""
        worker = self._worker()
        self.handle.key = key
        return worker.processor

    def as_arrow(self, rows: Rows) -> pa.RecordBatch:
        """What a processor yielded, in the declared schema."""
        try:
            return pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=self._processing.schema)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise PenstockError(
                "FUNCTION_SCHEMA",
                f'"{self._processing.operator}": what its processor yielded does not fit: {error}.',
                f'Yield rows of "{schema_text(self._processing.schema)}".',
                self._processing.where,
            ) from error

    def _batch(self, rows: Rows) -> list[dict[str, Any]]:
        before = self.handle.copied(), self.late_rows
        try:
            return self._attempt(rows)
        except BaseException:
            copied, self.late_rows = before
            self.handle.put_back(copied)
            raise

    def _attempt(self, rows: Rows) -> list[dict[str, Any]]:
        worker, handle = self._worker(), self.handle
        emitted: list[dict[str, Any]] = []
        for key, ours in self._by_key(self._in_time(rows)).items():
            handle.key = key
            emitted += worker.rows(key, ours)
        for key, at in handle.expired(self._until()):
            handle.key = key
            emitted += worker.timer(key, at)
            handle.deleteTimer(at)  # as Spark does, after the call: a timer for the same moment is gone with it
        return emitted

    def _worker(self) -> Worker:
        """A new copy of the processor, as in every micro-batch on Spark: what it keeps in attributes is lost."""
        worker = copy.deepcopy(self._processing.worker())
        self.handle.now = round(self._clock() * 1000)
        worker.processor.bind(self.handle)
        if self._processing.time_mode != NO_TIME:
            worker.processor.at_time(self.handle.now, self.watermark)
        return worker

    def _until(self) -> int:
        return self.watermark if self._processing.time_mode == EVENT_TIME else self.handle.now

    def _by_key(self, rows: Iterable[Mapping[str, Any]]) -> dict[Key, list[Mapping[str, Any]]]:
        found: dict[Key, list[Mapping[str, Any]]] = {}
        for row in rows:
            found.setdefault(tuple(row[name] for name in self._processing.key), []).append(row)
        return found

    def _in_time(self, rows: Rows) -> list[Mapping[str, Any]]:
        column = self._processing.event_time
        if column is None:
            return list(rows)
        kept = [row for row in rows if row[column] is None or row[column] - EPOCH > self.watermark * _MILLISECOND]
        self.late_rows += len(rows) - len(kept)
        return kept

    def _newest(self, rows: Rows) -> int:
        column = self._processing.event_time
        times = [_passed(row[column]) for row in rows if column is not None and row[column] is not None]
        return max(times, default=0) - round(self._processing.lateness * 1000)

    def _move(self, watermark: int) -> bool:
        moves = watermark > self.watermark
        self.watermark = max(self.watermark, watermark)
        return moves


def _passed(at: datetime) -> int:
    """The milliseconds that have passed at a moment: Spark cuts event times off."""
    return (at - EPOCH) // _MILLISECOND
