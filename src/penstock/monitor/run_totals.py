"""What an operator did since the start of the run: the few sums that never end."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.monitor.totals import OperatorTotals
from penstock.monitor.unknown import largest, smallest


@dataclass
class RunTotals:
    batches: int = 0
    rows: int = 0
    rows_out: int = 0
    bad_rows: int = 0
    late_rows: int = 0
    first_started: float | None = None
    last_finished: float | None = None

    def take(self, totals: OperatorTotals) -> None:
        """Take in what was counted in an interval."""
        self._add(totals, sum(totals.rows_out.values()))

    def merge(self, other: RunTotals) -> None:
        self._add(other, other.rows_out)

    def _add(self, totals: OperatorTotals | RunTotals, rows_out: int) -> None:
        self.batches += totals.batches
        self.rows += totals.rows
        self.rows_out += rows_out
        self.bad_rows += totals.bad_rows
        self.late_rows += totals.late_rows
        self.first_started = smallest(self.first_started, totals.first_started)
        self.last_finished = largest(self.last_finished, totals.last_finished)
