"""The shape of a topology: what of its declaration the state on disk depends on, as it is recorded in the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.schema import schema_text
from penstock.topology.definition import ByKey, Keyed, Map, Sink, Source, TopologyDefinition
from penstock.topology.state.processing import Processing

#: By operator, facts by name. What an older Penstock did not record is missing.
Shape = Mapping[str, Mapping[str, Any]]


def shape_of(definition: TopologyDefinition, plans: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The shape of a declared topology. `plans` says what Spark keeps as state for each DataFrame function, and in
    which order the function reads its inputs, where that is known (function_plans.py)."""
    shape: dict[str, dict[str, Any]] = {}
    for operator in definition.operators:
        streams = definition.inputs_of(operator.name)
        facts: dict[str, Any] = {
            "kind": operator.kind,
            "inputs": [f"{stream.producer}.{stream.output}" for stream in streams],
            "outputs": {name: schema_text(schema) for name, schema in operator.outputs.items()},
            "groupings": [str(stream.grouping) for stream in streams],
        }
        plan = plans.get(operator.name)
        if isinstance(operator, Keyed) or (isinstance(operator, Map) and operator.takes_dataframes):
            facts["reads"] = plan.get("reads") if plan else None
        elif streams:
            facts["reads"] = [facts["inputs"]]  # all of them interleaved
        if isinstance(operator, Keyed):
            facts |= {"key": list(operator.key), "tasks": operator.tasks, "output_mode": operator.output_mode}
            kept = ("spark", "stateful", "stateful_by_input")
            facts["plan"] = {fact: plan[fact] for fact in kept if fact in plan} if plan else None
            # What a processor declares is not in Spark's plan.
            processing = operator.function if isinstance(operator.function, Processing) else None
            facts["state"] = processing.words if processing else None
            facts["clock"] = processing.time_mode if processing else None
        if isinstance(operator, Map) and any(isinstance(stream.grouping, ByKey) for stream in streams):
            facts["tasks"] = operator.tasks  # the groups that its rows are split into
        if isinstance(operator, Source):
            facts["source"] = operator.spec.kind
        if isinstance(operator, Sink):
            facts["folder"] = operator.spec.folder
        shape[operator.name] = facts
    return shape


@dataclass(frozen=True)
class ChannelShape:
    """What the rows of a channel look like, and who writes and reads them."""

    producer: str
    schema: str | None
    #: How the rows are split by key, and into how many groups; nothing in a plain channel.
    split: tuple[str, int] | None
    readers: tuple[str, ...]


def channels_read(shape: Shape, operator: str) -> list[str]:
    """The channels that an operator reads, in the order of its inputs (named as in channels/layout.py)."""
    return [_channel(shape, operator, index) for index in range(len(shape[operator]["inputs"]))]


def channel_shapes(shape: Shape) -> dict[str, ChannelShape]:
    """The channels that a topology has, by name."""
    found: dict[str, ChannelShape] = {}
    for reader, facts in shape.items():
        for index, plain in enumerate(facts["inputs"]):
            producer, _, output = plain.partition(".")
            name = _channel(shape, reader, index)
            before = found[name].readers if name in found else ()
            split = (_grouping(facts, index), int(facts.get("tasks", 0))) if name != plain else None
            schema = shape.get(producer, {}).get("outputs", {}).get(output)
            found[name] = ChannelShape(producer, schema, split, (*before, reader))
    return found


def _channel(shape: Shape, reader: str, index: int) -> str:
    facts = shape[reader]
    plain: str = facts["inputs"][index]
    by_key = facts["kind"] == "map" and _grouping(facts, index).startswith("by ")
    return f"{plain}.to.{reader}" if by_key else plain


def _grouping(facts: Mapping[str, Any], index: int) -> str:
    return str(facts.get("groupings", [""] * (index + 1))[index])
