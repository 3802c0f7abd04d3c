"""How large the next batch may be, so that it takes about the target interval. No clock is read: it gets all times."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from penstock.kinds import Unit
from penstock.settings import Settings
from penstock.topology.definition import Keyed, Operator, Source

#: How much a new measurement of the fixed cost counts against the ones before it.
WEIGHT = 0.4
#: A batch may be at most this many times as large as the batch before it: one lucky measurement must not make a batch
#: that takes minutes.
GROWTH = 4.0
#: Of Spark SQL, a batch of less than this share of a full one says nothing about full ones.
ENOUGH = 0.05
#: Batches of which the largest has not so many times the rows of the smallest are of about the same size.
ALIKE = 1.5
#: A batch of Spark SQL that takes so many times what was expected says that rows cost more than they did.
SURPRISE = 2.0
#: While more rows come than are worked off, they get so many times the time of Spark SQL's fixed cost.
PRESSED_SHARE = 2.5
#: So many batches of Spark SQL say what the next one will take: more would remember what Java's compiler has mended.
REMEMBERED = 6
#: Rows are worth a batch if they are so much of a full one, or so much work beside its fixed cost.
WORTH = 0.1
#: A single slow batch, which may be the machine's fault, at most halves the size of the next batch.
SHRINK = 0.5
FIRST_ROWS = 500
#: Under more load than is worked off, batches grow until their fixed cost is no more than this share of them; step by
#: step, and back again when nothing waits.
FIXED_SHARE = 0.04
LONGER = 2.0
SHORTER = 0.7
#: The rows of the first batch where Spark SQL does the work: that takes Spark seconds, however few they are, and where
#: rows come fast, the next batch is to catch up.
FIRST_ROWS_OF_SQL = 100_000


@dataclass
class Pacer:
    """Learns from full batches: a batch that was faster than it should be makes the next batch larger, a slower one
    makes it smaller.

    Batches that were not full say nothing about how long a full one takes, unless they were too slow already. `rows`
    may be any measure of work (bytes, for files).

    Where another full batch waits behind each, latency is lost already, and longer batches win throughput: then the
    interval grows up to the longest."""

    interval: float
    most: int
    #: The size of the first batch, when nothing is known yet.
    first: int = FIRST_ROWS
    #: Seconds of a batch that do not depend on its rows.
    overhead: float | None = None
    #: The longest that a batch should take under any load; None is the interval.
    longest: float | None = None
    #: Seconds of work that a row takes; None while nothing is known.
    per_row: float | None = None
    #: The last batches of Spark SQL: rows and seconds.
    _seen: deque[tuple[int, float]] = field(init=False, default_factory=lambda: deque(maxlen=REMEMBERED))
    #: Whether the last batch of Spark SQL took much longer than expected.
    _surprised: bool = field(init=False, default=False)
    _size: float = field(init=False)
    _target: float = field(init=False)

    def __post_init__(self) -> None:
        self._size = min(self.first, self.most)
        self._target = self.interval

    def bound(self) -> int:
        """The most rows for the next batch."""
        return max(1, int(self._size))

    def rows_that_take(self, seconds: float) -> int | None:
        """How many rows are so much work; None while nothing is known."""
        return None if self.per_row is None else max(1, int(seconds / max(self.per_row, 1e-9)))

    def is_worth_it(self, rows: int) -> bool:
        """Whether so many rows are worth the fixed cost of a batch: they are part of a full one, or work enough."""
        is_work = self.per_row is not None and rows * self.per_row >= WORTH * (self.overhead or 0.0) > 0
        return is_work or rows >= WORTH * self.bound()

    def observe(self, rows: int, seconds: float, busy: float | None, waiting: int = 0) -> None:
        """A batch of `rows` took `seconds` in all, of which its slowest bundle was busy with rows for `busy`; None
        where Spark did the work, which does not say how much of the time was for rows. So many are `waiting` now."""
        if rows <= 0:
            return
        full = rows >= 0.9 * int(self._size)
        if busy is None:
            if self._is_doubtful(rows, seconds):
                self._size = max(self._size * SHRINK, 1) if full else self._size
                return
            overhead = self._observe_sql(rows, seconds)
        else:
            fixed = max(seconds - busy, 0.0)
            seen = busy / rows
            self.per_row = seen if self.per_row is None else self.per_row + WEIGHT * (seen - self.per_row)
            overhead = fixed if self.overhead is None else self.overhead + WEIGHT * (fixed - self.overhead)
        self.overhead = overhead
        pressed = full and waiting >= rows
        self._aim(pressed)
        # Where the fixed cost uses up the interval, rows still get a fair part: progress matters more than punctuality.
        if busy is None:
            least = overhead * (PRESSED_SHARE if pressed else 1.0)
            took, wanted = rows * (self.per_row or 0.0), max(self._target - overhead, least)
        else:
            took, wanted = busy, max(self._target - overhead, self._target / 2)
        growth = GROWTH
        if busy is None and not self.per_row and seconds > max(self.longest or 0.0, self.interval):
            growth = ALIKE  # enough to learn what rows cost: all that is known is that a batch of them takes long
        ratio = max(SHRINK, min(growth, wanted / max(took, 1e-9)))
        if ratio < 1:
            self._size = min(self._size, max(rows * ratio, 1))
        elif full:
            # A batch may have been larger than asked for: files are read whole.
            self._size = min(max(self._size, rows) * ratio, self.most)

    def _is_doubtful(self, rows: int, seconds: float) -> bool:
        """Whether a batch of Spark SQL took much longer than expected, and the one before it did not. One slow batch
        may be the machine's fault. Held against its rows, a few of them would make all batches small for good."""
        if rows < ENOUGH * self._size:
            return False
        before, self._surprised = self._surprised, self._is_surprise(rows, seconds)
        return self._surprised and not before

    def _is_surprise(self, rows: int, seconds: float) -> bool:
        expected = (self.overhead or 0.0) + (self.per_row or 0.0) * rows
        return len(self._seen) > 1 and seconds > SURPRISE * expected

    def _observe_sql(self, rows: int, seconds: float) -> float:
        """The seconds of a batch that do not depend on its rows, as the last batches tell."""
        if rows < ENOUGH * self._size:
            # Such a batch may have touched a few keys of many: it says how cheap a batch can be, and no more.
            return seconds if self.overhead is None else min(seconds, self.overhead)
        before = self.overhead or 0.0
        if self._surprised:
            # Rows cost more than they did: the state has outgrown its cache, say, or a slot has gone. What was seen
            # until now does not count any more, and what is more is held against the rows.
            self._seen.clear()
        self._seen.append((rows, seconds))
        if self._surprised:
            self.per_row = (seconds - before) / rows
            return before
        overhead, self.per_row = _line_through(self._seen, self.per_row or 0.0)
        return overhead

    def _aim(self, pressed: bool) -> None:
        if not pressed:
            self._target = max(self.interval, self._target * SHORTER)
            return
        enough = max(self.interval, (self.overhead or 0.0) / FIXED_SHARE)
        self._target = min(self._target * LONGER, enough, max(self.longest or 0.0, self.interval))


