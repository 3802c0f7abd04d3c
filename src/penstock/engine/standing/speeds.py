"""How fast each bundle works off ranges of a source that are dealt and not pulled, and how much of a batch it gets.

Ranges of a source that fetches ahead (Kafka) should stay with their bundle: a worker that gets a partition anew throws
away what it has fetched of it. So they are dealt, a share for each bundle. Dealt by instances alone, a slot of half the
speed would get as many rows as the others, and all would wait for it. So shares follow what was measured; and they stay
as they are while it changes little, or partitions would go to and fro.

Time is handed in. It takes no lock: whoever calls it holds that of the channels.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cluster.model import Slot
from penstock.engine.message.shares import Bundle

#: How much the newest share says about the speed of its place.
WEIGHT = 0.3
#: Shares stay as they are until one of them would change by more than this.
CHANGE = 0.2
#: A place whose speed was not measured for so long counts as one of which nothing is known. One that was slow for a
#: moment might never get a range again otherwise.
FORGET_SECONDS = 120.0
#: No place counts as slower than this part of the others: what is slower than that is out of order, and not slow.
LEAST = 0.1
#: Weights are whole numbers: the mean bundle has so much.
UNIT = 1_000

#: Where a bundle runs. A bundle of the next turn may have the same place, and then has its speed too.
Place = tuple[Slot, int]


class Speeds:
    """Of one query."""

    def __init__(self) -> None:
        #: Speed of an instance, in what the pacer counts a second, and when it was measured.
        self._measured: dict[Place, tuple[float, float]] = {}
        self._bundles: tuple[Bundle, ...] = ()
        self._weights: tuple[int, ...] = ()

    def observe(self, bundle: Bundle, size: int, seconds: float, now: float) -> None:
        """A bundle has done a share of this size, while more was waiting. A share of a few rows would only say how long
        it takes to begin."""
        if size <= 0 or seconds <= 0:
            return
        speed = size / seconds / bundle.instances
        before = self._speed(bundle, now)
        place = _place(bundle)
        if place not in self._measured:  # machines come and go: those that are gone do not stay for ever
            self._measured = {one: (old, at) for one, (old, at) in self._measured.items() if now <= at + FORGET_SECONDS}
        self._measured[place] = (speed if before is None else before + WEIGHT * (speed - before)), now

    def weights(self, bundles: Sequence[Bundle], now: float) -> tuple[int, ...]:
        """How much of a batch each bundle is to get, in proportion; by instances while no speed is known."""
        wanted, found = tuple(bundles), self._wanted(bundles, now)
        if wanted != self._bundles or _differ(found, self._weights):
            self._bundles, self._weights = wanted, found
        return self._weights

    def _wanted(self, bundles: Sequence[Bundle], now: float) -> tuple[int, ...]:
        speeds = [self._speed(bundle, now) for bundle in bundles]
        known = [speed for speed in speeds if speed is not None]
        mean = sum(known) / len(known) if known else 1.0
        each = [
            max(mean if speed is None else speed, LEAST * mean) * bundle.instances
            for bundle, speed in zip(bundles, speeds, strict=True)
        ]
        whole = sum(each)
        return tuple(max(round(UNIT * len(each) * one / whole), 1) for one in each)

    def _speed(self, bundle: Bundle, now: float) -> float | None:
        speed, at = self._measured.get(_place(bundle), (0.0, float("-inf")))
        return speed if now <= at + FORGET_SECONDS else None


def _place(bundle: Bundle) -> Place:
    return bundle.slot, bundle.index


def _differ(some: Sequence[int], others: Sequence[int]) -> bool:
    """Whether a weight differs by more than is worth a change."""
    pairs = list(zip(some, others, strict=True))
    return any(max(one, other) > (1 + CHANGE) * min(one, other) for one, other in pairs)
