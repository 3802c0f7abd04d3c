"""The two kinds of queries of a run: those whose bundles stand, and those that Spark runs in micro-batches."""

from __future__ import annotations

from penstock.engine.query.query import OperatorQuery
from penstock.engine.standing.query import StandingQuery
from penstock.topology.definition import Source

AnyQuery = OperatorQuery | StandingQuery


def rests(query: AnyQuery) -> bool:
    """Whether a query has nothing to do now: it has worked off all rows, or it is a source that is paused or has no
    rows. Such a source may have rows again at any time, so it is not drained."""
    if query.drained:
        return True
    if not isinstance(query.operator, Source) or not query.quiet:
        return False
    if query.intake.paused:
        return True
    if isinstance(query, StandingQuery):
        return query.dealer.has_nothing_to_do  # a source at which no bundle has looked yet may have rows
    return not any(feed.available() for feed in query.feeds)
