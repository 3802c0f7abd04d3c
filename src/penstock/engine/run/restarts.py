"""Which failure of a query is tried again, how often, and after how long: one table for all queries."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.engine.spark.failures import FailureKind

#: A query is started again at once after its first failure. After further failures in quick succession so many seconds
#: lie between two restarts: at first, then twice as many each time, and at most.
FIRST_WAIT, LONGEST_WAIT = 0.5, 10.0
#: A query that has published nothing since its last restart is not healthy: each of its attempts may take minutes to
#: fail. After so many seconds without a failure Penstock takes it that the query had nothing to do, if it is not known.
IDLE_SECONDS = 600.0


@dataclass(frozen=True)
class Patience:
    """When a query that fails again and again is given up: both must have happened."""

    #: The query was started again so often.
    restarts: int
    #: The first of these restarts was so many seconds ago. This is for operators that have worked: what fails in the
    #: very first batch is most often a mistake.
    seconds: float
    #: After so many seconds without such a failure, all restarts are forgotten, if a batch was published meanwhile or
    #: the query had nothing to do.
    healthy: float


def patience_of(query_restarts: int) -> Mapping[FailureKind, Patience]:
    """The table. A kind of failure that is not in it ends the topology at once."""
    full_disk = {FailureKind.FULL: Patience(restarts=0, seconds=300.0, healthy=60.0)}
    if not query_restarts:
        return full_disk
    return full_disk | {
        # Executors that are lost one after the other, as when a rack goes, use up any number of restarts in a moment.
        FailureKind.LOST: Patience(restarts=query_restarts, seconds=60.0, healthy=120.0),
        FailureKind.PASSING: Patience(restarts=query_restarts, seconds=0.0, healthy=120.0),
    }


@dataclass(frozen=True)
class _Spell:
    """Restarts that were not forgotten."""

    began: float
    last: float
    times: int
    #: The last batch that was published when the query was started again.
    published: int | None


class Restarts:
    """When the query of each operator was started again, by the kind of its failure. `published` says which batch of an
    operator was published last. `was_idle` says whether the query that has failed had nothing to do then: its bundles
    stood and asked for work, and no rows waited."""

    def __init__(
        self,
        query_restarts: int,
        published: Callable[[str], int | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patience = patience_of(query_restarts)
        self._published = published
        self._clock = clock
        self._spells: dict[tuple[str, FailureKind], _Spell] = {}

    def allowed(self, operator: str, kind: FailureKind, was_idle: bool = False) -> bool:
        """Whether the query is started again, now or later."""
        patience, spell = self._patience.get(kind), self._spell(operator, kind, was_idle)
        if patience is None or spell is None:
            return patience is not None
        seconds = patience.seconds if kind is FailureKind.FULL or self._published(operator) is not None else 0.0
        return spell.times < patience.restarts or self._clock() < spell.began + seconds

    def due(self, operator: str, kind: FailureKind, was_idle: bool = False) -> bool:
        """Whether the query has waited long enough."""
        spell = self._spell(operator, kind, was_idle)
        if spell is None:
            return True
        pause: float = min(FIRST_WAIT * 2 ** min(spell.times - 1, 10), LONGEST_WAIT)
        return self._clock() >= spell.last + pause

    def count(self, operator: str, kind: FailureKind, was_idle: bool = False) -> None:
        """Note that the query was started again now."""
        now, spell = self._clock(), self._spell(operator, kind, was_idle)
        began, times = (now, 0) if spell is None else (spell.began, spell.times)
        self._spells[operator, kind] = _Spell(began, now, times + 1, self._published(operator))

    def _spell(self, operator: str, kind: FailureKind, was_idle: bool) -> _Spell | None:
        spell, patience = self._spells.get((operator, kind)), self._patience.get(kind)
        if spell is None or patience is None:
            return None
        has_worked = self._published(operator) != spell.published
        # What may pass can be the look at a source that fails: then nobody knows whether rows wait.
        was_well = has_worked or (was_idle and kind is not FailureKind.PASSING)
        over = self._clock() >= spell.last + (patience.healthy if was_well else IDLE_SECONDS)
        return None if over else spell
