"""How a topology stands at one moment: what its sinks measured, what its sources are offered, what waits, and whether
that grows. A goal is compared with these figures. Projections (`measured_load`) only say which operator is too slow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.monitor.snapshot import OperatorSnapshot, Snapshot

#: Rows that would take longer than so many seconds to work off are a backlog, and not just the next batch.
BEHIND = 10.0
#: A backlog of so many seconds that still grows is no fluctuation.
FAR_BEHIND = 300.0
#: A backlog that will be gone within this time needs no help.
CATCHES_UP = 3600.0
#: More rows come than are worked off if the difference is above this share: measured rates fluctuate.
PILES_UP = 0.03


@dataclass(frozen=True)
class Balance:
    """Rates are rows a second. None means: not measured."""

    #: What arrived at the sinks, weighted.
    throughput: float | None
    #: What all sources are offered, whether they emit it or not; None if a source does not know.
    offered: float | None
    #: What all sources emitted.
    emitted: float | None
    #: Rows that wait: in front of operators, and at sources that owe them.
    backlog: int
    #: Seconds that the longest backlog takes at the rate at which it is worked off.
    wait: float
    #: Rows a second by which the backlogs grow; below 0 they drain.
    trend: float | None
    #: Whether rows pile up somewhere, or an operator waits for another: more could be done if somebody were faster.
    unmet: bool
    #: Whether more rows come to some operator than it works off, now: not only that rows wait which came before. True
    #: where rows wait and nobody knows whether they become more.
    grows: bool
    #: Whether rows of minutes wait in front of an operator to which more rows come than it works off.
    far_behind: bool = False

    @property
    def behind(self) -> bool:
        """Whether a backlog is to be worked off: what the sinks measure meanwhile is more than what comes in."""
        return self.wait > BEHIND

    @property
    def lacking(self) -> bool:
        """Whether more must be done: rows pile up, and it is not only a backlog that will soon be worked off."""
        draining = self.trend is not None and self.trend < -PILES_UP * (self.emitted or 0.0)
        return self.unmet and not (draining and self.backlog < -(self.trend or 0.0) * CATCHES_UP)

    @property
    def catches_up(self) -> bool:
        """Whether a backlog is being worked off, or may be: more arrives at the sinks than comes in."""
        return self.behind and (self.trend is None or self.trend < 0)

    @property
    def falls_behind(self) -> bool:
        """Whether a backlog of minutes has piled up and still grows: then a small lack is one too."""
        return self.far_behind and self.lacking

    def __str__(self) -> str:
        trend = ""
        if self.trend is not None and self.backlog:
            trend = f", growing by {self.trend:,.0f}/s" if self.trend > 0 else f", draining by {-self.trend:,.0f}/s"
        return f"{_rate(self.throughput)} at the sinks, {_rate(self.offered)} offered, {self.backlog:,} wait{trend}"


def balance_of(snapshot: Snapshot) -> Balance:
    sources = [snapshot.operators[source.name] for source in snapshot.definition.sources]
    sinks = [(sink.weight, snapshot.operators[sink.name].rate) for sink in snapshot.definition.sinks]
    reached = _sum(None if rate is None else weight * rate for weight, rate in sinks)
    waiting = {name: _waiting(one) for name, one in snapshot.operators.items()}
    # Without an arrival rate of its own, a source is offered what it takes, as long as nobody holds it back.
    offered = _sum(one.rate if one.input_rate is None and not one.held_back else one.input_rate for one in sources)
    return Balance(
        throughput=reached,
        offered=offered,
        emitted=_sum(one.rate for one in sources),
        backlog=sum(waiting.values()),
        wait=max((_seconds(rows, snapshot.operators[name].rate) for name, rows in waiting.items()), default=0.0),
        trend=_trend(snapshot),
        unmet=any(_piles_up(one) for one in snapshot.operators.values()),
        grows=any(_grows(one) or _is_unknown(one) for one in snapshot.operators.values()),
        far_behind=any(
            _grows(one) and _seconds(waiting[name], one.rate) > FAR_BEHIND for name, one in snapshot.operators.items()
        ),
    )


def _trend(snapshot: Snapshot) -> float | None:
    known = [one.backlog.growth for one in snapshot.operators.values() if one.backlog.growth is not None]
    for source in snapshot.definition.sources:
        one = snapshot.operators[source.name]
        if one.rate is not None and one.input_rate is not None:
            known.append(one.input_rate - one.rate)
    return math.fsum(known) if known else None


def _piles_up(one: OperatorSnapshot) -> bool:
    return _grows(one) or _seconds(_waiting(one), one.rate) > BEHIND


def _grows(one: OperatorSnapshot) -> bool:
    if one.held_back:
        return True
    rate, grows = one.rate or 0.0, one.backlog.growth or 0.0
    comes = one.input_rate or 0.0
    least = PILES_UP * max(rate, comes)
    return comes - rate > least or grows > least


def _is_unknown(one: OperatorSnapshot) -> bool:
    """Whether rows wait in front of it, or at a source that owes them, and nobody knows whether they become more."""
    in_front = bool(one.backlog.rows) and one.backlog.growth is None
    return in_front or (bool(one.unmet_rows) and one.input_rate is None)


def _waiting(one: OperatorSnapshot) -> int:
    return (one.backlog.rows or 0) + (one.unmet_rows or 0)


def _seconds(rows: int, rate: float | None) -> float:
    if not rows or rate is None:
        return 0.0
    return rows / rate if rate > 0 else math.inf


def _sum(values: Iterable[float | None]) -> float | None:
    found = list(values)
    return None if any(one is None for one in found) else math.fsum(one for one in found if one is not None)


def _rate(rows: float | None) -> str:
    return "an unknown rate" if rows is None else f"{rows:,.0f} rows/s"
