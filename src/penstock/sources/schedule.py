"""How many rows a second a source should give, over time, and what follows from it: which row is due when.

The answers come from the exact integral of the rate, never from adding up small steps, so a source that was paused,
restarted or asked at odd moments still owes exactly the rows it would have given.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from penstock.sources.mistakes import bad_source, check_number

#: The columns of a trace file.
TRACE_COLUMNS = ("seconds", "rows_per_second")


@dataclass(frozen=True)
class ScheduleStep:
    """A rate that holds for some seconds."""

    seconds: Fraction
    rate: Fraction

    @property
    def rows(self) -> Fraction:
        return self.seconds * self.rate


@dataclass(frozen=True)
class _Line:
    """The rows that are due in a step, as a line over time: (at_start + a_second * seconds) / parts."""

    at_start: int
    a_second: int
    parts: int

    @staticmethod
    def of(step: ScheduleStep, begin: Fraction, rows_before: Fraction) -> _Line:
        at_start = rows_before - step.rate * begin
        parts = math.lcm(at_start.denominator, step.rate.denominator)
        return _Line(int(at_start * parts), int(step.rate * parts), parts)

    def at(self, seconds: Fraction) -> Fraction:
        return (self.at_start + self.a_second * seconds) / self.parts


@dataclass(frozen=True)
class Schedule:
    """Steps one after the other; after the last one its rate goes on, or all of them are repeated."""

    steps: tuple[ScheduleStep, ...]
    repeat: bool = False

    def due(self, elapsed: float) -> int:
        """How many rows should have been given `elapsed` seconds after the start."""
        if elapsed <= 0:
            return 0
        time = Fraction(elapsed)
        rounds, time = divmod(time, self._ends[-1]) if self.repeat else (0, time)
        step = 0 if len(self.steps) == 1 else min(bisect_right(self._ends, time), len(self.steps) - 1)
        line = self._lines[step]
        # Integers: a source asks for every batch several times, and fractions cost several times as much.
        above, below = time.numerator, time.denominator
        rows = (line.at_start * below + line.a_second * above) // (line.parts * below)
        return rows if not rounds else math.floor(rounds * self._rows[-1] + line.at(time))

    def when(self, row: int) -> float:
        """The seconds after the start at which `due` first reaches `row`: infinity if it never does."""
        if row <= 0:
            return 0.0
        wanted, rounds = Fraction(row), 0
        if self.repeat:
            if self._rows[-1] == 0:
                return math.inf
            # The last row of a round belongs to that round, not to the very start of the next.
            rounds = math.ceil(wanted / self._rows[-1]) - 1
            wanted -= rounds * self._rows[-1]
        step = min(bisect_left(self._rows, wanted), len(self.steps) - 1)
        if self.steps[step].rate == 0:
            return math.inf
        exact = self._begin(step) + (wanted - self._rows_before(step)) / self.steps[step].rate
        return _not_before(exact + rounds * self._ends[-1])

    def rate_at(self, elapsed: float) -> float:
        """The rows a second asked for at this moment; a step's rate holds from its first moment on."""
        time = max(Fraction(elapsed), Fraction(0))
        time = time % self._ends[-1] if self.repeat else time
        return float(self.steps[min(bisect_right(self._ends, time), len(self.steps) - 1)].rate)

    def describe(self) -> Mapping[str, Any]:
        return {"steps": [[float(step.seconds), float(step.rate)] for step in self.steps], "repeat": self.repeat}

    @cached_property
    def _ends(self) -> list[Fraction]:
        """When each step ends."""
        return list(accumulate(step.seconds for step in self.steps))

    @cached_property
    def _rows(self) -> list[Fraction]:
        """The rows due when each step ends."""
        return list(accumulate(step.rows for step in self.steps))

    @cached_property
    def _lines(self) -> list[_Line]:
        return [_Line.of(step, self._begin(index), self._rows_before(index)) for index, step in enumerate(self.steps)]

    def _begin(self, step: int) -> Fraction:
        return self._ends[step - 1] if step else Fraction(0)

    def _rows_before(self, step: int) -> Fraction:
        return self._rows[step - 1] if step else Fraction(0)


def constant(rows_per_second: float) -> Schedule:
    """A schedule with the same rate all the time."""
    return stepped([(1, rows_per_second)])


def stepped(steps: Iterable[tuple[float, float]], repeat: bool = False) -> Schedule:
    """A schedule of steps, each (seconds, rows per second): `[(60, 1000), (30, 4000), (60, 1000)]`. After the last step
    its rate goes on; with `repeat` the steps begin again."""
    made = tuple(ScheduleStep(_exact("seconds", seconds), _exact("rows_per_second", rate)) for seconds, rate in steps)
    if not made or any(step.seconds == 0 for step in made):
        raise bad_source(
            "the schedule has no step, or a step of 0 seconds.",
            "Give (seconds, rows per second) for at least one step.",
        )
    return Schedule(made, repeat)


def trace(points: str | Path | Sequence[tuple[float, float]]) -> Schedule:
    """A schedule that was recorded: pairs (seconds since the start, rows per second from then on), or a CSV file with
    the columns seconds and rows_per_second. Before the first point the rate is 0; after the last point its rate goes
    on."""
    pairs = _read_trace(Path(points)) if isinstance(points, str | Path) else points
    exact = [(_exact("seconds", seconds), _exact("rows_per_second", rate)) for seconds, rate in pairs]
    if not exact:
        raise bad_source("the trace has no points.", f"Give at least one pair of {' and '.join(TRACE_COLUMNS)}.")
    if any(earlier >= later for (earlier, _), (later, _) in pairwise(exact)):
        raise bad_source(
            "the seconds of the trace do not rise.", "Order the points by time, and give one point for each moment."
        )
    begin = [ScheduleStep(exact[0][0], Fraction(0))] if exact[0][0] > 0 else []
    middle = [ScheduleStep(later - earlier, rate) for (earlier, rate), (later, _) in pairwise(exact)]
    return Schedule((*begin, *middle, ScheduleStep(Fraction(1), exact[-1][1])))


def _read_trace(path: Path) -> list[tuple[float, float]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [(float(line[TRACE_COLUMNS[0]]), float(line[TRACE_COLUMNS[1]])) for line in csv.DictReader(file)]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise bad_source(
            f'the trace "{path}" cannot be read: {type(error).__name__}: {error}.',
            f"It must be a CSV file with a header and the columns {' and '.join(TRACE_COLUMNS)}.",
        ) from None


def _exact(name: str, value: float) -> Fraction:
    """The number as it is written: who writes 0.1 means one tenth, not its nearest binary fraction."""
    check_number(name, value)
    return Fraction(str(value))


def _not_before(exact: Fraction) -> float:
    """The first float that is not before the exact moment, so that the row is due when asked for then."""
    nearest = float(exact)
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)
