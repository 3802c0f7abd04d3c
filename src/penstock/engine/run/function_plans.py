"""What is recorded of the functions of DataFrames, by what the rehearsal of each has returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from penstock.engine.query.rehearsal import input_groups
from penstock.engine.spark.stream_plans import plan_of
from penstock.engine.state.meaning import fingerprint, inputs_read
from penstock.topology.definition import TopologyDefinition


def plans_of(definition: TopologyDefinition, frames: Mapping[str, DataFrame]) -> dict[str, Any]:
    """By operator: the version of Spark, what its stateful steps are, and the streams in each DataFrame that it reads,
    in the order of reading. Operators whose plan is not to be had, as with Spark Connect, are left out."""
    found: dict[str, Any] = {}
    for name, frame in frames.items():
        if (plan := plan_of(frame)) is None:
            continue
        groups = [
            [f"{stream.producer}.{stream.output}" for stream in streams]
            for streams in input_groups(definition, definition.operator(name))
        ]
        found[name] = {
            "spark": frame.sparkSession.version,
            "stateful": fingerprint(plan),
            "reads": [groups[index] for index in inputs_read(plan)],
        }
    return found
