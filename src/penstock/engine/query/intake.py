"""The intake decides when the next micro-batch of a query starts and how much it reads. Spark asks, and the intake lets
Spark wait for the answer.

An operator that has nothing to do costs next to nothing: Spark's question waits here until rows are published. An
operator whose output channels are full is held back here: this is how back-pressure travels up to the sources.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.channels.log import SeenChannels
from penstock.engine.query.pacing import Pacer

#: Seconds that one question of Spark's waits at most, while others may be waiting for this operator's answer.
PATIENCE = 0.5
#: The same for an operator that has answered often enough that there is nothing: every answer costs Spark a round of
#: its loop. Rows, a pause and a stop end the wait at once.
IDLE_PATIENCE = 10.0
#: Seconds that watermarks and timers wait at most for the batch of rows which are there already.
LONGEST_WAIT = 15.0
#: After an operator has answered so often that there is nothing, no more results come of the rows published before.
ENOUGH_EMPTY_POLLS = 2


class IntakeFeed(Protocol):
    """One streaming input of an operator, as far as the intake is concerned."""

    def available(self) -> int:
        """Rows (or whatever the pacer counts) that could be read now."""

    def due_in(self) -> float | None:
        """Seconds until more could be there without anything being published; None if that never happens."""

    def look(self) -> None:
        """Find out what is there, where that may take a while; `available` only counts."""


@dataclass
class BatchProgress:
    """Where an operator is in its micro-batches."""

    started: float | None = None
    last_start: float = 0.0
    last_overhead: float = 0.0
    #: Questions that found nothing since the last batch ended. After two of them Spark has also run the batch without
    #: rows that some stateful operators need to move their watermark.
    empty_polls: int = 0


class Intake:
    """All feeds of one operator, and the gate in front of them."""

    def __init__(
        self,
        channels: SeenChannels,
        output_channels: Sequence[str],
        pacer: Pacer,
        linger: float,
        fail: Callable[[Exception], None],
        *,
        throttle: bool = True,
        stateful: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._channels = channels
        self._outputs = output_channels
        self.pacer = pacer
        self._linger = linger
        self.fail = fail
        self._throttle = throttle
        #: Some stateful operators need another batch after one with rows, to move a watermark, and some have timers:
        #: Spark runs the one and looks at the others when it is told that there is nothing, and must not be made to
        #: wait for that. Where rows wait already, the batch that reads them does it as well.
        self._stateful = stateful
        #: Called when Spark asks what there is: then Spark has finished the batch before, and has written down what it
        #: did in that batch. The argument says whether there was nothing to do the last time that Spark asked.
        self.between_batches: Callable[[bool], None] = lambda idle: None
        self._clock = clock
        self._feeds: list[IntakeFeed] = []
        #: The feeds that Spark has asked about in this round, in the order of Spark's plan, not of the inputs.
        self._asked: list[IntakeFeed] = []
        #: Whether the round of questions that is going on may start a micro-batch.
        self._ready_round = False
        #: Held while a batch is admitted or the gate is closed: after `close` either a batch has begun or none will.
        self._gate = threading.Lock()
        self._open = False
        self.closed = False
        #: Whether no rows are let in for the time being.
        self.paused = False
        self.progress = BatchProgress()
        #: Whether Spark runs a batch that nobody was asked about: for a watermark, for timers, or once more.
        self._unasked = False
        self.throttled = False
        #: Whether there was no room for the output before the batch that began last.
        self.held_back = False
        self._found_no_room = False
        #: Whether all that will ever come is there: then Spark need not be kept waiting for more.
        self.nothing_more = False

    def add(self, feed: IntakeFeed) -> None:
        self._feeds.append(feed)

    def open(self) -> None:
        """Let rows in, unless the intake was closed for good. A query is started with its intake closed, so that its
        state can be placed before its first batch."""
        with self._gate:
            self._open = not self.closed
        self._channels.notify()

    def close(self) -> None:
        """Let no further rows in, for good; a batch that has begun goes on."""
        with self._gate:
            self._open, self.closed = False, True
        self._channels.notify()

    def pause(self, paused: bool = True) -> None:
        """Let no rows in until this is taken back; a batch that has begun goes on."""
        with self._gate:
            self.paused = paused
        self._channels.notify()

    def expect_nothing_more(self) -> None:
        """The rows that are there are all: the operators before this one have ended for good."""
        if not self.nothing_more:
            self.nothing_more = True
            self._channels.notify()

    @property
    def started(self) -> float | None:
        """When the batch that is under way began; None if there is none."""
        return self.progress.started

    @property
    def in_batch(self) -> bool:
        return self.progress.started is not None or self._unasked

    @property
    def idle(self) -> bool:
        """Whether no batch is under way, and no more results come of the rows that are published so far."""
        return not self.in_batch and self.progress.empty_polls >= ENOUGH_EMPTY_POLLS

    def admits(self, feed: IntakeFeed) -> int:
        """How much of this feed the next micro-batch may read. The call waits for rows when there are none. An answer
        above 0 means that the batch has begun."""
        if self._begins_round(feed):
            self.between_batches(self.progress.empty_polls > 0)
            # Spark asks in the middle of a batch only when it has given the batch up. It will replay the batch.
            self._ready_round = self._await_rows() and not self.in_batch
        with self._gate:
            available = feed.available() if self._ready_round and self._open and not self.paused else 0
            if not available:
                return 0
            total = sum(one.available() for one in self._feeds)
            now = self._clock()
            self.progress = BatchProgress(started=now, last_start=now, last_overhead=self.progress.last_overhead)
            self.held_back, self._found_no_room = self._found_no_room, False
            return min(available, max(1, self.pacer.bound() * available // total))

    def nothing_came(self) -> None:
        """Note that what was admitted gave nothing to read: Spark runs no batch then. A kind of source may say that it
        has rows, and then give none."""
        self.progress = BatchProgress(last_start=self.progress.last_start, last_overhead=self.progress.last_overhead)

    def began(self) -> None:
        """Note that Spark has begun a batch of a source that it drives: Spark has asked nobody before."""
        self.progress = BatchProgress(
            started=self._clock(), last_start=self._clock(), last_overhead=self.progress.last_overhead
        )

    def runs(self) -> None:
        """Note that Spark runs a batch now, also one for which it has asked about no rows."""
        self._unasked = self.progress.started is None

    def ended(self, rows: int, busy: float | None) -> float:
        """Note that a micro-batch was published. Returns how many seconds it took."""
        self._unasked = False
        if self.progress.started is None:
            return 0.0
        seconds = self._clock() - self.progress.started
        self.pacer.observe(rows, seconds, busy, sum(feed.available() for feed in self._feeds))
        self.progress = BatchProgress(last_start=self.progress.last_start, last_overhead=self.pacer.overhead or 0.0)
        return seconds

    def _begins_round(self, feed: IntakeFeed) -> bool:
        """Whether this question begins a round. Spark asks about every feed before each micro-batch, so a feed that
        it asks about again is the first of a new round."""
        begins = not self._asked or any(feed is one for one in self._asked)
        self._asked = [feed] if begins else [*self._asked, feed]
        return begins

    def _await_rows(self) -> bool:
        was_closed = self.closed

        def over() -> bool:
            return self._ready() or self._at_the_end() or self.closed != was_closed

        self._look()
        deadline = self._deadline()
        while not self._pause(over, deadline):
            self._look()
        ready = self._ready()
        self.progress.empty_polls += not ready
        return ready

    def _pause(self, over: Callable[[], bool], deadline: float) -> bool:
        """Whether there is nothing to wait for any more. If there is, it waits until something has changed: what comes
        next, and when, is then another question."""
        with self._channels.lock:
            now = self._clock()
            if over() or now >= deadline:
                return True
            self._channels.pause(min(deadline - now, self._next_change(now)))
            return False

    def _deadline(self) -> float:
        """Until when Spark's question may wait for rows."""
        now = self._clock()
        if not self._stateful or self.progress.empty_polls:
            return now + self._patience()
        # The first question after a batch. Without rows Spark moves the watermark at once, in a batch of its own, which
        # costs as much as one with a few rows: rows that came meanwhile would wait for it.
        rows = sum(feed.available() for feed in self._feeds)
        earliest = self._earliest_start(rows)
        return earliest if rows and self._may_start() and earliest < now + LONGEST_WAIT else now

    def _patience(self) -> float:
        idle = self.progress.empty_polls >= ENOUGH_EMPTY_POLLS and not self.closed and not self.nothing_more
        return IDLE_PATIENCE if idle and not self._stateful else PATIENCE

    def _at_the_end(self) -> bool:
        """Whether nothing more will come, and Spark has not been told often enough that there is nothing."""
        return self.nothing_more and self.progress.empty_polls < ENOUGH_EMPTY_POLLS

    def _look(self) -> None:
        if self._open:
            for feed in self._feeds:
                feed.look()

    def _ready(self) -> bool:
        if not self._may_start():
            return False
        rows = sum(feed.available() for feed in self._feeds)
        return rows > 0 and (rows >= self.pacer.bound() or self._clock() >= self._earliest_start(rows))

    def _may_start(self) -> bool:
        self.throttled = self._throttle and any(self._channels.full(channel) for channel in self._outputs)
        self._found_no_room |= self.throttled
        return self._open and not self.paused and not self.throttled

    def _earliest_start(self, rows: int) -> float:
        """When the next batch may start at the earliest, if it is not full. An operator whose rows are not worth one
        yet should not spend more than about half of its time on the fixed cost of batches. When no more rows will come,
        there is nothing to wait for."""
        if self.nothing_more:
            return 0.0
        saved = 0.0 if self.pacer.is_worth_it(rows) else 2 * self.progress.last_overhead
        return self.progress.last_start + max(self._linger, saved)

    def _next_change(self, now: float) -> float:
        if not self._open or self.paused or self.throttled:
            return IDLE_PATIENCE  # whoever makes room says so
        times = [due for feed in self._feeds if (due := feed.due_in()) is not None]
        if rows := sum(feed.available() for feed in self._feeds):
            times.append(self._earliest_start(rows) - now)
        return max(min(times, default=IDLE_PATIENCE), 0.001)
