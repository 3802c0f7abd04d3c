"""Which channels a topology needs: one per output and layout, shared by all streams that read it the same way.

Streams with shuffle or broadcast grouping, and all streams into keyed operators (Spark's own shuffle splits those),
read the output's plain channel. A by-key stream into a map operator has a channel of its own, whose rows carry the
group of keys they belong to.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.topology.definition import ByKey, Map, Stream, TopologyDefinition


@dataclass(frozen=True)
class Channel:
    """A channel of a topology: who writes it, who reads it, and how its rows are split."""

    name: str
    producer: str
    output: str
    schema: pa.Schema
    readers: tuple[str, ...]
    #: Columns by which rows are split into `groups`; empty for a plain channel.
    key: tuple[str, ...] = ()
    groups: int = 1


def channel_name(definition: TopologyDefinition, stream: Stream) -> str:
    """The name of the channel that a stream reads."""
    plain = f"{stream.producer}.{stream.output}"
    return f"{plain}.to.{stream.consumer}" if _split_by_key(definition, stream) else plain


def _split_by_key(definition: TopologyDefinition, stream: Stream) -> bool:
    return isinstance(stream.grouping, ByKey) and isinstance(definition.operator(stream.consumer), Map)


def channels_of(definition: TopologyDefinition) -> dict[str, Channel]:
    """All channels of a topology, by name."""
    channels: dict[str, Channel] = {}
    for stream in definition.streams:
        name = channel_name(definition, stream)
        readers = channels[name].readers if name in channels else ()
        key: tuple[str, ...] = ()
        groups = 1
        consumer = definition.operator(stream.consumer)
        if _split_by_key(definition, stream) and isinstance(stream.grouping, ByKey) and isinstance(consumer, Map):
            key, groups = stream.grouping.columns, consumer.tasks
        channels[name] = Channel(
            name=name,
            producer=stream.producer,
            output=stream.output,
            schema=definition.schema_of(stream),
            readers=(*readers, stream.consumer),
            key=key,
            groups=groups,
        )
    return channels
