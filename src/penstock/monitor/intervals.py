"""Fixed sampling intervals, aligned to multiples of their length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.monitor.totals import OperatorTotals, merge_operators


@dataclass(frozen=True)
class Interval:
    """What was added up in [start, stop). An operator that is not in it was not heard of, which is not the same as one
    that did nothing."""

    start: float
    stop: float
    operators: Mapping[str, OperatorTotals]

    @property
    def seconds(self) -> float:
        return self.stop - self.start


class CountedInterval:
    """An interval in which is being counted, in parts: the present part is what counts for decisions, the past parts
    are what was before the placement changed. Not safe for several threads as long as it is open; its owner is."""

    def __init__(self, start: float, stop: float) -> None:
        self.start = start
        self.stop = stop
        self.present: dict[str, OperatorTotals] = {}
        #: The oldest first.
        self._past: list[dict[str, OperatorTotals]] = []

    @property
    def parts(self) -> list[dict[str, OperatorTotals]]:
        return [*self._past, self.present]

    def totals(self, operator: str, present: bool) -> OperatorTotals:
        """Where something is to be counted."""
        if not present and not self._past:
            self._past.append({})
        part = self.present if present else self._past[-1]
        return part.setdefault(operator, OperatorTotals())

    def cut(self) -> None:
        """What was present is past from now on."""
        if self.present:
            self._past.append(self.present)
            self.present = {}

    def present_part(self) -> Interval:
        return Interval(self.start, self.stop, self.present)

    def whole(self) -> Interval:
        """All parts together."""
        parts = [part for part in self.parts if part]
        if len(parts) == 1:
            return Interval(self.start, self.stop, parts[0])
        operators = merge_operators(*parts)
        for totals in operators.values():
            totals.in_one_interval()
        return Interval(self.start, self.stop, operators)
