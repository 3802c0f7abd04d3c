"""How large the next micro-batch may be, so that it takes about the target interval. No clock: times are handed in."""

from __future__ import annotations

from dataclasses import dataclass, field

#: How much a new measurement of the fixed cost counts against the ones before it.
WEIGHT = 0.4
#: A batch may be at most this many times the one before it: one lucky measurement must not make a batch of minutes.
GROWTH = 4.0
#: And a single slow batch, which may be the machine's fault, at most halves it.
SHRINK = 0.5
FIRST_ROWS = 500
#: The first batch where Spark SQL does the work, for which so many rows are nothing.
FIRST_ROWS_OF_SQL = 20_000


@dataclass
class Pacer:
    """Follows full batches: one that was faster than it should be makes the next larger, a slower one smaller.

    Batches that were not full say nothing about how long a full one takes, unless they were too slow already. `rows`
    may be any measure of work (bytes, for files)."""

    interval: float
    most: int
    #: The size of the first batch, when nothing is known yet.
    first: int = FIRST_ROWS
    #: Seconds of a batch that do not depend on its rows.
    overhead: float | None = None
    _size: float = field(init=False)

    def __post_init__(self) -> None:
        self._size = min(self.first, self.most)

    def bound(self) -> int:
        """The most rows for the next batch."""
        return max(1, int(self._size))

    def observe(self, rows: int, seconds: float, busy: float | None) -> None:
        """A batch of `rows` took `seconds` in all, of which its slowest bundle was busy with rows for `busy`; None
        where Spark did the work, which does not say how much of the time was for rows."""
        if rows <= 0:
            return
        # Where the fixed cost eats the interval, rows still get a fair part: progress matters more than punctuality.
        if busy is None:
            # The fastest batch ever stands for the fixed cost; so many seconds again may go to rows.
            self.overhead = seconds if self.overhead is None else min(seconds, self.overhead)
            took, wanted = seconds - self.overhead, max(self.interval - self.overhead, self.overhead)
        else:
            fixed = max(seconds - busy, 0.0)
            self.overhead = fixed if self.overhead is None else self.overhead + WEIGHT * (fixed - self.overhead)
            took, wanted = busy, max(self.interval - self.overhead, self.interval / 2)
        ratio = max(SHRINK, min(GROWTH, wanted / max(took, 1e-9)))
        if ratio < 1:
            self._size = min(self._size, max(rows * ratio, 1))
        elif rows >= 0.9 * int(self._size):
            self._size = min(self._size * ratio, self.most)
