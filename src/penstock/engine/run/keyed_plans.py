"""What the functions of keyed operators keep as state, by what the rehearsal of each has returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from penstock.engine.spark.internals import plan_of
from penstock.engine.state.meaning import fingerprint
from penstock.topology.definition import Keyed, TopologyDefinition


def keyed_plans(definition: TopologyDefinition, frames: Mapping[str, DataFrame]) -> dict[str, Any]:
    """By operator: the version of Spark, and what its stateful steps are. Operators whose plan is not to be had, as
    with Spark Connect, are left out."""
    found: dict[str, Any] = {}
    for operator in definition.operators:
        if isinstance(operator, Keyed) and (plan := plan_of(frames[operator.name])) is not None:
            found[operator.name] = {"spark": frames[operator.name].sparkSession.version, "stateful": fingerprint(plan)}
    return found
