"""The chains of a fluid topology: they are made, taken apart and put together by the placement, as on the engine
(engine/run/chaining.py)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

from penstock.clock import run_time
from penstock.cluster.model import Placement
from penstock.settings import Settings
from penstock.simulator.clock import VirtualClock
from penstock.simulator.fluid import Water
from penstock.strategies.mapping.chains import Chains, chains_of
from penstock.topology.definition import TopologyDefinition

#: Operators that are to become a chain stand still for so many seconds at most, as on the engine.
JOIN_SECONDS = 10.0
#: How often somebody looks whether rows still wait between them.
LOOK = 1.0
#: Fewer rows than this are none.
NO_ROWS = 1e-6


class ChainedTopology(Protocol):
    """A fluid topology, as its chains see it."""

    clock: VirtualClock
    settings: Settings
    water: Water

    @property
    def definition(self) -> TopologyDefinition: ...

    def flow(self) -> None: ...
    def placed_alike(self) -> None: ...
    def happened(self, kind: str, reason: str, subject: str = "") -> object: ...


class FluidChaining:
    """Which operators of a fluid topology run as one."""

    def __init__(self, topology: ChainedTopology, placement: Placement) -> None:
        self._topology = topology
        self.chains = self._wanted(placement)

    def with_chains(self, operators: frozenset[str]) -> frozenset[str]:
        """These operators, and all that run as one with them."""
        return operators.union(*(chain for chain in self.chains if not operators.isdisjoint(chain)))

    def split(self, placement: Placement) -> None:
        """Take the chains apart that a placement does not allow."""
        together = {pair for chain in self._wanted(placement) for pair in pairwise(chain)}
        parts: list[list[str]] = []
        for chain in self.chains:
            parts.append([chain[0]])
            for one, two in pairwise(chain):
                if (one, two) in together:
                    parts[-1].append(two)
                else:
                    parts.append([two])
        self.chains = tuple(tuple(part) for part in parts if len(part) > 1)

    def join(self, placement: Placement, still: Callable[[frozenset[str]], None]) -> None:
        """Put operators together that are placed alike. The first of them stands still until no rows wait between
        them; if that takes too long, they stay apart."""
        for chain in self._wanted(placement):
            if chain in self.chains:
                continue
            still(frozenset(chain[:1]))
            deadline = run_time() + JOIN_SECONDS
            while (waits := self._wait_between(chain)) and run_time() < deadline:
                self._topology.clock.sleep(LOOK)
            still(frozenset())
            shown = " - ".join(chain)
            if waits:
                why = f"the rows that wait between them were not worked off within {JOIN_SECONDS:g} s"
                self._topology.happened("notice", f"{shown} do not become one chain: {why}", chain[0])
                continue
            self.chains = (*(one for one in self.chains if set(chain).isdisjoint(one)), chain)
            self._topology.placed_alike()
            self._topology.happened("action", f"these operators run as one chain now: {shown}", chain[0])

    def _wait_between(self, chain: tuple[str, ...]) -> bool:
        self._topology.flow()
        water, pairs = self._topology.water, set(pairwise(chain))
        between = [n for n, stream in enumerate(water.streams) if (stream.producer, stream.consumer) in pairs]
        return any(water.levels[stream] > NO_ROWS for stream in between)

    def _wanted(self, placement: Placement) -> Chains:
        return chains_of(self._topology.definition, placement) if self._topology.settings.chaining == "on" else ()
