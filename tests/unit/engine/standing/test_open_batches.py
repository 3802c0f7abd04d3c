"""Open batches: dealt in shares, published in order, put back when a bundle is gone, or cut anew if none can come."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.channels.records import NewSegment
from penstock.cluster.model import Slot
from penstock.engine.message.shares import Bundle, InputPart, Piece, Share, Spread
from penstock.engine.query.feeds import Batch
from penstock.engine.query.pacing import Pacer
from penstock.engine.standing.batches import CutBatch, Standing
from penstock.engine.standing.open_batches import OpenBatches
from penstock.engine.standing.roster import Roster
from penstock.monitor.report import BundleReport

ONE, TWO, THREE = (Bundle(Slot(name, 0), 1) for name in "abc")


class Supply:
    def __init__(self, any_bundle: bool) -> None:
        self.any_bundle = any_bundle
        self.went_back: list[Mapping[str, Any] | None] = []

    def go_back(self, ends: Mapping[str, Any] | None) -> None:
        self.went_back.append(ends)


def cut(*bundles: Bundle, end: int) -> CutBatch:
    return CutBatch(Batch({}, 10), tuple(Share(bundle) for bundle in bundles), {"0": end})


def opened(any_bundle: bool) -> tuple[OpenBatches, Supply, Roster, list[Standing]]:
    roster, supply = Roster(), Supply(any_bundle)
    batches = OpenBatches(roster)
    batches.begin(supply, 7)  # type: ignore[arg-type]
    lock = threading.RLock()
    lock.acquire()
    stands = [
        Standing(1, index, bundle, Pacer(0.05, 10, 10), threading.Condition(lock))
        for index, bundle in enumerate((ONE, TWO))
    ]
    for one in stands:
        roster.sit(one)
    roster.serve(1, (ONE, TWO), 0.0)
    return batches, supply, roster, stands


def report(*segments: NewSegment) -> tuple[BundleReport, ...]:
    empty = BundleReport("a/0", 1, 0, None, "", 0, 1, 0, {}, 0.01, 0.01, 0.0, 0.01, 0.0, 0.0)
    return (replace(empty, segments=segments),)


def test_what_is_for_anyone_goes_to_who_asks_and_back_to_the_front() -> None:
    batches, _, _, (one, two) = opened(any_bundle=True)
    batches.deal(cut(ONE, end=10), 1, (ONE,), 0.0)
    batches.deal(cut(ONE, end=20), 1, (ONE,), 0.0)
    dealt = batches.take(one, 3.0)
    assert dealt is not None
    assert (dealt.batch.number, one.work, one.taken_at) == (7, dealt, 3.0)
    batches.put_back(one)
    assert one.work is None
    again = batches.take(two, 4.0)
    assert again is dealt
    assert again.share.bundle == TWO, "it is the share of who takes it"


def test_batches_are_published_in_the_order_in_which_they_were_cut() -> None:
    batches, _, _, (one, two) = opened(any_bundle=True)
    for end, at in ((10, 4.0), (20, 5.0)):
        batches.deal(cut(ONE, end=end), 1, (ONE,), at)
    first, second = batches.take(one, 0.0), batches.take(two, 0.0)
    assert first is not None
    assert second is not None
    batches.work_off(second.batch, 0, report())
    assert batches.complete() == []
    batches.work_off(first.batch, 0, report())
    assert batches.complete() == [first.batch, second.batch]
    batches.published()
    assert batches.cut_at == {second.batch.number: 5.0}
    assert len(batches) == 1


def test_what_is_written_and_not_published_is_known_by_channel() -> None:
    batches, _, _, (one, _) = opened(any_bundle=True)
    batches.deal(cut(ONE, end=10), 1, (ONE,), 0.0)
    dealt = batches.take(one, 0.0)
    assert dealt is not None
    here, there = (NewSegment(name, f"{name}/1.arrow", 10, 100, "a/0", 0.0, 0.0) for name in ("here", "there"))
    batches.work_off(dealt.batch, 0, report(here, there))
    assert batches.unpublished("here", last=None) == [here]
    assert batches.unpublished("here", last=7) == []


def test_what_is_for_a_bundle_that_is_gone_waits_for_its_seat_until_another_turn_is_served() -> None:
    batches, supply, roster, (one, two) = opened(any_bundle=False)
    batches.deal(cut(ONE, TWO, end=10), 1, (ONE, TWO), 0.0)
    assert batches.take(one, 0.0)
    assert batches.take(two, 0.0)
    roster.leave(two, 0.0)
    batches.put_back(two)
    assert batches.waits_for([two.seat])
    assert not batches.waits_for([one.seat])
    generation = batches.generation
    roster.serve(2, (ONE,), 0.0)
    batches.serve()
    assert batches.generation > generation, "what is being cut is for bundles that leave"
    assert len(batches) == 0
    assert one.work is None
    assert supply.went_back == [None], "the next batch begins where the newest published one ended"
    batches.deal(cut(ONE, end=10), 2, (ONE,), 0.0)
    assert list(batches.cut_at) == [7], "it has the number of the one that was dropped"


def test_the_silences_over_what_was_dropped_count_until_it_is_published() -> None:
    batches, _, roster, (one, _) = opened(any_bundle=False)
    batches.deal(cut(ONE, end=10), 1, (ONE,), 0.0)
    dealt = batches.take(one, 0.0)
    assert dealt is not None
    dealt.silences = 2
    roster.serve(2, (ONE,), 0.0)
    batches.put_back(one)  # nobody will come to this seat again
    for silences in (2, 0):
        batches.deal(cut(ONE, end=10), 2, (ONE,), 0.0)
        new = Standing(2, 0, ONE, one.pacer, one.woken)
        found = batches.take(new, 0.0)
        assert found is not None
        assert found.silences == silences
        batches.work_off(found.batch, 0, report())
        batches.published()


def test_a_share_does_not_overtake_one_that_still_waits_for_another_turn() -> None:
    """It waits for less: it was cut when the first of two turns was published."""
    batches, _, roster, (one, _) = opened(any_bundle=False)
    here = Standing(3, 0, THREE, Pacer(0.05, 10, 10), one.woken)
    roster.sit(here)
    for turn, bundle, groups in ((1, ONE, (4, 6)), (2, TWO, (6, 8)), (3, THREE, (4, 8))):
        batches.deal(keyed(bundle, *groups), turn, (bundle,), 0.0)
    batches.work_off(batches._batches[0], 0, report())
    batches.published()
    batches.deal(keyed(THREE, 4, 8), 3, (THREE,), 0.0)
    assert batches.has_share_of(here)
    assert not batches.has_work_for(here), "groups 4 and 5 of the newer batch would be free"
    batches.work_off(batches._batches[0], 0, report())
    batches.published()
    taken = []
    while (dealt := batches.take(here, 0.0)) is not None:
        taken.append((dealt.batch.number, dealt.share.groups))
    assert taken == [(9, (4, 8)), (10, (4, 6)), (10, (6, 8))]


def keyed(bundle: Bundle, first: int, stop: int) -> CutBatch:
    part = InputPart((Piece("rows/0", 0, 10, Spread.BY_KEY, 0.0, 0.0, "a/0"),), first, stop)
    return CutBatch(Batch({}, 10), (Share(bundle, (part,)),), {"0": 10})
