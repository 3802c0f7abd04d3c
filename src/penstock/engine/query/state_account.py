"""What Spark tells of a keyed operator's state after a batch: rows that came too late, rows that are kept, event times.

Spark has it in the progress of a query, which costs two calls into the JVM. Penstock reads the progress between two
batches, on the thread that Spark waits for anyway: after every batch where there is a watermark (late rows must not be
missed), else once a second and when there is nothing more to do. Operators without state are never asked about.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from penstock.engine.query.window_ages import Born, WindowAges
from penstock.logs import LOGGER
from penstock.monitor.kept_state import KeptState, Kind

#: Without a watermark: how old an account may get while batches follow each other.
ACCOUNT_SECONDS = 1.0
_NOT_READ = "what Spark tells of the state of a keyed operator could not be read"
#: Spark's names for the stateful nodes of a plan. Nodes that only restore state are not in a progress.
_KINDS = {
    "stateStoreSave": Kind.AGGREGATE,
    "sessionWindowStateStoreSaveExec": Kind.AGGREGATE,
    "symmetricHashJoin": Kind.JOIN,
    "dedupe": Kind.DISTINCT,
    "dedupeWithinWatermark": Kind.DISTINCT,
    "globalLimit": Kind.DISTINCT,
}


@dataclass(frozen=True)
class StateAccount:
    """What Spark tells of one finished batch."""

    batch: int
    kept: tuple[KeptState, ...]
    #: Rows that the stateful steps dropped because the watermark had passed them. Rows of one key (and window) that an
    #: aggregate has combined before they reach its state count as one.
    late_rows: int = 0
    #: The watermark with which the batch ran, in seconds since the epoch; None if the operator has none.
    watermark: float | None = None
    #: The first and the last event time of the batch's rows.
    event_times: tuple[float, float] | None = None


def account_of(progress: Mapping[str, Any], output_mode: str) -> StateAccount:
    steps: Sequence[Mapping[str, Any]] = progress.get("stateOperators") or ()
    times: Mapping[str, str] = progress.get("eventTime") or {}
    watermark = times.get("watermark")
    kinds = [_KINDS.get(step["operatorName"], Kind.OWN) for step in steps]
    return StateAccount(
        batch=progress["batchId"],
        kept=tuple(
            KeptState(kind, step["numRowsTotal"], kind is Kind.AGGREGATE and output_mode == "append")
            for kind, step in zip(kinds, steps, strict=True)
        ),
        late_rows=sum(step.get("numRowsDroppedByWatermark", 0) for step in steps),
        watermark=None if watermark is None else _seconds(watermark),
        event_times=(_seconds(times["min"]), _seconds(times["max"])) if "min" in times and "max" in times else None,
    )


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class HasProgress(Protocol):
    """The part of a streaming query that is used here."""

    @property
    def lastProgress(self) -> Any: ...


@dataclass(frozen=True)
class _Published:
    batch: int
    born: Born | None
    #: A batch that was published before, and ran again to bring the state up to date, may be counted already.
    is_new: bool


class StateAccounts:
    """The accounts of one keyed operator, over all the queries that run it one after the other."""

    def __init__(
        self,
        output_mode: str,
        tell: Callable[[StateAccount], object],
        complain: Callable[[str], object] = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._output_mode = output_mode
        self._tell = tell
        self._complain: Callable[[str], object] | None = complain
        self._clock = clock
        self._last: StateAccount | None = None
        #: The newest batch that Spark has told this driver of.
        self._told = -1
        self._read_at = 0.0
        self._pending: _Published | None = None
        self._ages = WindowAges()

    def born(self, rows: Born | None) -> Born | None:
        """How old the rows are that the next batch emits: as old as those it reads, unless they are results that
        waited for the watermark. A batch without rows emits nothing else: what it emits has windows or timers."""
        if self._last is None or not (rows is None or any(one.open for one in self._last.kept)):
            return rows
        return self._ages.released() or rows

    def published(self, batch: int, born: Born | None, rows_out: int, is_new: bool) -> None:
        """Note that a batch was published. Spark's account of the batch comes when Spark has finished it too."""
        if rows_out:
            self._ages.let_out()
        self._pending = _Published(batch, born, is_new)

    def between_batches(self, query: HasProgress | None, idle: bool) -> None:
        """Read what Spark has written down about the last batch, if there is anything new and it is worth the calls. A
        problem here is told once, and stops nothing: it only concerns what is measured."""
        try:
            self._read(query, idle)
        except Exception as problem:
            first = self._complain is not None
            LOGGER.log(logging.WARNING if first else logging.DEBUG, _NOT_READ, exc_info=True)
            if self._complain is not None:
                self._complain(f"late rows and state are not counted: {type(problem).__name__}: {problem}")
                self._complain = None

    def _read(self, query: HasProgress | None, idle: bool) -> None:
        pending = self._pending
        if pending is None or query is None:
            return
        needed = idle or self._last is None or self._last.watermark is not None
        if not needed and self._clock() < self._read_at + ACCOUNT_SECONDS:
            return
        progress = query.lastProgress
        if progress is None or progress["batchId"] < pending.batch:
            return
        self._pending, self._read_at = None, self._clock()
        self._last = account = account_of(progress, self._output_mode)
        if account.watermark is not None:
            self._ages.note(account.watermark, account.event_times, pending.born)
        # Spark tells of a batch when it has committed the batch, and replays batches that it has not committed. So a
        # replay may be a batch that Spark has not told of yet.
        counts = pending.is_new or pending.batch > self._told
        self._told = max(self._told, account.batch)
        self._tell(account if counts else replace(account, late_rows=0))
