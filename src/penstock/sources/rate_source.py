"""Made-up rows, so many a second: to try a topology out, and to measure it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.kinds import BadRow, Offset, Offsets, Range, SourceKind, SourcePlace
from penstock.sources.content import Content, numbers
from penstock.sources.mistakes import bad_source, check_whole
from penstock.sources.schedule import Schedule, constant

#: Rows are made in batches of this many.
BATCH_ROWS = 65_536


def rate(rows_per_second: float | Schedule, content: Content | None = None, rows: int | None = None) -> RateSource:
    """A source of made-up rows. They come at a rate, or by a schedule: `constant`, `stepped` or `trace`. `content` says
    what the rows hold (`numbers()`, unless given). After `rows` rows the source ends."""
    schedule = rows_per_second if isinstance(rows_per_second, Schedule) else constant(rows_per_second)
    made = numbers() if content is None else content
    if not (hasattr(made, "schema") and hasattr(made, "rows")):
        raise bad_source(
            f"the content of the source is a {type(made).__name__}.",
            "Use one of sources.sentences(), numbers(), events(), columns(...), generated(...).",
        )
    if rows is not None:
        check_whole("rows", rows)
    return RateSource(schedule, made, rows)


@dataclass(frozen=True)
class RateSource(SourceKind):
    schedule: Schedule
    content: Content
    #: After this many rows the source has ended.
    rows: int | None = None
    schema: pa.Schema = field(init=False, repr=False, compare=False)

    kind = "rate"

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", self.content.schema)

    @property
    def ends(self) -> bool:
        return self.rows is not None

    def due(self, elapsed: float) -> int:
        """How many rows should have been given so many seconds after the start."""
        due = self.schedule.due(elapsed)
        return due if self.rows is None else min(due, self.rows)

    def rows_due(self, elapsed: float) -> list[pa.RecordBatch]:
        due = self.due(elapsed)
        return [self.content.rows(0, due)] if due else []

    def describe(self) -> Mapping[str, Any]:
        return {
            "kind": self.kind,
            "schedule": self.schedule.describe(),
            "rows": self.rows,
            "content": self.content.describe(),
        }

    def offsets(self, place: SourcePlace) -> RateOffsets:
        return RateOffsets(self, place)

    def read(self, load: Any, bad_row: BadRow | None) -> Iterator[pa.RecordBatch]:
        """Rows [first, stop) of the content, made here and now."""
        first, stop = load
        for start in range(first, stop, BATCH_ROWS):
            yield self.content.rows(start, min(BATCH_ROWS, stop - start))


class RateOffsets(Offsets):
    """Rows that are due by the schedule. The offset is the number of rows emitted.

    The schedule's clock starts anew where the rows left off when a topology is started again: the time that it was down
    is not caught up on. Within a run it goes on, also while the source's query is replaced by another: the memory of
    the run has the time at which it began. Rows that are due but held back stay due, and count as demand that is not
    met."""

    def __init__(self, source: RateSource, place: SourcePlace) -> None:
        self._source = source
        self._name = place.operator
        self._memory = place.memory
        self._clock = place.clock
        self.position: int = 0

    def available(self) -> int:
        return max(self._source.due(max(self._clock() - self._started(), 0.0)) - self.position, 0)

    def due_in(self) -> float | None:
        return None if self.ended else self._born(self.position) - self._clock()

    @property
    def unmet(self) -> int:
        return self.available()

    @property
    def ended(self) -> bool:
        return self._source.rows is not None and self.position >= self._source.rows

    def end(self, most: int, instances: int) -> Offset | None:
        return self.position + most or None

    def ranges(self, start: Offset | None, end: Offset, instances: int) -> Sequence[Range]:
        first, stop = int(start or 0), int(end)
        bounds = [first + (stop - first) * index // instances for index in range(instances + 1)]
        return [
            Range([low, high], high - low, self._born(low), self._born(high - 1))
            for low, high in pairwise(bounds)
            if low < high
        ]

    def _born(self, row: int) -> float:
        """When a row is due: what it waits for after that counts as latency, also if the source was held back."""
        return self._started() + self._source.schedule.when(row + 1)

    def _started(self) -> float:
        """The time at which the schedule began, as if it had been running up to the present position all along."""
        if "began" not in self._memory:
            so_far = self._source.schedule.when(self.position) if self.position else 0.0
            if not math.isfinite(so_far):
                raise PenstockError(
                    "STATE_DOES_NOT_FIT",
                    f'"{self._name}" has emitted {self.position:,} rows, but its schedule never emits so many.',
                    "Undo the change of the schedule, or start with a new state folder.",
                )
            self._memory["began"] = self._clock() - so_far
        return float(self._memory["began"])
