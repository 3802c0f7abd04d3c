"""Whose groups of keys are whose while a turn begins: rows of the turns before are still being worked on, and rows of
the same groups are dealt to the bundles of the new turn.

A group that stays on its place goes on when that place has worked off its rows of the turns before. A group that moves
goes on when they are published. So the rows of a group are worked on one after the other, in their order, whatever
becomes of turns; and a group that stays waits for no other.

No locks and no clock: the open batches ask it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from penstock.cluster.model import Slot
from penstock.engine.message.shares import Share, Spread

#: Where a bundle runs: the how-manieth task of which slot. A bundle of the next turn may have the same place.
Place = tuple[Slot, int]


@dataclass(frozen=True)
class Held:
    """What a share of an open batch of an earlier turn keeps others from."""

    place: Place
    #: [first, stop) of the groups of keys; None if its rows have no groups.
    groups: tuple[int, int] | None
    #: Whether it is worked off. It is not published, or nobody would ask.
    done: bool


class Holds:
    """What the shares of open batches keep others from, by turn. It is counted when something changes: every bundle
    that waits asks for it whenever a share is done, and there may be thousands of shares."""

    def __init__(self) -> None:
        self._by_turn: dict[int, Counter[Held]] = {}

    def before(self, turn: int) -> list[Held]:
        """What is held by shares of earlier turns."""
        return [one for earlier, found in self._by_turn.items() if earlier < turn for one in found]

    def begin(self, turn: int, share: Share) -> None:
        """A share was dealt."""
        self._by_turn.setdefault(turn, Counter())[_held_by(share, False)] += 1

    def work_off(self, turn: int, share: Share) -> None:
        self._remove(turn, _held_by(share, False))
        self._by_turn.setdefault(turn, Counter())[_held_by(share, True)] += 1

    def release(self, turn: int, share: Share) -> None:
        """A share that is worked off is published."""
        self._remove(turn, _held_by(share, True))

    def _remove(self, turn: int, held: Held) -> None:
        found = self._by_turn[turn]
        found[held] -= 1
        if not found[held]:
            del found[held]
        if not found:
            del self._by_turn[turn]


def _held_by(share: Share, done: bool) -> Held:
    return Held(place_of(share), share.groups, done)


def place_of(share: Share) -> Place:
    return share.bundle.slot, share.bundle.index


def may_begin(share: Share, held: Collection[Held]) -> bool:
    """Whether the place of a share may begin with it. A place works in order, also on rows that have no groups."""
    place, groups = place_of(share), share.groups
    return all(one.done if one.place == place else not overlap(groups, one.groups) for one in held)


def overlap(one: tuple[int, int] | None, other: tuple[int, int] | None) -> bool:
    """Whether two runs of groups have a group in common."""
    return one is not None and other is not None and max(one[0], other[0]) < min(one[1], other[1])


def parted(share: Share, held: Collection[Held]) -> list[Share]:
    """A share, cut where groups that stay end and groups that move begin: the former need not wait for the latter. Rows
    without groups are read once, so a share that has some stays whole."""
    groups = share.groups
    if groups is None or any(part.spread is not Spread.BY_KEY for part in share.parts):
        return [share]
    (first, stop), place = groups, place_of(share)
    foreign = [one.groups for one in held if one.groups is not None and one.place != place]
    ends = {end for one in foreign for end in one if first < end < stop}
    runs = groupby(pairwise(sorted({first, stop, *ends})), lambda run: any(overlap(run, other) for other in foreign))
    found = [list(run) for _, run in runs]
    if len(found) == 1:
        return [share]
    return [replace(share, parts=tuple(part.of_groups(run[0][0], run[-1][1]) for part in share.parts)) for run in found]
