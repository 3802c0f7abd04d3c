"""The two kinds of queries of a run: those whose bundles stand, and those that Spark runs in micro-batches."""

from __future__ import annotations

from penstock.engine.query.query import OperatorQuery
from penstock.engine.standing.query import StandingQuery

AnyQuery = OperatorQuery | StandingQuery
