"""Slots that get things one by one: each thing goes to the slot that is first at that moment. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator

from penstock.cluster.model import Slot

#: The lowest is first.
Rank = tuple[float, ...]


def turns(slots: Collection[Slot], rank: Callable[[Slot], Rank]) -> Iterator[Slot]:
    """The slot that ranks first, over and over; of equals the first by name. Who takes one gives it its thing before
    asking for the next one, which changes the rank of this slot and of no other. So only this slot is ranked anew: with
    thousands of things on a thousand slots, ranking all of them every time takes seconds."""
    ordered = sorted(slots)
    waiting = [(rank(slot), number) for number, slot in enumerate(ordered)]
    heapq.heapify(waiting)
    while True:  # without any slot this is an error
        number = waiting[0][1]
        yield ordered[number]
        heapq.heapreplace(waiting, (rank(ordered[number]), number))
