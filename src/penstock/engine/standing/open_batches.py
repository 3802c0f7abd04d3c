"""The open batches of a query: cut, not yet published, each in shares that wait for a bundle or are being worked on.

Batches are published in the order in which they were cut. The share of a bundle that is gone waits for another one; if
none can come that may have it, what was cut and cannot be published yet is forgotten, and will be cut again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from penstock.channels.records import NewSegment
from penstock.engine.message.shares import Bundle
from penstock.engine.standing.batches import CutBatch, Dealt, OpenBatch, SeatKey, Standing, Supply
from penstock.engine.standing.roster import Roster


class OpenBatches:
    """Of one query. It takes no lock: whoever calls it holds that of the channels."""

    def __init__(self, roster: Roster, first: int = 0) -> None:
        self._roster = roster
        #: What the batches are cut from; None until the query has made it.
        self.supply: Supply | None = None
        #: What was begun to be cut under another number is not dealt any more.
        self.generation = 0
        self._next = first
        #: In the order in which they were cut. A batch leaves when it is published, in the same moment.
        self._batches: deque[OpenBatch] = deque()
        #: Shares that nobody works on: for anyone, and by seat those that are for one bundle only.
        self._for_anyone: deque[Dealt] = deque()
        self._for_one: dict[SeatKey, deque[Dealt]] = {}
        #: Bundles were silent so often over what was dropped last, and where that began: it is cut again in other
        #: shares, and whoever gets them may be silent for as long as the one before would have had.
        self._silences, self._dropped_from = 0, 0

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def oldest(self) -> OpenBatch | None:
        return self._batches[0] if self._batches else None

    @property
    def rows(self) -> int:
        """What all of them read."""
        return sum(batch.cut.read.rows for batch in self._batches)

    @property
    def any_bundle(self) -> bool:
        """Whether any bundle may have any share. So it is as long as there is no supply."""
        return self.supply is None or self.supply.any_bundle

    # From the cut to a bundle

    def deal(self, cut: CutBatch, turn: int, bundles: Sequence[Bundle], now: float) -> None:
        """A batch was cut for these bundles of a turn: its shares wait for whoever asks, or each for its bundle."""
        batch = OpenBatch(self._next, cut, turn, now, [None] * len(cut.shares))
        self._next = batch.number + 1
        self._batches.append(batch)
        for part, share in enumerate(cut.shares):
            dealt = Dealt(batch, part, share, self._silences)
            if self.any_bundle:
                self._for_anyone.append(dealt)
                continue  # who has cut it takes it
            seat = turn, bundles.index(share.bundle)
            self._for_one.setdefault(seat, deque()).append(dealt)
            if (standing := self._roster.on(seat)) is not None:
                standing.woken.notify_all()

    def has_work_for(self, standing: Standing) -> bool:
        return bool(self._queue_of(standing))

    def take(self, standing: Standing, now: float) -> Dealt | None:
        """A bundle begins with the next share that it may have; None if there is none."""
        queue = self._queue_of(standing)
        if not queue:
            return None
        dealt = queue.popleft()
        dealt.share = replace(dealt.share, bundle=standing.bundle)
        standing.work, standing.taken_at = dealt, now
        return dealt

    def _queue_of(self, standing: Standing) -> deque[Dealt] | None:
        """The shares that a bundle may take."""
        queue = self._for_one.get(standing.seat)
        return self._for_anyone if not queue and standing.turn == self._roster.turn else queue

    # From a bundle to the catalog

    def complete(self) -> list[OpenBatch]:
        """The batches that can be published: those before which none is incomplete."""
        return list(takewhile(lambda one: one.complete, self._batches))

    def published(self) -> None:
        """The oldest batch is published. If it was dropped once, bundles are not silent over it any more."""
        if self._batches.popleft().number >= self._dropped_from:
            self._silences = 0

    def unpublished(self, channel: str, last: int | None) -> list[NewSegment]:
        """What bundles have written for a channel in batches after the last one that the channel knows."""
        waiting = (batch for batch in self._batches if last is None or batch.number > last)
        reports = (one for batch in waiting for found in batch.reports for one in found or ())
        return [segment for one in reports for segment in one.segments if segment.channel == channel]

    # What was for a bundle that is gone

    def put_back(self, standing: Standing) -> None:
        """What a bundle worked on waits for another one."""
        dealt, standing.work = standing.work, None
        if dealt is None or dealt.batch not in self._batches:
            return
        if self.any_bundle:
            self._for_anyone.appendleft(dealt)
            return
        self._for_one.setdefault(standing.seat, deque()).appendleft(dealt)
        if standing.turn < self._roster.turn:
            self._start_anew()  # nobody will come to this seat again

    def serve(self) -> None:
        """The roster has another turn. What waits for a bundle that is gone is cut anew."""
        if not self.any_bundle:
            self.generation += 1  # a batch that is being cut is for bundles that are about to leave
        self._for_one = {seat: queue for seat, queue in self._for_one.items() if queue}
        if any(seat not in self._roster for seat in self._for_one):
            self._start_anew()

    def waits_for(self, seats: Sequence[SeatKey]) -> bool:
        """Whether some share is for one of these seats only."""
        return any(self._for_one.get(seat) for seat in seats)

    def go_back(self) -> None:
        """Have the next batch begin where the last open one ends."""
        if self.supply is not None:
            self.supply.go_back(self._batches[-1].cut.ends if self._batches else None)

    def _start_anew(self) -> None:
        """Forget what was cut and cannot be published yet: it will be cut again."""
        kept = self.complete()
        dropped = list(self._batches)[len(kept) :]
        self.generation += 1
        if dropped:
            self._silences = max([self._silences, *(one.silences for one in self._dealt_of(dropped))])
            self._dropped_from = dropped[0].number
            self._next = dropped[0].number
            self._batches = deque(kept)
        self.go_back()
        self._for_anyone.clear()
        self._for_one.clear()
        for one in self._roster:
            if one.work is not None and one.work.batch not in kept:
                one.work = None

    def _dealt_of(self, batches: Sequence[OpenBatch]) -> list[Dealt]:
        """The shares of these batches that are not done."""
        waiting = [one for queue in (self._for_anyone, *self._for_one.values()) for one in queue]
        in_work = [one.work for one in self._roster if one.work is not None]
        return [one for one in (*waiting, *in_work) if one.batch in batches]
