"""Who works on what: the open batches of one query, dealt share by share to the bundles that stand.

A bundle asks for work when it has none (pull): a faster one asks sooner, so each slot gets rows in proportion to what
it carries. A batch is cut when somebody asks, of what waits then. Where any bundle may have any rows, a batch is one
share for whoever asked. Where keys belong to bundles, or all get all rows, it is one share for each.

Batches are published in the order in which they were cut, so a channel has its rows in the order of the rows that they
were made of, and one position says how far an operator has read. A bundle does not wait for that: it goes on with the
next share. The share of a bundle that is gone goes to another one, and what the lost bundle may still say is refused.

Of the bundles that wait, one is the watcher: it looks what is there, is woken by what happens in the channels, and cuts
the next batch. When it has work it hands its watch over. The others sleep until somebody has work for them: if all of
them were woken by every batch, the driver would do little else.

No Spark, no sockets: whoever speaks for a bundle calls `take`, which waits, and `done`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile

from penstock.channels.log import SeenChannels
from penstock.engine.message.shares import Bundle
from penstock.engine.query.pacing import Pacer
from penstock.engine.standing.batches import CutBatch, Dealt, OpenBatch, Standing, Supply
from penstock.engine.standing.gate import Gate
from penstock.monitor.report import BundleReport

#: Open batches for each bundle: how far the others may run ahead of one that is slow.
AHEAD = 4
#: Rows are not worth another share if they are less work than this, in seconds. While it is not known how much work
#: they are, so many are.
LITTLE_WORK = 0.005
FEW_ROWS = 256
#: The longest that a bundle which waits goes without a look at what no channel tells: a folder, a broker.
PATIENCE = 5.0
#: And the shortest: rows of a rate source are due one by one.
LEAST_PATIENCE = 0.001
#: Who waits for a batch of a source to be worth while looks this often whether it is.
LINGER_LOOK = 0.02


class Dealer(Gate):
    """Of one query. What it knows is guarded by the channels' lock."""

    def __init__(
        self,
        channels: SeenChannels,
        outputs: Sequence[str],
        pacer: Callable[[], Pacer],
        linger: Callable[[], float],
        publish: Callable[[OpenBatch], None],
        *,
        throttle: bool = True,
        first_batch: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(channels, outputs, throttle=throttle)
        self._pacer = pacer
        self._linger = linger
        self._publish = publish
        self._clock = clock
        self._supply: Supply | None = None
        self._next_batch = first_batch
        #: The turn that gets new batches, and its bundles.
        self._turn = -1
        self._bundles: tuple[Bundle, ...] = ()
        self._stands: dict[tuple[int, int], Standing] = {}
        #: In the order in which they were cut. A batch leaves when it is published, in the same moment.
        self._open_batches: deque[OpenBatch] = deque()
        #: Shares that nobody works on: for anyone, and by seat those that are for one bundle only.
        self._for_anyone: deque[Dealt] = deque()
        self._for_one: dict[tuple[int, int], deque[Dealt]] = {}
        #: Which of the bundles that wait has the watch.
        self._watcher: Standing | None = None
        #: Whether some thread looks, cuts or publishes: one at a time for each, without the lock.
        self._looking = self._cutting = self._publishing = False
        #: Since when nobody is on a seat of which the bundle was lost.
        self._empty_since: dict[tuple[int, int], float] = {}
        #: What whoever publishes waits for.
        self._completed = threading.Condition(channels.lock)
        #: What was begun to be cut under another number is not dealt any more.
        self._generation = 0
        #: Bundles were silent so often over what was dropped last, and where that began: it is cut again in other
        #: shares, and whoever gets them may be silent for as long as the one before would have had.
        self._silences, self._dropped_from = 0, 0
        self._last_cut = 0.0
        self._ended = False

    def feed_from(self, supply: Supply) -> None:
        self._supply = supply

    # Bundles come and go

    def stand(self, turn: int, index: int, bundle: Bundle, attempt: int = 0) -> Standing | None:
        """A bundle is there. If there was one on its seat, that one is given up: Spark has started the task again. None
        if the one on its seat is of a later attempt: Spark has given up the one that comes."""
        standing = Standing(turn, index, bundle, self._pacer(), threading.Condition(self._channels.lock), attempt)
        with self._channels.lock:
            before = self._stands.get(standing.seat)
            if before is not None and before.attempt > attempt:
                return None
            if before is not None:
                standing.pacer = before.pacer
                self._give_up(before)
            self._stands[standing.seat] = standing
            self._empty_since.pop(standing.seat, None)
            self._wake_all()
        return standing

    def lost(self, standing: Standing) -> None:
        """A bundle is gone, or has been silent for too long."""
        with self._channels.lock:
            self._give_up(standing)
            if self._stands.get(standing.seat) is standing:
                del self._stands[standing.seat]
                self._empty_since[standing.seat] = self._clock()
            self._wake_all()

    def stands(self, turn: int) -> int:
        """How many bundles of a turn are there."""
        with self._channels.lock:
            return sum(one.turn == turn for one in self._stands.values())

    def deserted(self, seconds: float) -> bool:
        """Whether work waits for a bundle that was lost so many seconds ago, and that Spark has not started again: to
        Spark its task still runs."""
        with self._channels.lock:
            before = self._clock() - seconds
            empty = (seat for seat, since in self._empty_since.items() if since <= before and seat[0] == self._turn)
            return any(self._for_one.get(seat) for seat in empty)

    def serve(self, turn: int, bundles: Sequence[Bundle]) -> None:
        """From now on batches are for the bundles of this turn. Those of the turns before leave when they have done
        what is theirs. What was for a bundle that is gone is cut anew."""
        with self._channels.lock:
            self._turn, self._bundles = turn, tuple(bundles)
            self._empty_since = {seat: since for seat, since in self._empty_since.items() if seat[0] >= turn}
            if self._supply is not None and not self._supply.any_bundle:
                self._generation += 1  # a batch that is being cut is for bundles that are about to leave
            self._for_one = {seat: queue for seat, queue in self._for_one.items() if queue}
            if any(seat not in self._stands for seat in self._for_one):
                self._start_anew()
            self._wake_all()

    def end(self, seconds: float = 0.0) -> bool:
        """All bundles leave, whatever waits for them, and nothing more is published. Waits so long for a thread that
        looks, cuts or publishes; False if one still does."""
        deadline = self._clock() + seconds
        with self._channels.lock:
            self._ended = True
            self._completed.notify_all()
            self._wake_all()
            while self._is_at_work and self._clock() < deadline:
                self._channels.pause(deadline - self._clock())
            return not self._is_at_work

    @property
    def _is_at_work(self) -> bool:
        return self._looking or self._cutting or self._publishing

    # Work

    def take(self, standing: Standing) -> Dealt | None:
        """The next share for a bundle, for which this may wait; None: it is to leave."""
        with self._channels.lock:
            standing.asks = True
        try:
            while True:
                with self._channels.lock:
                    if self._has_found(standing):
                        return self._waiting_for(standing)
                    if not self._watches(standing):
                        standing.woken.wait(PATIENCE)
                        continue
                self._look()
                with self._channels.lock:
                    may_cut = self._may_cut(standing)
                    if not may_cut and not self._has_found(standing):
                        self._channels.pause(self._patience())
                if may_cut:
                    self._cut(standing)
        finally:
            with self._channels.lock:
                standing.asks = False
                if self._watcher in (standing, None):
                    self._hand_over()

    def done(self, standing: Standing, reports: tuple[BundleReport, ...]) -> bool:
        """A bundle has done its share; False if its result is not wanted any more. The bundle does not wait until its
        batch is published: that is for the thread which calls `publish_next`."""
        with self._channels.lock:
            dealt, standing.work = standing.work, None
            if dealt is None or standing.gone or self._ended:
                return False
            dealt.batch.reports[dealt.part] = reports
            work = dealt.share.work
            if work is None:
                work = sum(one.rows_in for one in reports[:1])
            busy = sum(one.busy for one in reports)
            waiting = self._supply.available() if self._supply is not None else 0
            standing.pacer.observe(work, self._clock() - standing.taken_at, busy, waiting)
            self._completed.notify_all()
        return True

    def publish_next(self, seconds: float) -> bool:
        """Publish the next batch. Waits so long until it is complete and all before it are published; False if it is
        not, or nothing more is to be published. One thread calls this."""
        with self._channels.lock:
            self._completed.wait_for(lambda: self._ended or self._complete(), seconds)
            ready = [] if self._ended else self._complete()[:1]
            if not ready:
                return False
            self._publishing = True
        published = False
        try:
            self._publish(ready[0])
            published = True
        finally:
            with self._channels.lock:
                self._publishing = False
                if published and self._open_batches.popleft().number >= self._dropped_from:
                    self._silences = 0
                self._channels.notify()
        return True

    # What it looks like

    @property
    def serves(self) -> int:
        """The turn whose bundles get new batches; -1 before the first."""
        return self._turn

    @property
    def in_batch(self) -> bool:
        """Whether a batch is open, or being cut."""
        with self._channels.lock:
            return bool(self._open_batches) or self._cutting

    @property
    def idle(self) -> bool:
        """No batch is open. Whether there are rows to come, the feed knows."""
        return not self.in_batch

    @property
    def lingers(self) -> bool:
        """Whether the next batch waits for more rows, by choice."""
        return self._clock() < self._earliest_cut()

    @property
    def started(self) -> float | None:
        """When the oldest open batch was cut."""
        with self._channels.lock:
            return self._open_batches[0].started if self._open_batches else None

    # Who waits and who is woken, with the lock held

    def _watches(self, standing: Standing) -> bool:
        """Whether a bundle has the watch, or takes it because nobody has it. It must be one that may cut."""
        if self._watcher is None and standing.turn == self._turn and not standing.gone:
            self._watcher = standing
        return self._watcher is standing

    def _hand_over(self) -> None:
        """The watcher has work, or leaves: another one that waits has the watch now. It is the one that has had no work
        for the longest time: where rows are few, all bundles have some in turn."""
        waiting = (one for one in self._stands.values() if one.asks and one.work is None and one.turn == self._turn)
        self._watcher = min(waiting, key=lambda one: one.taken_at, default=None)
        if self._watcher is not None:
            self._watcher.woken.notify_all()

    def _wake_all(self) -> None:
        """Something has changed that concerns all who wait, whoever they wait for."""
        self._channels.notify()
        for one in self._stands.values():
            one.woken.notify_all()

    def _patience(self) -> float:
        """How long the watcher waits, if nobody says that something has changed."""
        supply = self._supply
        if supply is None or not self.is_open or self.paused:
            return PATIENCE
        lingers, due = self._earliest_cut() - self._clock(), supply.due_in()
        if not supply.available():
            wait = PATIENCE if due is None else max(due, lingers)
        elif lingers > 0:  # a source's rows may be enough before, and nobody says so
            wait = lingers if due is None else min(lingers, LINGER_LOOK)
        else:
            wait = PATIENCE  # there is no room, or others are too far behind: they say when they are not
        return max(min(wait, PATIENCE), LEAST_PATIENCE)

    # Parts of the above, with the lock held

    def _give_up(self, standing: Standing) -> None:
        standing.gone = True
        standing.woken.notify_all()
        dealt, standing.work = standing.work, None
        if dealt is not None and dealt.batch in self._open_batches:
            self._put_back(dealt, standing.seat)

    def _put_back(self, dealt: Dealt, seat: tuple[int, int]) -> None:
        if self._supply is None or self._supply.any_bundle:
            self._for_anyone.appendleft(dealt)
            return
        self._for_one.setdefault(seat, deque()).appendleft(dealt)
        if seat[0] < self._turn:
            self._start_anew()  # nobody will come to this seat again

    def _start_anew(self) -> None:
        """Forget what was cut and cannot be published yet: it will be cut again."""
        kept = self._complete()
        dropped = list(self._open_batches)[len(kept) :]
        self._generation += 1
        if dropped:
            self._silences = max([self._silences, *(one.silences for one in self._dealt_of(dropped))])
            self._dropped_from = dropped[0].number
            self._next_batch = dropped[0].number
            self._open_batches = deque(kept)
        self._go_back()
        self._for_anyone.clear()
        self._for_one.clear()
        for one in self._stands.values():
            if one.work is not None and one.work.batch not in kept:
                one.work = None

    def _dealt_of(self, batches: Sequence[OpenBatch]) -> list[Dealt]:
        """The shares of these batches that are not done."""
        waiting = [one for queue in (self._for_anyone, *self._for_one.values()) for one in queue]
        in_work = [one.work for one in self._stands.values() if one.work is not None]
        return [one for one in (*waiting, *in_work) if one.batch in batches]

    def _go_back(self) -> None:
        """Have the next batch begin where the last open one ends."""
        if self._supply is not None:
            self._supply.go_back(self._open_batches[-1].cut.ends if self._open_batches else None)

    def _complete(self) -> list[OpenBatch]:
        """The batches that can be published: those before which none is incomplete."""
        return list(takewhile(lambda one: one.complete, self._open_batches))

    def _has_found(self, standing: Standing) -> bool:
        """Whether a bundle that waits need not wait any longer: there is work for it, or it is to leave."""
        return bool(self._queue_of(standing)) or self._leaves(standing)

    def _queue_of(self, standing: Standing) -> deque[Dealt] | None:
        """The shares that a bundle may take."""
        queue = self._for_one.get(standing.seat)
        return self._for_anyone if not queue and standing.turn == self._turn else queue

    def _waiting_for(self, standing: Standing) -> Dealt | None:
        queue = self._queue_of(standing)
        if not queue or standing.gone or self._ended:
            return None
        dealt = queue.popleft()
        dealt.share = replace(dealt.share, bundle=standing.bundle)
        standing.work, standing.taken_at = dealt, self._clock()
        return dealt

    def _leaves(self, standing: Standing) -> bool:
        return self._ended or standing.gone or standing.turn < self._turn

    def _may_cut(self, standing: Standing) -> bool:
        supply = self._supply
        if supply is None or self._ended or self._cutting or not self.lets_in():
            return False
        if standing.turn != self._turn or standing.gone:
            return False
        if len(self._open_batches) >= AHEAD * len(self._bundles):
            return False
        if not supply.any_bundle and self._open_batches and self._open_batches[0].turn != self._turn:
            return False  # keys change hands only when what was read of them before is published
        rows = supply.available()
        return rows > 0 and (rows >= self._bound(standing) or self._clock() >= self._earliest_cut())

    def _is_full(self, channel: str) -> bool:
        """What bundles have written counts, also while it waits to be published. What is published counts already."""
        last = self._channels.last_batch
        waiting = (batch for batch in self._open_batches if last is None or batch.number > last)
        reports = (one for batch in waiting for found in batch.reports for one in found or ())
        coming = [segment for one in reports for segment in one.segments if segment.channel == channel]
        return self._channels.full(channel, coming)

    def _bound(self, standing: Standing) -> int:
        """The most that the next batch may read."""
        supply = self._supply
        if supply is None or supply.any_bundle:
            return standing.pacer.bound()
        instances = sum(bundle.instances for bundle in self._bundles)
        here = [one for one in self._stands.values() if one.turn == self._turn]
        return min(one.pacer.bound() * instances // max(one.bundle.instances, 1) for one in here)

    def _earliest_cut(self) -> float:
        return 0.0 if self.nothing_more else self._last_cut + self._linger()

    def _deal(self, cut: CutBatch, turn: int, bundles: Sequence[Bundle], is_last: bool) -> None:
        """`is_last`: no rows were left for other bundles that wait. Otherwise those take them at once: rows linger
        once, not once for every bundle."""
        batch = OpenBatch(self._next_batch, cut, turn, self._clock(), [None] * len(cut.shares))
        self._next_batch = batch.number + 1
        if is_last:
            self._last_cut = batch.started
        self._open_batches.append(batch)
        for part, share in enumerate(cut.shares):
            dealt = Dealt(batch, part, share, self._silences)
            if self._supply is not None and self._supply.any_bundle:
                self._for_anyone.append(dealt)
                continue  # who has cut it takes it
            seat = turn, bundles.index(share.bundle)
            self._for_one.setdefault(seat, deque()).append(dealt)
            if seat in self._stands:
                self._stands[seat].woken.notify_all()

    # Parts of the above, without the lock

    def _look(self) -> None:
        """The watcher looks what is there; nobody else does."""
        with self._channels.lock:
            supply = self._supply
            if supply is None or not self.is_open or self._ended or self._looking:
                return
            self._looking = True
        try:
            supply.look()
        finally:
            with self._channels.lock:
                self._looking = False
                if self._ended:
                    self._channels.notify()  # somebody waits for that

    def _cut(self, standing: Standing) -> None:
        """Cut a batch, without the lock: that may take a look at files."""
        supply = self._supply
        with self._channels.lock:
            if supply is None or not self._may_cut(standing):
                return
            self._cutting = True
            self.held_back, self.found_no_room = self.found_no_room, False
            most, bundles = self._bound(standing), self._bundles
            turn, generation, is_last = self._turn, self._generation, True
            if supply.any_bundle:
                bundles = (standing.bundle,)
                asking = sum(one.bundle.instances for one in self._stands.values() if one.asks and one.turn == turn)
                fair = -(-supply.available() * standing.bundle.instances // max(asking, 1))
                share = max(fair, standing.pacer.rows_in(LITTLE_WORK) or FEW_ROWS)
                is_last = asking <= standing.bundle.instances or supply.available() <= share
                most = min(most, share)
        cut = None
        try:
            cut = supply.cut(most, bundles)
        finally:
            with self._channels.lock:
                self._cutting = False
                if self._ended:
                    self._channels.notify()  # somebody waits for that
                if generation != self._generation:
                    self._go_back()
                elif cut is not None:
                    self._deal(cut, turn, bundles, is_last)
                else:
                    # A kind of source that says it has rows, and then gives none, is not asked again at once.
                    self._channels.pause(LINGER_LOOK)
