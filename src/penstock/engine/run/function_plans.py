"""What is recorded about DataFrame functions. It is read from the DataFrame that each returned in its rehearsal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from penstock.engine.query.rehearsal import input_groups
from penstock.engine.spark.stream_plans import plan_of
from penstock.engine.state.meaning import fingerprint, inputs_read
from penstock.topology.definition import TopologyDefinition


def plans_of(definition: TopologyDefinition, frames: Mapping[str, DataFrame]) -> dict[str, Any]:
    """By operator: the version of Spark, the stateful nodes of the operator's plan, and the streams in each DataFrame
    that it reads, in the order of reading. An operator whose plan Spark does not show, as with Spark Connect, is left
    out."""
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
            "stateful_by_input": fingerprint(plan, inputs_apart=True),
            "reads": [groups[index] for index in inputs_read(plan)],
        }
    return found
