"""What people read of a running topology: totals since its start, rates and latency of the last seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.clock import run_time
from penstock.monitor.counts import Counts
from penstock.monitor.latency import Latency, merged
from penstock.monitor.recent_samples import SECONDS


@dataclass(frozen=True)
class OperatorRates:
    """Over the last seconds, or over the whole run: rows a second, seconds a batch."""

    rows_in: float
    rows_out: float
    batch_seconds: float | None
    batches: int


_NOTHING = OperatorRates(0.0, 0.0, None, 0)


class Statistics:
    """Counts nothing itself: it reads the counts of the run. Any thread may call it."""

    def __init__(self, counts: Counts, clock: Callable[[], float] = run_time) -> None:
        self._counts = counts
        self._clock = clock

    # The last seconds

    def rates(self, operator: str) -> OperatorRates:
        """Up to now: an operator that has stopped shows falling rates, not its last ones."""
        now = self._clock()
        recent = self._counts.recent(operator, now - SECONDS)
        first = self._counts.of_run(operator).first_started
        if not recent or first is None:
            return _NOTHING
        seconds = max(min(SECONDS, now - first), 0.001)
        return OperatorRates(
            rows_in=sum(one.rows for one in recent) / seconds,
            rows_out=sum(sum(one.rows_out.values()) for one in recent) / seconds,
            batch_seconds=sum(one.seconds for one in recent) / len(recent),
            batches=len(recent),
        )

    def recent_latency(self, sink: str) -> Latency | None:
        """None if no row came."""
        recent = self._counts.recent(sink, self._clock() - SECONDS)
        return merged(one.latency for one in recent if one.latency is not None).latency

    # The whole run

    def whole_run(self, operator: str) -> OperatorRates:
        """From the operator's first batch to its last."""
        found = self._counts.of_run(operator)
        if found.first_started is None or found.last_finished is None:
            return _NOTHING
        seconds = max(found.last_finished - found.first_started, 0.001)
        return OperatorRates(found.rows / seconds, found.rows_out / seconds, seconds / found.batches, found.batches)

    def totals(self, operator: str) -> tuple[int, int]:
        """Rows in and out since the start of this run."""
        found = self._counts.of_run(operator)
        return found.rows, found.rows_out

    def batches(self, operator: str) -> int:
        """How many were published since the start of this run."""
        return self._counts.of_run(operator).batches

    def bad_rows(self, operator: str) -> int:
        return self._counts.of_run(operator).bad_rows

    def late_rows(self, operator: str) -> int:
        """Rows that its watermark has dropped since the start of this run."""
        return self._counts.of_run(operator).late_rows

    def latency(self, sink: str) -> Latency | None:
        """None if no row came."""
        return self._counts.latency_of_run(sink).latency
