"""The open batches of a query: cut, not yet published, each in shares that wait for a bundle or are being worked on.

Batches are published in the order in which they were cut. The share of a bundle that is gone waits for another one; if
none can come that may have it, its batch and all behind it are forgotten, and will be cut again.

Where keys belong to bundles, a share of a new turn may have to wait for open batches of the turns before
(`precedence.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile

from penstock.channels.records import NewSegment
from penstock.engine.message.shares import Bundle, Share
from penstock.engine.standing.batches import CutBatch, Dealt, OpenBatch, SeatKey, Standing, Supply
from penstock.engine.standing.precedence import Holds, may_begin, overlap, parted
from penstock.engine.standing.roster import Roster
from penstock.monitor.report import BundleReport


class OpenBatches:
    """Of one query. It takes no lock: whoever calls it holds that of the channels."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        #: What the batches are cut from; None until the query has made it.
        self.supply: Supply | None = None
        #: What was begun to be cut under another number is not dealt any more.
        self.generation = 0
        self._next = 0
        #: In the order in which they were cut. A batch leaves when it is published, in the same moment.
        self._batches: deque[OpenBatch] = deque()
        #: Shares that nobody works on: for anyone, and by seat those that are for one bundle only.
        self._for_anyone: deque[Dealt] = deque()
        self._for_one: dict[SeatKey, deque[Dealt]] = {}
        #: What shares keep those of later turns from; nothing where any bundle may have any share.
        self._holds = Holds()
        #: Bundles were silent so often over what was dropped last, and where that began: it is cut again in other
        #: shares, and whoever gets them may be silent for as long as the one before would have had.
        self._silences, self._dropped_from = 0, 0

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def cut_at(self) -> dict[int, float]:
        """When each of them was cut, by its number."""
        return {batch.number: batch.started for batch in self._batches}

    @property
    def rows(self) -> int:
        """What all of them read."""
        return sum(batch.cut.read.rows for batch in self._batches)

    @property
    def any_bundle(self) -> bool:
        """Whether any bundle may have any share. So it is as long as there is no supply."""
        return self.supply is None or self.supply.any_bundle

    # From the cut to a bundle

    def begin(self, supply: Supply, first: int) -> None:
        """Batches are cut of this supply, and this is the number of the first."""
        self.supply, self._next = supply, first

    def deal(self, cut: CutBatch, turn: int, bundles: Sequence[Bundle], now: float) -> None:
        """A batch was cut for these bundles of a turn: its shares wait for whoever asks, or each for its bundle."""
        portions = [1.0] * len(cut.shares)
        if not self.any_bundle and (held := self._holds.before(turn)):
            runs = [parted(share, held) for share in cut.shares]
            cut = replace(cut, shares=tuple(share for run in runs for share in run))
            portions = [_size(share) / sum(map(_size, run)) for run in runs for share in run]
        batch = OpenBatch(self._next, cut, turn, now, [None] * len(cut.shares))
        self._next = batch.number + 1
        self._batches.append(batch)
        for part, (share, portion) in enumerate(zip(cut.shares, portions, strict=True)):
            dealt = Dealt(batch, part, share, self._silences, portion)
            if self.any_bundle:
                self._for_anyone.append(dealt)
                continue  # who has cut it takes it
            self._holds.begin(turn, share)
            seat = turn, bundles.index(share.bundle)
            self._for_one.setdefault(seat, deque()).append(dealt)
            if (standing := self._roster.on(seat)) is not None:
                standing.woken.notify_all()

    def has_work_for(self, standing: Standing) -> bool:
        """Whether there is a share that a bundle may take now."""
        return self._next_of(standing) is not None

    def has_share_of(self, standing: Standing) -> bool:
        """Whether there is a share that a bundle may take now or later."""
        return bool(self._queue_of(standing))

    def take(self, standing: Standing, now: float) -> Dealt | None:
        """A bundle begins with the next share that it may have; None if there is none."""
        dealt, queue = self._next_of(standing), self._queue_of(standing)
        if dealt is None or queue is None:
            return None
        queue.remove(dealt)
        dealt.share = replace(dealt.share, bundle=standing.bundle)
        standing.work, standing.taken_at = dealt, now
        return dealt

    @property
    def spans_turns(self) -> bool:
        """Whether batches are open for bundles of more than one turn, and shares may wait for others."""
        return not self.any_bundle and bool(self._batches) and self._batches[0].turn != self._batches[-1].turn

    @property
    def holds_ranges_before(self) -> bool:
        """Whether ranges of a source are open in a batch of an earlier turn: nobody knows which may go elsewhere."""
        if self.any_bundle:
            return False
        before = takewhile(lambda one: one.turn != self._roster.turn, self._batches)
        return any(share.load is not None for batch in before for share in batch.cut.shares[:1])

    def _queue_of(self, standing: Standing) -> deque[Dealt] | None:
        """The shares that are for a bundle."""
        queue = self._for_one.get(standing.seat)
        return self._for_anyone if not queue and standing.turn == self._roster.turn else queue

    def _next_of(self, standing: Standing) -> Dealt | None:
        return self._first_free(self._queue_of(standing) or (), standing.turn)

    def _first_free(self, queue: Iterable[Dealt], turn: int) -> Dealt | None:
        """The first share that need not wait. It must not overtake one that waits and has rows of the same groups."""
        if not self._batches or self._batches[0].turn >= turn or self.any_bundle:
            return next(iter(queue), None)
        held, waiting = self._holds.before(turn), set[tuple[int, int] | None]()
        for dealt in queue:
            groups = dealt.share.groups
            if (groups is None and waiting) or any(one is None or overlap(groups, one) for one in waiting):
                continue
            if may_begin(dealt.share, held):
                return dealt
            waiting.add(groups)
        return None

    # From a bundle to the catalog

    def work_off(self, batch: OpenBatch, part: int, reports: tuple[BundleReport, ...]) -> None:
        """A bundle has done a share."""
        batch.reports[part] = reports
        if not self.any_bundle:
            self._holds.work_off(batch.turn, batch.cut.shares[part])

    def complete(self) -> list[OpenBatch]:
        """The batches that can be published: those before which none is incomplete."""
        return list(takewhile(lambda one: one.complete, self._batches))

    def published(self) -> None:
        """The oldest batch is published. If it was dropped once, bundles are not silent over it any more."""
        batch = self._batches.popleft()
        if batch.number >= self._dropped_from:
            self._silences = 0
        if not self.any_bundle:
            for share in batch.cut.shares:
                self._holds.release(batch.turn, share)

    def unpublished(self, channel: str, last: int | None) -> list[NewSegment]:
        """What bundles have written for a channel in batches after the last one that the channel knows."""
        waiting = (batch for batch in self._batches if last is None or batch.number > last)
        reports = (one for batch in waiting for found in batch.reports for one in found or ())
        return [segment for one in reports for segment in one.segments if segment.channel == channel]

    # What was for a bundle that is gone

    def put_back(self, standing: Standing) -> None:
        """What a bundle worked on waits for another one, and so does what it had to wait for."""
        dealt, standing.work = standing.work, None
        is_open = dealt is not None and dealt.batch in self._batches
        if dealt is not None and is_open and self.any_bundle:
            self._for_anyone.appendleft(dealt)
            return
        if dealt is not None and is_open:
            self._for_one.setdefault(standing.seat, deque()).appendleft(dealt)
        if standing.turn < self._roster.turn and self._roster.on(standing.seat) is standing:
            self._start_anew([standing.seat])  # nobody will come to this seat again

    def serve(self) -> None:
        """The roster has another turn. What waits for a bundle that is gone is cut anew."""
        if not self.any_bundle:
            self.generation += 1  # a batch that is being cut is for bundles that are about to leave
        self._for_one = {seat: queue for seat, queue in self._for_one.items() if queue}
        self._start_anew([seat for seat in self._for_one if seat not in self._roster])

    def waits_for(self, seats: Sequence[SeatKey]) -> bool:
        """Whether some share is for one of these seats only, and need not wait for anything else."""
        return any(self._first_free(self._for_one.get(seat, ()), seat[0]) is not None for seat in seats)

    def go_back(self) -> None:
        """Have the next batch begin where the last open one ends."""
        if self.supply is not None:
            self.supply.go_back(self._batches[-1].cut.ends if self._batches else None)

    def _start_anew(self, seats: Sequence[SeatKey]) -> None:
        """Nobody will come to these seats. Forget the first batch that has a share for one of them, and all behind it:
        they will be cut again. What was cut before goes on, however slow it is."""
        lost = [dealt.batch.number for seat in seats for dealt in self._for_one.get(seat, ())]
        if not lost:
            return
        first = min(lost)
        dropped = [batch for batch in self._batches if batch.number >= first]
        self.generation += 1
        self._silences = max([self._silences, *(one.silences for one in self._dealt_of(dropped))])
        self._dropped_from = self._next = first
        self._batches = deque(batch for batch in self._batches if batch.number < first)
        self.go_back()
        kept = {seat: [one for one in queue if one.batch.number < first] for seat, queue in self._for_one.items()}
        self._for_one = {seat: deque(queue) for seat, queue in kept.items() if queue}
        self._holds = Holds()
        for batch in self._batches:
            for share, reports in zip(batch.cut.shares, batch.reports, strict=True):
                self._holds.begin(batch.turn, share)
                if reports is not None:
                    self._holds.work_off(batch.turn, share)
        for one in self._roster:
            if one.work is not None and one.work.batch.number >= first:
                one.work = None

    def _dealt_of(self, batches: Sequence[OpenBatch]) -> list[Dealt]:
        """The shares of these batches that are not done."""
        waiting = [one for queue in (self._for_anyone, *self._for_one.values()) for one in queue]
        in_work = [one.work for one in self._roster if one.work is not None]
        return [one for one in (*waiting, *in_work) if one.batch in batches]


def _size(share: Share) -> int:
    """How many groups of keys a share has."""
    first, stop = share.groups or (0, 1)
    return stop - first
