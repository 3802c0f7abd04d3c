"""A dealer without Spark, sockets and channels: rows that are only numbers, and who publishes them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.channels.records import NewSegment
from penstock.cluster.model import Slot
from penstock.engine.message.shares import Bundle, Share
from penstock.engine.query.feeds import Batch
from penstock.engine.query.pacing import Pacer
from penstock.engine.standing.batches import CutBatch, OpenBatch, Standing
from penstock.engine.standing.dealer import Dealer
from penstock.monitor.report import BundleReport

ONE = Bundle(Slot("a", 0), 1)
TWO = Bundle(Slot("b", 0), 1)


class Channels:
    """The part of `SeenChannels` that a dealer needs."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self.is_full = False
        self.room = 1_000_000
        #: How many wait for what happens here, and how often they were told that something has.
        self.waiting = self.notified = 0
        self.last_batch: int | None = None

    def full(self, channel: str, coming: Sequence[NewSegment] = ()) -> bool:
        return self.is_full or sum(segment.rows for segment in coming) >= self.room

    def pause(self, timeout: float) -> None:
        with self.lock:
            self.waiting += 1
            self._changed.wait(timeout)
            self.waiting -= 1

    def notify(self) -> None:
        with self.lock:
            self.notified += 1
            self._changed.notify_all()


class Rows:
    """A supply of numbered rows."""

    def __init__(self, rows: int, any_bundle: bool = True) -> None:
        self.rows, self.any_bundle, self.counts_rows = rows, any_bundle, True
        self.position = self.published = 0
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self.may_go_on.set()
        self.looks = 0
        #: The bundles that get a share where not any bundle may have any rows; None: all.
        self.shared_by: Sequence[Bundle] | None = None

    def look(self) -> None:
        self.looks += 1

    def available(self) -> int:
        return self.rows - self.position

    def due_in(self) -> float | None:
        return None

    def cut(self, most: int, bundles: Sequence[Bundle]) -> CutBatch | None:
        self.begun.set()
        assert self.may_go_on.wait(5)
        start, stop = self.position, min(self.position + most, self.rows)
        self.position = stop
        sharing = bundles if self.shared_by is None else self.shared_by
        shares = tuple(Share(bundle, load={"rows": [start, stop]}) for bundle in sharing)
        return CutBatch(Batch({}, stop - start), shares, {"0": stop})

    def go_back(self, ends: Mapping[str, Any] | None) -> None:
        self.position = ends["0"] if ends else self.published


class Published:
    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.batches: list[tuple[int, list[Any]]] = []
        #: How many of them at a time.
        self.together: list[int] = []
        self.failure: Exception | None = None
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self.may_go_on.set()

    def __call__(self, batches: Sequence[OpenBatch]) -> None:
        self.begun.set()
        assert self.may_go_on.wait(5)
        if self.failure is not None:
            raise self.failure
        self.together.append(len(batches))
        for batch in batches:
            load, end = batch.cut.shares[0].load, batch.cut.ends["0"]
            self.batches.append((batch.number, [self.rows.published, end] if load is None else load["rows"]))
            self.rows.published = end


def report(slot: str = "a/0", rows: int = 1) -> tuple[BundleReport, ...]:
    return (BundleReport(slot, 1, 0, None, "", 0, rows, 0, {}, 0.01, 0.01, 0.0, 0.01, 0.0, 0.0),)


def dealer_of(rows: Rows, most: int = 10, linger: float = 0.0) -> tuple[Dealer, Published, Channels]:
    channels, published = Channels(), Published(rows)
    dealer = Dealer(channels, ["out"], lambda: Pacer(0.05, most, most), lambda: linger, published)  # type: ignore[arg-type]
    dealer.feed_from(rows)
    dealer.open()
    return dealer, published, channels


def dealer_with(rows: Rows, linger: Callable[[], float], clock: Callable[[], float]) -> Dealer:
    """The same with a clock of one's own."""
    dealer = Dealer(Channels(), ["out"], lambda: Pacer(0.05, 10, 10), linger, Published(rows), clock=clock)  # type: ignore[arg-type]
    dealer.feed_from(rows)
    dealer.open()
    return dealer


def stand(dealer: Dealer, turn: int, index: int, bundle: Bundle, attempt: int = 0) -> Standing:
    standing = dealer.stand(turn, index, bundle, attempt)
    assert standing is not None
    return standing


def served(dealer: Dealer, *bundles: Bundle, turn: int = 1) -> list[Standing]:
    stands = [stand(dealer, turn, index, bundle) for index, bundle in enumerate(bundles)]
    dealer.serve(turn, bundles)
    return stands


def done(dealer: Dealer, standing: Standing, reports: tuple[BundleReport, ...]) -> bool:
    """A bundle has done its share, and what is complete is published."""
    wanted = dealer.done(standing, reports)
    while dealer.publish_next(0):
        pass
    return wanted


def rows_of(dealer: Dealer, standing: Standing) -> Any:
    dealt = dealer.take(standing)
    assert dealt is not None
    return dealt.share.load["rows"]  # type: ignore[index]


def in_background(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def takes_within(dealer: Dealer, standing: Standing, seconds: float) -> Any:
    """What a bundle gets in this time; None if it waits longer: it then goes on waiting."""
    taken: list[Any] = []
    thread = threading.Thread(target=lambda: taken.append(dealer.take(standing)), daemon=True)
    thread.start()
    thread.join(seconds)
    return taken[0] if taken else None