def _line_through(seen: Collection[tuple[int, float]], per_row: float) -> tuple[float, float]:
    """What batches cost by themselves, and what a row costs, by the straight line through the last batches. In batches
    of about the same size nobody can tell the two apart: then a row costs what it did before, or less if a batch took
    less than that for its rows, and the fastest batch says the rest."""
    most, least = max(rows for rows, _ in seen), min(rows for rows, _ in seen)
    fastest = min(seconds for _, seconds in seen)
    rows, seconds = (sum(values) / len(seen) for values in zip(*seen, strict=True))
    if most < ALIKE * least:
        per_row = min(per_row, *(took / one for one, took in seen))
        return max(fastest - per_row * rows, 0.0), per_row
    spread = sum((one - rows) ** 2 for one, _ in seen)
    per_row = max(sum((one - rows) * (took - seconds) for one, took in seen) / spread, 0.0)
    return max(min(seconds - per_row * rows, fastest), 0.0), per_row


def pacer_of(operator: Operator, settings: Settings) -> Pacer:
    """The pacer of the query of an operator, or of a chain that begins with this operator."""
    longest = settings.latency_with_backlog
    if isinstance(operator, Source):
        spec = operator.spec
        most = settings.rows_at_once if spec.unit is Unit.ROWS else settings.bytes_at_once
        return Pacer(settings.latency_under_load, most, spec.first_batch or FIRST_ROWS, longest=longest)
    if isinstance(operator, Keyed) or getattr(operator, "takes_dataframes", False):
        return Pacer(settings.latency_under_load, settings.rows_at_once, FIRST_ROWS_OF_SQL, longest=longest)
    return Pacer(settings.latency_under_load, settings.rows_at_once, longest=longest)
