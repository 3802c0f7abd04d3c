"""ETP kept up to date from one iteration to the next: what etp.py computes in one pass, without the pass.

Sets of sinks (sink_sets.py) are kept without regard to whether the sinks themselves are congested; a congested sink
counts 0 units. So a sink that becomes congested, or gets faster, changes no set: one addition to the sums of those that
reach it, for all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.strategies.load import Load
from penstock.strategies.stela.etp import Floats, Places, packed, units_of
from penstock.strategies.stela.sink_sets import SinkSets

#: Row v holds the bits of v: which of eight sinks a byte of a packed set names.
BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(np.float64)


class Reach:
    """`congested` is the caller's own array: change it, then say for which operators."""

    def __init__(self, load: Load, congested: NDArray[np.bool_], units: Floats) -> None:
        self._congested = congested
        self._known = congested.copy()
        self._bit = {place: bit for bit, place in enumerate(load.sinks)}
        self._sinks = np.array(load.sinks, dtype=np.intp)
        self._own = np.zeros(len(load.operators))
        self._own[self._sinks] = units
        self._counted = np.where(congested[self._sinks], 0.0, units)
        self._sets = SinkSets(load, congested.tolist())
        self._node = np.array(self._sets.node, dtype=np.intp)
        self._asked = np.zeros(len(self._sets.sets), dtype=np.bool_)
        #: By node, as of when they were last made: the set, one row for every eight sinks, and its units.
        self._packed = np.zeros(((len(self._sinks) + 7) // 8, len(self._sets.sets)), dtype=np.uint8)
        self._sums = np.zeros(len(self._sets.sets))
        self._stale = np.zeros(len(self._sets.sets), dtype=np.bool_)
        self._update([], self._node[congested & (self._node >= 0)].tolist(), [])

    def values(self, places: Places) -> Floats:
        """The effectively reachable units of these operators: ETP is their share of total().

        The congested ones are always at hand; any other is from the first time that it is asked about.
        """
        nodes = self._node[places]
        inner = nodes >= 0
        self._ask(nodes[inner & ~self._congested[places]])
        self._refresh(nodes[inner])
        values = self._own[places]
        through = inner & (self._sets.file.blocks[self._sets.file.ranks[places]] == 0)
        values[through] = self._sums[nodes[through]]
        return values

    def total(self) -> float:
        return float(self._own[self._sinks].sum())

    def changed(self, places: Iterable[int]) -> None:
        """These operators became congested, or uncongested."""
        flipped = [place for place in places if self._known[place] != self._congested[place]]
        self._known[flipped] = self._congested[flipped]
        inner = [place for place in flipped if place not in self._bit]
        if inner:
            asked = [self._sets.node[place] for place in inner if self._congested[place]]
            dropped = [self._sets.node[place] for place in inner if not self._congested[place]]
            self._update(inner, asked, dropped)
        if len(inner) < len(flipped):
            self._count([self._bit[place] for place in flipped if place in self._bit])

    def faster(self, place: int, units: float) -> None:
        """A sink's throughput is now this many units."""
        self._own[place] = units
        self._count([self._bit[place]])

    def _ask(self, nodes: Places) -> None:
        new = nodes[~self._asked[nodes]]
        if new.size:
            self._asked[new] = True
            self._update([], np.unique(new).tolist(), [])

    def _update(self, flipped: Sequence[int], asked: Sequence[int], dropped: Sequence[int]) -> None:
        self._stale[self._sets.update(flipped, asked, dropped)] = True

    def _refresh(self, nodes: Places) -> None:
        """Sums are made when they are asked for: most sets change more often than anyone looks at their sum."""
        wanted = nodes[self._stale[nodes]]
        if wanted.size:
            wanted = np.unique(wanted)
            sets = [self._sets.sets[node] for node in wanted.tolist()]
            self._packed[:, wanted] = packed(sets, len(self._sinks)).T
            self._sums[wanted] = units_of(sets, self._counted)
            self._stale[wanted] = False

    def _count(self, bits: Sequence[int]) -> None:
        """What these sinks count has changed: add the difference to the sums of all sets that hold them."""
        which = np.array(bits, dtype=np.intp)
        sinks = self._sinks[which]
        now = np.where(self._congested[sinks], 0.0, self._own[sinks])
        more = np.zeros(8 * len(self._packed))
        more[which] = now - self._counted[which]
        self._counted[which] = now
        for byte in np.unique(which // 8):
            self._sums += (BITS @ more[8 * byte : 8 * byte + 8])[self._packed[byte]]
