"""Which sinks the operators reach, for those operators that someone asks about, kept up to date as congestion changes.

Three things keep a change small:

- Operators in single file share the set of the operator where their file ends (single_file.py).
- An operator with many children looks at them through a tree of helpers with few children each, so that one child's
  change does not mean a look at all the others.
- Only the sets that matter are kept: those of operators that are asked about, and of what these look at on open ways.
  (Stela asks about the congested ones, and a scale-out moves congestion down towards the sinks: most of what a change
  affects lies above it, where nobody asks.) Who matters is a count of those who need it, as in a garbage collector.

From there a change goes up from child to parent and ends where a set stays as it was, or nobody needs it. Its cost is
the number of branching operators that it affects, times S / 64: all of them, at worst.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from penstock.strategies.load import Load
from penstock.strategies.stela.single_file import LookersByRank, SingleFile

#: The most children that a node looks at by itself.
FAN = 16


class SinkSets:
    """Nodes are the operators where files end, and the helpers; numbered so that one comes after all it looks at.

    A set is an integer with one bit a sink, whether that sink is congested or not: that is for others to count.
    """

    def __init__(self, load: Load, shut: Sequence[bool]) -> None:
        self._bit = {place: bit for bit, place in enumerate(load.sinks)}
        #: By operator: congested, so that nobody looks through it.
        self._shut = list(shut)
        #: What a node looks at: (operator that must be open, or -1 for a helper; node whose set it passes on).
        self._looks: list[list[tuple[int, int]]] = []
        self._direct: list[int] = []
        self._build(load)
        count = len(self._looks)
        self.sets = [0] * count
        #: How many need a node's set: nodes that look at it on an open way, and whoever asked.
        self._needed_by = [0] * count
        #: The nodes that a needed node looks at on open ways.
        self._sees: list[list[int]] = [[] for _ in range(count)]

    def _build(self, load: Load) -> None:
        inner = [[child for child in children if child not in self._bit] for children in load.children]
        alone = [len(below) == 1 == len(load.children[place]) for place, below in enumerate(inner)]
        self.file = SingleFile([below[0] if one else -1 for below, one in zip(inner, alone, strict=True)])
        at = [-1] * len(load.operators)
        for place in reversed(range(len(load.operators))):
            if alone[place] or place in self._bit:
                continue
            looks = [(child, at[self.file.root[child]]) for child in inner[place]]
            while len(looks) > FAN:
                looks = [(-1, self._add(looks[i : i + FAN], 0)) for i in range(0, len(looks), FAN)]
            at[place] = self._add(looks, sum(1 << self._bit[one] for one in load.children[place] if one in self._bit))
        #: By operator: the node whose set it shares; -1 for a sink.
        self.node = [at[root] for root in self.file.root]
        self._lookers: list[list[int]] = [[] for _ in self._looks]
        for node, looks in enumerate(self._looks):
            for _, below in looks:
                self._lookers[below].append(node)
        ranked = [(self.file.rank[one], node) for node, looks in enumerate(self._looks) for one, _ in looks if one >= 0]
        self._by_rank = LookersByRank(ranked)
        for place, shut in enumerate(self._shut):
            if shut:
                self.file.block(place, 1)

    def _add(self, looks: list[tuple[int, int]], direct: int) -> int:
        self._looks.append(looks)
        self._direct.append(direct)
        return len(self._looks) - 1

    def update(self, flipped: Iterable[int], asked: Iterable[int], dropped: Iterable[int]) -> list[int]:
        """These operators became congested or uncongested; these nodes are asked about once more, these once less.

        Answers with the nodes whose set is another one now.
        """
        touched = set[int]()
        for place in flipped:
            self._shut[place] = not self._shut[place]
            self.file.block(place, 1 if self._shut[place] else -1)
            touched.update(self._by_rank.within(self.file.range_of(place)))
        for node in asked:
            self._need(node, 1, touched)
        for node in dropped:
            self._need(node, -1, touched)
        return self._fill(self._settle(touched))

    def _need(self, node: int, by: int, touched: set[int]) -> bool:
        """Whether this made a difference: it is needed for the first time, or by nobody any more."""
        before = self._needed_by[node]
        self._needed_by[node] = before + by
        if before and before + by:
            return False
        touched.add(node)
        return True

    def _settle(self, touched: set[int]) -> list[int]:
        """Who needs whom, from the lookers down: the nodes to look again, each before those that it looks at."""
        queue = [-node for node in touched]
        heapq.heapify(queue)
        again = []
        while queue:
            node = -heapq.heappop(queue)
            before = self._sees[node]
            now = []
            if self._needed_by[node]:
                again.append(node)
                now = [below for child, below in self._looks[node] if child < 0 or self._is_open(child)]
            if now == before:
                continue
            self._sees[node] = now
            for below, by in [*((one, 1) for one in now), *((one, -1) for one in before)]:
                known = below in touched
                if self._need(below, by, touched) and not known:
                    heapq.heappush(queue, -below)
        return again

    def _is_open(self, child: int) -> bool:
        return not (self._shut[child] or (self.file.following[child] and self.file.is_blocked(child)))

    def _fill(self, again: list[int]) -> list[int]:
        """Look again, from the sinks up, and where a set is another one now, let those who need it look again too."""
        queue, waiting, sets, different = again[::-1], set(again), self.sets, []
        while queue:
            node = heapq.heappop(queue)
            found = self._direct[node]
            for below in self._sees[node]:
                found |= sets[below]
            if found == sets[node]:
                continue
            sets[node] = found
            different.append(node)
            for looker in self._lookers[node]:
                if self._needed_by[looker] and looker not in waiting:
                    waiting.add(looker)
                    heapq.heappush(queue, looker)
        return different
