"""How old a result is that waited for its watermark: as old as the rows that it was made of.

Spark does not say which rows a result is made of. Penstock knows the event times of the rows of every batch, and when
these rows came into the topology. It also knows that a watermark which moves from one event time to another releases
the results in between. So the age of results counts from the rows whose event times lie between the watermark that
released results before and the watermark that releases results now. For windows that follow one another, these are the
rows of the windows that are released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: When rows came into the topology: the first and the last of them, in seconds since the epoch.
Born = tuple[float, float]
#: Batches that are remembered one by one; above that, neighbours are taken together.
MOST_NOTED = 2048


@dataclass(frozen=True)
class _Rows:
    """Rows of a batch, or of several."""

    event_from: float
    event_to: float
    born_from: float
    born_to: float

    def within(self, start: float, stop: float) -> Born | None:
        """When the rows with event times in [start, stop) came into the topology, if rows come in the order of their
        event times; None if there are none."""
        low, high = max(self.event_from, start), min(self.event_to, stop)
        if low > high or self.event_from >= stop:
            return None
        return self._born(low), self._born(high)

    def _born(self, event: float) -> float:
        length = self.event_to - self.event_from
        share = (event - self.event_from) / length if length > 0 else 1.0
        return self.born_from + (self.born_to - self.born_from) * share

    def and_(self, other: _Rows) -> _Rows:
        return _Rows(
            min(self.event_from, other.event_from),
            max(self.event_to, other.event_to),
            min(self.born_from, other.born_from),
            max(self.born_to, other.born_to),
        )


class WindowAges:
    """The ages of one operator's results. It must be told of the operator's batches in their order."""

    def __init__(self) -> None:
        self._noted: list[_Rows] = []
        #: The newest event time of all rows so far, and by how much the watermark stays behind it.
        self._newest = -math.inf
        self._delay: float | None = None
        self._watermark = 0.0
        self._let_out = -math.inf

    def note(self, watermark: float, event_times: tuple[float, float] | None, born: Born | None) -> None:
        """Note that a batch ran with this watermark, on rows of these event times that came into the topology then.
        Both are None for a batch without rows."""
        if watermark > self._watermark and math.isfinite(self._newest):
            self._delay, self._watermark = max(self._newest - watermark, 0.0), watermark
        if event_times is None or born is None:
            return
        self._newest = max(self._newest, event_times[1])
        self._noted.append(_Rows(*event_times, *born))
        if len(self._noted) > MOST_NOTED:
            pairs = zip(self._noted[::2], self._noted[1::2], strict=False)
            odd = self._noted[-1:] if len(self._noted) % 2 else []
            self._noted = [*(one.and_(two) for one, two in pairs), *odd]

    def released(self) -> Born | None:
        """When the rows came into the topology whose results the next batch releases; None if it releases none."""
        found = [
            born for rows in self._noted if (born := rows.within(self._let_out, self._next_watermark())) is not None
        ]
        return (min(born[0] for born in found), max(born[1] for born in found)) if found else None

    def let_out(self) -> None:
        """Note that the batch that was just published had results."""
        self._let_out = max(self._let_out, self._next_watermark())
        self._noted = [rows for rows in self._noted if rows.event_to >= self._let_out]

    def _next_watermark(self) -> float:
        """The watermark of the next batch. Spark moves the watermark when a batch has ended. Until it has moved for the
        first time, it is not known how far it stays behind the newest event time."""
        return self._newest - (self._delay or 0.0)
