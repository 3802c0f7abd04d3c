"""How large the next micro-batch may be, so that it takes about the target interval. No clock: times are handed in."""

from __future__ import annotations

from dataclasses import dataclass

#: How much a new measurement counts against the ones before it.
WEIGHT = 0.4
#: A batch may be at most this many times the one before it: one lucky measurement must not make a batch of minutes.
GROWTH = 4.0
FIRST_ROWS = 500


@dataclass
class Pacer:
    """Learns what a row and a batch cost. `rows` may be any measure of work (bytes, for files)."""

    interval: float
    most: int
    #: The size of the first batch, when nothing is known yet.
    first: int = FIRST_ROWS
    seconds_per_row: float | None = None
    overhead: float = 0.0
    largest: int = 0

    def bound(self) -> int:
        """The most rows for the next batch."""
        if self.seconds_per_row is None:
            return min(self.first, self.most)
        # Where the fixed cost eats the interval, half of it still goes to rows: progress matters more than punctuality.
        seconds_for_rows = max(self.interval - self.overhead, self.interval / 2)
        affordable = seconds_for_rows / max(self.seconds_per_row, 1e-9)
        return max(1, int(min(affordable, GROWTH * max(self.largest, self.first), self.most)))

    def observe(self, rows: int, seconds: float, busy: float) -> None:
        """A batch of `rows` took `seconds` in all, of which its slowest bundle was busy with rows for `busy`."""
        if rows <= 0:
            return
        busy = min(busy, seconds)
        if self.seconds_per_row is None:
            self.seconds_per_row, self.overhead = busy / rows, seconds - busy
        else:
            self.seconds_per_row += WEIGHT * (busy / rows - self.seconds_per_row)
            self.overhead += WEIGHT * (seconds - busy - self.overhead)
        self.largest = max(rows, int(self.largest * 0.9))
