"""Operators with one child walk in single file: a forest whose roots are the operators where the graph branches.

An operator whose only child is no sink reaches what that child reaches, if nothing on the way is congested, and nothing
otherwise. So the sets of sinks are kept for the roots alone, and every other operator needs one number: how many
operators between it and its root are congested. Numbered so that an operator and all that lead to it in single file are
neighbours, an operator that becomes congested adds one to a contiguous range: a chain of 10,000 operators costs one
addition to an array.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray


class SingleFile:
    """`nexts[o]` is o's only child, or -1 where o is a root; a child comes after its parents."""

    def __init__(self, nexts: Sequence[int]) -> None:
        count = len(nexts)
        size = [1] * count
        for one, following in enumerate(nexts):
            if following >= 0:
                size[following] += size[one]
        #: Whether an operator stands before another in a file; a root does not, and nothing can block it.
        self.following = [following >= 0 for following in nexts]
        self.root = list(range(count))
        self.rank = [0] * count
        free = [0] * count
        end = 0
        for one in reversed(range(count)):
            following = nexts[one]
            if following < 0:
                self.rank[one], end = end, end + size[one]
            else:
                self.root[one] = self.root[following]
                self.rank[one] = free[following]
                free[following] += size[one]
            free[one] = self.rank[one] + 1
        self._end = [rank + length for rank, length in zip(self.rank, size, strict=True)]
        #: By rank: how many operators between this one and its root, the root included, are congested.
        self.blocks: NDArray[np.int32] = np.zeros(count, dtype=np.int32)
        self.ranks: NDArray[np.intp] = np.array(self.rank, dtype=np.intp)

    def range_of(self, one: int) -> tuple[int, int]:
        """The ranks of an operator and of all that lead to it in single file; it is the first of them."""
        return self.rank[one], self._end[one]

    def block(self, one: int, by: int) -> None:
        """This operator became congested (by 1) or uncongested (by -1)."""
        first, end = self.range_of(one)
        self.blocks[first + 1 : end] += by

    def is_blocked(self, one: int) -> bool:
        return bool(self.blocks[self.rank[one]])


class LookersByRank:
    """Who looks at which operator from outside its file, found by range of ranks."""

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(pairs)
        self._ranks = [rank for rank, _ in ordered]
        self._lookers = [looker for _, looker in ordered]

    def within(self, ranks: tuple[int, int]) -> list[int]:
        first, end = ranks
        return self._lookers[bisect_left(self._ranks, first) : bisect_left(self._ranks, end)]
