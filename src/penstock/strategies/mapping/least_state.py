"""How many instances of one operator each slot gets, so that the least state moves, and then the fewest machines are
used. Both are exact minima. Pure.

An instance has at most c = ceil(tasks / instances) tasks, as if tasks were dealt evenly, and at least one. A slot with
x instances keeps at most c * x of its tasks, those that cost most to move. What it keeps grows with x, and every
further instance adds less than the one before (or as much). So the instances that add most can be taken one by one, and
nothing keeps more. Those that add nothing go to slots that have more tasks than instances, where they need no task from
elsewhere, and only then to others: so the number of tasks that instances need from elsewhere is as small as can be too.
Where several instances add the same, those on machines that are in use anyway come first, then those of the machine
that has most of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from penstock.cluster.model import Slot


@dataclass(frozen=True)
class SlotRoom:
    """A slot as one operator finds it."""

    slot: Slot
    #: How many of the operator's instances it may have.
    most: int
    #: What it costs to move each task away that the slot holds, the most first; of an operator without tasks, each
    #: instance.
    costs: tuple[int, ...] = ()
    #: How many instances the operator has there now, and how many the other operators have.
    had: int = 0
    load: int = 0

    @cached_property
    def _kept(self) -> Sequence[int]:
        return list(accumulate(self.costs, initial=0))

    def gains(self, size: int) -> Iterator[int]:
        """What one instance after the other keeps from moving, if each takes so many tasks; only those that keep any.
        No gain is larger than the one before."""
        end = len(self.costs)
        for first in range(0, min(end, self.most * size), size):
            yield self._kept[min(first + size, end)] - self._kept[first]


@dataclass(frozen=True)
class ChosenSlots:
    """The slots of one operator's instances, and how many of its tasks each slot keeps."""

    instances: Mapping[Slot, int]
    kept: Mapping[Slot, int] = field(default_factory=dict)


def chosen_slots(places: Sequence[SlotRoom], count: int, used: Collection[str], tasks: int = 0) -> ChosenSlots | int:
    """So many instances on these places; or how many of them find no room. `used` are machines that are in use anyway.
    Without tasks, as many instances as possible stay."""
    if (room := sum(place.most for place in places)) < count:
        return count - room
    size = -(-tasks // count) if tasks else 1
    gains = {place.slot: list(place.gains(size)) for place in places}
    chosen = _Chosen(places, used)
    ordered = sorted((gain for mine in gains.values() for gain in mine), reverse=True)
    least = ordered[count - 1] if len(ordered) >= count else 0
    for place in places:
        mine = gains[place.slot]
        chosen.take(place, sum(gain > least for gain in mine))
    if least:
        chosen.fill(count, {slot: sum(gain == least for gain in mine) for slot, mine in gains.items()})
    else:
        if tasks:
            # Slots that have more tasks than instances: all of them are on machines in use by now.
            lacking = {one.slot: max(min(one.most, len(one.costs)) - chosen.on[one.slot], 0) for one in places}
            chosen.fill(count, lacking)
        chosen.fill(count, {one.slot: one.most - chosen.on[one.slot] for one in places})
    instances = {slot: number for slot, number in chosen.on.items() if number}
    return ChosenSlots(instances, _kept(places, instances, size, tasks) if tasks else {})


class _Chosen:
    """The instances that have a place so far."""

    def __init__(self, places: Sequence[SlotRoom], used: Collection[str]) -> None:
        self.on = {place.slot: 0 for place in places}
        self._machines: dict[str, list[SlotRoom]] = {}
        for place in places:
            self._machines.setdefault(place.slot.machine, []).append(place)
        self._used = set(used)
        self._total = 0

    def take(self, place: SlotRoom, number: int) -> None:
        if number:
            self.on[place.slot] += number
            self._used.add(place.slot.machine)
            self._total += number

    def fill(self, count: int, room: Mapping[Slot, int]) -> None:
        """Take places until there are so many in all: on machines in use, then on the machines with the most room."""
        free = [place for name in self._used for place in self._machines.get(name, ())]
        self._spread(free, count, room)
        others = [name for name in self._machines if name not in self._used]
        rooms = {name: sum(room[place.slot] for place in self._machines[name]) for name in others}
        for name in sorted(others, key=lambda one: (-rooms[one], self._load(one), one)):
            if self._total >= count:
                return
            self._spread(self._machines[name], count, room)

    def _load(self, machine: str) -> int:
        return sum(place.load for place in self._machines[machine])

    def _spread(self, places: Iterable[SlotRoom], count: int, room: Mapping[Slot, int]) -> None:
        """Those that the operator had there come first, then those on slots with the least on each core."""
        left = {place.slot: room[place.slot] for place in places if room[place.slot]}
        waiting = [(self._rank(place), place.slot, place) for place in places if place.slot in left]
        heapq.heapify(waiting)
        while waiting and self._total < count:
            _, slot, place = waiting[0]
            self.take(place, 1)
            left[slot] -= 1
            if left[slot]:
                heapq.heapreplace(waiting, (self._rank(place), slot, place))
            else:
                heapq.heappop(waiting)

    def _rank(self, place: SlotRoom) -> tuple[bool, float]:
        there = self.on[place.slot]
        return there >= place.had, (place.load + there) / place.slot.cores


def _kept(places: Sequence[SlotRoom], instances: Mapping[Slot, int], size: int, tasks: int) -> dict[Slot, int]:
    """By slot: how many of its tasks it keeps. It keeps fewer than it could if instances elsewhere had no task
    otherwise; the cheapest leave then."""
    mine = [place for place in places if place.slot in instances]
    kept = {place.slot: min(len(place.costs), size * instances[place.slot]) for place in mine}
    lacking = sum(max(instances[place.slot] - len(place.costs), 0) for place in mine)
    cheapest = [
        (place.costs[kept[place.slot] - 1], place.slot, place) for place in mine if _spare(place, kept, instances)
    ]
    heapq.heapify(cheapest)
    for _ in range(lacking - (tasks - sum(kept.values()))):
        if not cheapest:
            break  # there are fewer tasks than instances
        _, slot, place = cheapest[0]
        kept[slot] -= 1
        if _spare(place, kept, instances):
            heapq.heapreplace(cheapest, (place.costs[kept[slot] - 1], slot, place))
        else:
            heapq.heappop(cheapest)
    return kept


def _spare(place: SlotRoom, kept: Mapping[Slot, int], instances: Mapping[Slot, int]) -> bool:
    return kept[place.slot] > instances[place.slot]
