"""ETP of all operators, kept up to date from one iteration to the next: only what a change affects is computed again.

What etp.py computes in one pass, without the pass. Three things keep a change small:

- Sets of sinks are kept without regard to whether the sinks themselves are congested; a congested sink counts 0 units.
  So a sink that becomes congested, or gets faster, changes no set: one addition to the sums of those that reach it.
- Operators in single file share the set of the operator where their file ends (single_file.py).
- An operator with many children looks at them through a tree of helpers with few children each, so that one child's
  change does not mean a look at all the others.

From there a change goes up from child to parent and ends where a set stays as it was. Its cost is the number of
branching operators whose set does change, times S / 64: many, where a graph is long and branches everywhere.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.strategies.scaling.etp import Floats, Places, packed, units_of
from penstock.strategies.scaling.load import Load
from penstock.strategies.scaling.single_file import Gates, SingleFile

#: The most children that a node looks at by itself.
FAN = 16
#: Row v holds the bits of v: which of eight sinks a byte of a packed set names.
BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(np.float64)


class Reach:
    """`congested` is the caller's own array: change it, then say which operators it was changed for."""

    def __init__(self, load: Load, congested: NDArray[np.bool_], units: Floats) -> None:
        self._congested = congested
        self._shut = congested.tolist()
        self._sink_bit = {place: bit for bit, place in enumerate(load.sinks)}
        self._sinks = np.array(load.sinks, dtype=np.intp)
        self._units = units.copy()
        self._counted = np.where(congested[self._sinks], 0.0, units)
        self._build(load)
        self._fill(load)

    def _build(self, load: Load) -> None:
        """Nodes are the roots of the files and the helpers, numbered so that a node comes after all it looks at."""
        inner = [[child for child in children if child not in self._sink_bit] for children in load.children]
        alone = [len(below) == 1 == len(load.children[place]) for place, below in enumerate(inner)]
        self._file = SingleFile([below[0] if one else -1 for below, one in zip(inner, alone, strict=True)])
        self._node = [-1] * len(load.operators)
        #: What a node looks at: (operator that must be open, or -1 for a helper, and the node whose set it passes on).
        self._looks: list[list[tuple[int, int]]] = []
        self._direct: list[int] = []
        for place in reversed(range(len(load.operators))):
            if alone[place] or place in self._sink_bit:
                continue
            looks = [(child, self._node[self._file.root[child]]) for child in inner[place]]
            while len(looks) > FAN:
                looks = [(-1, self._add(looks[i : i + FAN], 0)) for i in range(0, len(looks), FAN)]
            direct = sum(1 << self._sink_bit[child] for child in load.children[place] if child in self._sink_bit)
            self._node[place] = self._add(looks, direct)
        self._lookers: list[list[int]] = [[] for _ in self._looks]
        gates = []
        for node, looks in enumerate(self._looks):
            for child, below in looks:
                self._lookers[below].append(node)
                if child >= 0:
                    gates.append((self._file.rank[child], node))
        self._gates = Gates(gates)

    def _add(self, looks: list[tuple[int, int]], direct: int) -> int:
        self._looks.append(looks)
        self._direct.append(direct)
        return len(self._looks) - 1

    def _fill(self, load: Load) -> None:
        self._node_of = np.array([self._node[root] for root in self._file.root], dtype=np.intp)
        self._own = np.zeros(len(load.operators))
        self._own[self._sinks] = self._units
        for place, shut in enumerate(self._shut):
            if shut:
                self._file.block(place, 1)
        self._sets = [0] * len(self._looks)
        for node in range(len(self._looks)):
            self._sets[node] = self._look(node)
        self._packed = packed(self._sets, len(self._sinks)).T.copy()
        self._sums = units_of(self._sets, self._counted)
        self._stale = np.zeros(len(self._sets), dtype=np.bool_)

    def _look(self, node: int) -> int:
        found, shut, sets = self._direct[node], self._shut, self._sets
        for child, below in self._looks[node]:
            if child < 0 or not (shut[child] or (self._file.following[child] and self._file.is_blocked(child))):
                found |= sets[below]
        return found

    def values(self, places: Places) -> Floats:
        """The effectively reachable units of these operators: ETP is their share of total()."""
        nodes = self._node_of[places]
        self._refresh(nodes)
        values = self._own[places]
        through = (nodes >= 0) & (self._file.blocks[self._file.ranks[places]] == 0)
        values[through] = self._sums[nodes[through]]
        return values

    def _refresh(self, nodes: Places) -> None:
        """Sums are made when they are asked for: most sets change more often than anyone looks at their sum."""
        inner = nodes[nodes >= 0]
        wanted = np.unique(inner[self._stale[inner]])
        if wanted.size:
            sets = [self._sets[node] for node in wanted.tolist()]
            self._packed[:, wanted] = packed(sets, len(self._sinks)).T
            self._sums[wanted] = units_of(sets, self._counted)
            self._stale[wanted] = False

    def total(self) -> float:
        return float(self._units.sum())

    def changed(self, places: Iterable[int]) -> None:
        """These operators became congested, or uncongested."""
        bits, nodes = [], set[int]()
        for place in places:
            now = bool(self._congested[place])
            if now == self._shut[place]:
                continue
            self._shut[place] = now
            if place in self._sink_bit:
                bits.append(self._sink_bit[place])
            else:
                self._file.block(place, 1 if now else -1)
                nodes.update(self._gates.within(self._file.range_of(place)))
        if bits:
            self._count(bits)
        if nodes:
            self._look_again(nodes)

    def faster(self, place: int, units: float) -> None:
        """A sink's throughput is now this many units."""
        bit = self._sink_bit[place]
        self._own[place] = self._units[bit] = units
        self._count([bit])

    def _count(self, bits: Sequence[int]) -> None:
        """What these sinks count has changed: add the difference to the sums of the nodes that reach them."""
        which = np.array(bits, dtype=np.intp)
        now = np.where(self._congested[self._sinks[which]], 0.0, self._units[which])
        more = np.zeros(8 * len(self._packed))
        more[which] = now - self._counted[which]
        self._counted[which] = now
        for byte in np.unique(which // 8):
            self._sums += (BITS @ more[8 * byte : 8 * byte + 8])[self._packed[byte]]

    def _look_again(self, nodes: set[int]) -> None:
        queue, waiting, sets, different = list(nodes), set(nodes), self._sets, []
        heapq.heapify(queue)
        while queue:
            node = heapq.heappop(queue)
            found = self._look(node)
            if found != sets[node]:
                sets[node] = found
                different.append(node)
                for looker in self._lookers[node]:
                    if looker not in waiting:
                        waiting.add(looker)
                        heapq.heappush(queue, looker)
        self._stale[different] = True
