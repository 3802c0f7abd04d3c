"""The chains of a running topology: they are made when it starts, and split and joined while it runs.

Everything that makes a query durable belongs to its first operator: checkpoint, read positions, batch numbers. An
operator that runs inside another's query keeps its own checkpoint as it was, and the channel before it stays empty; so
it can go on by itself at any batch, and can be taken in again once it has read that channel to the end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Protocol

from penstock.channels.layout import channel_name
from penstock.channels.log import Channels
from penstock.cluster.model import Placement
from penstock.engine.run.any_query import AnyQuery
from penstock.engine.run.arrangement import Arrangement
from penstock.monitor.events import EventKind
from penstock.settings import Settings
from penstock.strategies.mapping.chains import Chains, chains_of
from penstock.topology.definition import TopologyDefinition

#: Operators that are to be joined stand still until what waits between them is worked off: no longer than this.
JOIN_SECONDS = 10.0
POLL = 0.02


class ReplacedQueries(Protocol):
    """The queries of a run, as whoever replaces some of them sees them."""

    @property
    def replacing(self) -> AbstractContextManager[object]: ...

    def start_parts(self, parts: Sequence[str]) -> None: ...


class ChainedRun(Protocol):
    """A run, as its chains see it. Some of it is made after them, so they ask for it when they need it."""

    @property
    def definition(self) -> TopologyDefinition: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def arrangement(self) -> Arrangement: ...
    @property
    def channels(self) -> Channels: ...
    @property
    def queries(self) -> ReplacedQueries: ...

    def query(self, operator: str) -> AnyQuery: ...
    def check(self) -> None: ...
    def happened(self, kind: str, reason: str, subject: str = "") -> object: ...


class Chaining:
    """Which operators of a run share a query."""

    def __init__(self, run: ChainedRun) -> None:
        self._run = run

    @property
    def chains(self) -> Chains:
        return self._run.arrangement.chains

    def chain_of(self, operator: str) -> tuple[str, ...]:
        """The operators that share a query with this one, itself among them."""
        return next((chain for chain in self.chains if operator in chain), (operator,))

    def first_of(self, operator: str) -> str:
        return self.chain_of(operator)[0]

    def begin(self) -> None:
        """Make the chains that the placement allows, before the first query starts. Two operators stay apart where rows
        of an earlier run wait between them."""
        wanted = self._wanted(self._run.arrangement.planned)
        together = {(one, two) for chain in wanted for one, two in pairwise(chain) if not self._waiting(two)}
        parts = [part for chain in wanted for part in _parts(chain, together)]
        self._run.arrangement.chain(tuple(part for part in parts if len(part) > 1))

    def split(self, placement: Placement) -> None:
        """Split the chains that a coming placement does not allow. All other chains run on as they are."""
        run, wanted = self._run, self._wanted(placement)
        together = {pair for chain in wanted for pair in pairwise(chain)}
        for chain in self.chains:
            parts = _parts(chain, together)
            if len(parts) == 1:
                continue
            with run.queries.replacing:
                run.query(chain[0]).stop()
                others = tuple(one for one in self.chains if one != chain)
                run.arrangement.chain((*others, *(part for part in parts if len(part) > 1)))
                run.queries.start_parts([part[0] for part in parts])
            shown = " | ".join(" - ".join(part) for part in parts)
            run.happened(EventKind.ACTION, f"Penstock has taken the chain apart: {shown}", chain[0])

    def join(self) -> None:
        """Join the operators that may be a chain under the placement as it is."""
        for chain in self._wanted(self._run.arrangement.planned):
            parts = list(dict.fromkeys(self.chain_of(operator) for operator in chain))
            if len(parts) > 1:
                self._join(chain, parts)

    def _join(self, chain: tuple[str, ...], parts: list[tuple[str, ...]]) -> None:
        run = self._run
        with run.queries.replacing:
            run.query(chain[0]).stop()
            done = False
            try:
                # What the first part has published and nobody heard of waits in front of the others, too.
                run.channels.catch_up()
                done = self._worked_off(parts[1:])
                if done:
                    for part in parts[1:]:
                        run.query(part[0]).stop()
                    run.arrangement.chain((*(one for one in self.chains if one not in parts), chain))
            finally:
                run.queries.start_parts([chain[0]])
        if done:
            run.happened(EventKind.ACTION, f"these operators run as one chain now: {' - '.join(chain)}", chain[0])
        else:
            operators = " - ".join(chain)
            reason = (
                f"{operators} do not become one chain: the operators have not worked off the rows that wait between "
                f"them within {JOIN_SECONDS:g} s"
            )
            run.happened(EventKind.NOTICE, reason, chain[0])

    def _worked_off(self, parts: list[tuple[str, ...]]) -> bool:
        """Wait until no rows wait in front of these parts, one part after the other; False if that takes too long."""
        deadline = time.monotonic() + JOIN_SECONDS
        for part in parts:
            while not self._run.query(part[0]).drained:
                self._run.check()
                if time.monotonic() > deadline:
                    return False
                time.sleep(POLL)
        return True

    def _wanted(self, placement: Placement) -> Chains:
        if self._run.settings.chaining == "off":
            return ()
        return chains_of(self._run.definition, placement)

    def _waiting(self, operator: str) -> bool:
        """Whether rows wait in front of an operator."""
        definition, channels = self._run.definition, self._run.channels
        return any(
            channels.backlog(operator, channel_name(definition, stream)).rows
            for stream in definition.inputs_of(operator)
        )


def _parts(chain: tuple[str, ...], together: set[tuple[str, str]]) -> list[tuple[str, ...]]:
    """The parts of a chain that is cut between all neighbours that are not to be together."""
    parts: list[tuple[str, ...]] = [chain[:1]]
    for one, two in pairwise(chain):
        if (one, two) in together:
            parts[-1] = (*parts[-1], two)
        else:
            parts.append((two,))
    return parts
