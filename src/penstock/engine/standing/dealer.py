"""Who works on what: batches are cut of what waits, and dealt share by share to the bundles of one query that stand.

A bundle asks for work when it has none (pull): a faster one asks sooner, so each slot gets rows in proportion to what
it carries. A batch is cut when somebody asks, of what waits then. Where any bundle may have any rows, a batch is one
share for whoever asked. Where keys belong to bundles, or all get all rows, it is one share for each.

Batches are published in the order in which they were cut, so a channel has its rows in the order of the rows that they
were made of, and one position says how far an operator has read. A bundle does not wait for that: it goes on with the
next share. The share of a bundle that is gone goes to another one, and what the lost bundle may still say is refused.

The dealer joins three parts, and holds the channels' lock when it calls them: the roster knows who stands on which
seat, the open batches whose share is whose, and the watch which of those that wait looks what is there.

No Spark, no sockets: whoever speaks for a bundle calls `take`, which waits, and `done`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from penstock.channels.log import SeenChannels
from penstock.engine.message.shares import Bundle
from penstock.engine.query.pacing import Pacer
from penstock.engine.standing.batches import Dealt, OpenBatch, Standing, Supply
from penstock.engine.standing.gate import Gate
from penstock.engine.standing.open_batches import OpenBatches
from penstock.engine.standing.roster import Roster
from penstock.engine.standing.speeds import Speeds
from penstock.engine.standing.waits import Reason, Waits
from penstock.engine.standing.watch import LINGER_LOOK, PATIENCE, Watch, patience
from penstock.monitor.report import BundleReport
from penstock.monitor.sample import Waited

#: Open batches for each bundle: how far the others may run ahead of one that is slow.
AHEAD = 4
#: Rows are not worth another share if they are less work than this, in seconds. While it is not known how much work
#: they are, so many are.
LITTLE_WORK = 0.005
FEW_ROWS = 256
#: More are worth another share whatever their work: to read and to write them is not counted as work.
MOST_FEW_ROWS = 16_384
#: How much the newest share says about what a share costs.
COST_WEIGHT = 0.1
#: So many batches that wait to be published share one transaction. More would save little, and keep others waiting.
TOGETHER = 16


class Dealer(Gate):
    """Of one query. What it knows is guarded by the channels' lock."""

    def __init__(
        self,
        channels: SeenChannels,
        outputs: Sequence[str],
        pacer: Callable[[], Pacer],
        linger: Callable[[], float],
        publish: Callable[[Sequence[OpenBatch]], None],
        *,
        throttle: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(channels, outputs, throttle=throttle)
        self._pacer = pacer
        self._linger = linger
        #: Publishes batches in one transaction: all of them, or none.
        self._publish = publish
        self._clock = clock
        self._roster = Roster()
        self._batches = OpenBatches(self._roster)
        self._watch = Watch(channels, self._roster)
        self._waits = Waits()
        self._speeds = Speeds()
        #: Whether some thread looks, cuts or publishes: one at a time for each, without the lock.
        self._looking = self._cutting = self._publishing = False
        #: Whether a bundle has stood, and found out what is there.
        self._has_looked = False
        #: What whoever publishes waits for.
        self._completed = threading.Condition(channels.lock)
        self._last_cut = 0.0
        self._cost_of_a_share: float | None = None
        self._ended = False

    def feed_from(self, supply: Supply, first_batch: int = 0) -> None:
        """Batches are cut of this supply from now on. `first_batch` is the number of the first."""
        self._batches.begin(supply, first_batch)

    # Bundles come and go

    def stand(self, turn: int, index: int, bundle: Bundle, attempt: int = 0) -> Standing | None:
        """A bundle is there. If there was one on its seat, that one is given up: Spark has started the task again. None
        if the one on its seat is of a later attempt: Spark has given up the one that comes."""
        standing = Standing(turn, index, bundle, self._pacer(), threading.Condition(self._channels.lock), attempt)
        with self._channels.lock:
            before = self._roster.on(standing.seat)
            if before is not None and before.attempt > attempt:
                return None
            if before is not None:
                standing.pacer = before.pacer
                self._give_up(before)
            self._roster.sit(standing)
            self._watch.wake_all()
        return standing

    def lost(self, standing: Standing) -> None:
        """A bundle is gone, or has been silent for too long."""
        with self._channels.lock:
            self._give_up(standing)
            self._roster.leave(standing, self._clock())
            self._watch.wake_all()

    def stands(self, turn: int) -> int:
        """How many bundles of a turn are there."""
        with self._channels.lock:
            return len(self._roster.of(turn))

    def deserted(self, seconds: float) -> bool:
        """Whether work waits for a bundle that was lost so many seconds ago, and that Spark has not started again: to
        Spark its task still runs. Or for one that never came. The same if any bundle would do, and nobody stands."""
        with self._channels.lock:
            empty = self._roster.empty(self._clock() - seconds)
            nobody = bool(empty) and not self._roster.of(self._roster.turn)
            return nobody or self._batches.waits_for(empty)

    def serve(self, turn: int, bundles: Sequence[Bundle]) -> None:
        """From now on batches are for the bundles of this turn. Those of the turns before leave when they have done
        what is theirs. What was for a bundle that is gone is cut anew."""
        with self._channels.lock:
            self._roster.serve(turn, bundles, self._clock())
            self._batches.serve()
            self._waits.serve(turn, self._clock())
            self._watch.wake_all()

    def end(self, seconds: float = 0.0) -> bool:
        """All bundles leave, whatever waits for them, and nothing more is published. Waits so long for a thread that
        looks, cuts or publishes; False if one still does."""
        deadline = self._clock() + seconds
        with self._channels.lock:
            self._ended = True
            self._completed.notify_all()
            self._watch.wake_all()
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
            self._waits.begin(standing, self._clock())
        try:
            while True:
                with self._channels.lock:
                    if self._has_found(standing):
                        return self._found(standing)
                    if not self._watch.has(standing):
                        standing.woken.wait(PATIENCE)
                        continue
                self._look()
                with self._channels.lock:
                    # Asked once: how long rows linger may change at any moment, and what the watcher waits for must be
                    # what it was refused for.
                    earliest = self._earliest_cut()
                    wait = self._patience(earliest)
                    # Asked after that: rows that have lingered long enough since would otherwise be waited for.
                    may_cut = self._may_cut(standing, earliest)
                    self._waits.because(None if may_cut else self._why_not(), self._clock())
                    if not may_cut and not self._has_found(standing):
                        self._channels.pause(wait)
                if may_cut:
                    self._cut(standing, earliest)
        finally:
            with self._channels.lock:
                standing.asks = False
                self._waits.end(standing, self._clock())
                self._watch.leave(standing)

    def done(self, standing: Standing, reports: tuple[BundleReport, ...]) -> bool:
        """A bundle has done its share; False if its result is not wanted any more. The bundle does not wait until its
        batch is published: that is for the thread which calls `publish_next`."""
        with self._channels.lock:
            dealt, standing.work = standing.work, None
            if dealt is None or standing.gone or self._ended:
                return False
            seconds = self._clock() - standing.taken_at
            reports = self._waits.told_with(standing, reports, seconds)
            self._batches.work_off(dealt.batch, dealt.part, reports)
            work = self._work_of(dealt, standing, reports)
            busy = sum(one.busy for one in reports)
            supply = self._batches.supply
            waiting = self._part_of(supply.available(), standing) if supply is not None else 0
            standing.pacer.observe(work, seconds, busy, waiting)
            self._observe_speed(dealt, standing, seconds)
            cost, before = max(seconds - busy, 0.0), self._cost_of_a_share
            self._cost_of_a_share = cost if before is None else before + COST_WEIGHT * (cost - before)
            self._completed.notify_all()
            if self._batches.spans_turns:
                self._watch.wake_all()  # somebody may have waited for this share
        return True

    def publish_next(self, seconds: float, most: int = TOGETHER) -> bool:
        """Publish the next batch, and those behind it that are complete too, so many at most. Waits so long until the
        next one is complete; False if it is not, or nothing more is to be published. One thread calls this."""
        with self._channels.lock:
            self._completed.wait_for(lambda: self._ended or self._batches.complete(), seconds)
            ready = [] if self._ended else self._batches.complete()[:most]
            if not ready:
                return False
            self._publishing = True
        published = False
        try:
            self._publish(ready)
            published = True
        finally:
            with self._channels.lock:
                self._publishing = False
                # Waking a thread is among the dearest things that the driver does for a batch.
                somebody_waits, spans_turns = self._ended or self._is_too_far_ahead(), self._batches.spans_turns
                for _ in ready if published else ():
                    self._batches.published()
                if spans_turns:
                    self._watch.wake_all()
                elif somebody_waits:
                    self._channels.notify()
        return True

    # What it looks like

    @property
    def serves(self) -> int:
        """The turn whose bundles get new batches; -1 before the first."""
        return self._roster.turn

    @property
    def in_batch(self) -> bool:
        """Whether a batch is open, or being cut."""
        with self._channels.lock:
            return bool(self._batches) or self._cutting

    @property
    def idle(self) -> bool:
        """No batch is open. Whether there are rows to come, the feed knows."""
        return not self.in_batch

    @property
    def has_nothing_to_do(self) -> bool:
        """Whether a bundle has stood and asked for work, no batch is open, and no rows wait. Before anybody has looked,
        it is not known what a source has."""
        with self._channels.lock:
            supply = self._batches.supply
            return self._has_looked and supply is not None and self.idle and not supply.available()

    @property
    def has_looked(self) -> bool:
        """Whether a bundle has stood, and found out what is there."""
        return self._has_looked

    @property
    def rows_in_work(self) -> int:
        """Rows that were cut and are not published."""
        with self._channels.lock:
            return self._batches.rows

    @property
    def cost_of_a_share(self) -> float | None:
        """Seconds of a share in which its function does not work, on average: to read, to write and to tell; None while
        nothing is measured."""
        return self._cost_of_a_share

    def waited(self) -> list[Waited]:
        """For how long each bundle has waited, as far as that was not told yet, here or with a report."""
        with self._channels.lock:
            return self._waits.tell(self._clock())

    def weights(self, bundles: Sequence[Bundle]) -> Sequence[int]:
        """How much of a batch each of them is to get, where ranges of a source are dealt to all."""
        with self._channels.lock:
            return self._speeds.weights(bundles, self._clock())

    @property
    def lingers(self) -> bool:
        """Whether the next batch waits for more rows, by choice. One that is full waits for bundles."""
        with self._channels.lock:
            supply, here = self._batches.supply, self._roster.of(self._roster.turn)
            is_full = supply is not None and any(supply.available() >= self._bound(one) for one in here)
            return not is_full and self._clock() < self._earliest_cut()

    @property
    def open_batches(self) -> dict[int, float]:
        """When each open batch was cut, by its number: all at one moment. Batches that were just published are among
        them until they are taken off, which is after they were reported."""
        with self._channels.lock:
            return self._batches.cut_at

    # Parts of the above, with the lock held

    def _give_up(self, standing: Standing) -> None:
        standing.gone = True
        self._waits.leave(standing, self._clock())
        standing.woken.notify_all()
        self._batches.put_back(standing)

    def _work_of(self, dealt: Dealt, standing: Standing, reports: tuple[BundleReport, ...]) -> int:
        """How much a bundle has done, in what its pacer counts. Where keys belong to bundles, or all get all rows, it
        is the bundle's fair part of the whole batch: the bound is about whole batches. If the rows of its own keys
        counted, a bundle with few of them would never have a full share, and would keep all batches small for good."""
        if self._batches.any_bundle:
            work = dealt.share.work
            return sum(one.rows_in for one in reports[:1]) if work is None else work
        read = dealt.batch.cut.read
        return int(self._part_of(read.rows if read.work is None else read.work, standing) * dealt.portion)

    def _observe_speed(self, dealt: Dealt, standing: Standing, seconds: float) -> None:
        """Only while as much as it was waits for each of the others too: a share of a few rows says nothing."""
        supply, size = self._batches.supply, dealt.share.work
        if supply is None or supply.any_bundle or size is None:
            return
        if supply.available() >= size * len(self._roster.bundles):
            self._speeds.observe(standing.bundle, size, seconds, self._clock())

    def _part_of(self, whole: int, standing: Standing) -> int:
        """A bundle's fair part of rows that all bundles get some of. It is rounded up: the bound of a batch is rounded
        down, and a full batch must be found full."""
        if self._batches.any_bundle:
            return whole
        return -(-whole * standing.bundle.instances // max(self._roster.instances, 1))

    def _has_found(self, standing: Standing) -> bool:
        """Whether a bundle that waits need not wait any longer: there is work for it, or it is to leave."""
        if self._ended or standing.gone or self._batches.has_work_for(standing):
            return True
        return standing.turn < self._roster.turn and not self._batches.has_share_of(standing)

    def _found(self, standing: Standing) -> Dealt | None:
        """A bundle of an earlier turn takes what is still for it, and then leaves."""
        return None if self._ended or standing.gone else self._batches.take(standing, self._clock())

    def _patience(self, earliest: float) -> float:
        supply = self._batches.supply
        if supply is None or not self.is_open or self.paused:
            return PATIENCE
        return patience(supply, earliest - self._clock())

    def _may_cut(self, standing: Standing, earliest: float) -> bool:
        """`earliest`: when rows have lingered long enough; a full batch need not wait for that."""
        supply = self._batches.supply
        if supply is None or self._ended or self._cutting or not self.lets_in():
            return False
        if standing.turn != self._roster.turn or standing.gone or self._is_too_far_ahead():
            return False
        rows = supply.available()
        return rows > 0 and (rows >= self._bound(standing) or self._clock() >= earliest)

    def _why_not(self) -> Reason:
        """Why no batch may be cut now. Rows that linger wait for more rows."""
        supply = self._batches.supply
        if supply is None or not supply.available():
            return Reason.INPUT
        held = self.throttled or self.paused or not self.is_open or self._is_too_far_ahead()
        return Reason.ROOM if held else Reason.INPUT

    def _is_too_far_ahead(self) -> bool:
        """Whether no batch is cut before an open one is published."""
        return len(self._batches) >= AHEAD * len(self._roster.bundles) or self._batches.holds_ranges_before

    def _is_full(self, channel: str) -> bool:
        """What bundles have written counts, also while it waits to be published. What is published counts already."""
        return self._channels.full(channel, self._batches.unpublished(channel, self._channels.last_batch))

    def _few(self, standing: Standing) -> int:
        """So many rows are not worth another share. Bytes of files always are: to read them may be all the work."""
        supply = self._batches.supply
        if supply is None or not supply.counts_rows:
            return 1
        return min(standing.pacer.rows_that_take(LITTLE_WORK) or FEW_ROWS, MOST_FEW_ROWS)

    def _bound(self, standing: Standing) -> int:
        """The most that the next batch may read."""
        if self._batches.any_bundle:
            return standing.pacer.bound()
        instances, here = self._roster.instances, self._roster.of(self._roster.turn)
        # A bundle without any group of keys never learns how much it can do. One that has its first share is about to.
        learning = [one for one in here if one.pacer.per_row is not None or self._has_share(one)] or here
        return min(one.pacer.bound() * instances // max(one.bundle.instances, 1) for one in learning)

    def _has_share(self, standing: Standing) -> bool:
        return standing.work is not None or self._batches.has_share_of(standing)

    def _earliest_cut(self) -> float:
        return 0.0 if self.nothing_more else self._last_cut + self._linger()

    # Parts of the above, without the lock

    def _look(self) -> None:
        """The watcher looks what is there; nobody else does."""
        with self._channels.lock:
            supply = self._batches.supply
            if supply is None or not self.is_open or self._ended or self._looking:
                return
            self._looking = True
        try:
            supply.look()
            self._has_looked = True
        finally:
            with self._channels.lock:
                self._looking = False
                if self._ended:
                    self._channels.notify()  # somebody waits for that

    def _cut(self, standing: Standing, earliest: float) -> None:
        """Cut a batch, without the lock: that may take a look at files. It is the last one for now if no rows are left
        for other bundles that wait. Otherwise those take them at once: rows linger once, not once for every bundle."""
        supply = self._batches.supply
        with self._channels.lock:
            if supply is None or not self._may_cut(standing, earliest):
                return
            self._cutting = True
            self.held_back, self.found_no_room = self.found_no_room, False
            most, bundles = self._bound(standing), self._roster.bundles
            turn, generation, is_last = self._roster.turn, self._batches.generation, True
            if supply.any_bundle:
                bundles = (standing.bundle,)
                asking = self._roster.asking
                fair = -(-supply.available() * standing.bundle.instances // max(asking, 1))
                most = min(most, max(fair, self._few(standing)))
                is_last = asking <= standing.bundle.instances or supply.available() <= most
        cut = None
        try:
            cut = supply.cut(most, bundles)
        finally:
            with self._channels.lock:
                self._cutting = False
                if self._ended:
                    self._channels.notify()  # somebody waits for that
                if generation != self._batches.generation:
                    self._batches.go_back()
                elif cut is not None:
                    now = self._clock()
                    self._last_cut = now if is_last else self._last_cut
                    self._batches.deal(cut, turn, bundles, now)
                else:
                    # A kind of source that says it has rows, and then gives none, is not asked again at once.
                    self._waits.because(Reason.INPUT, self._clock())
                    self._channels.pause(LINGER_LOOK)
