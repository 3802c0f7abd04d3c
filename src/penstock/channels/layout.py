"""Which channels a topology needs: one per output and layout, shared by all streams that read it the same way.

Streams with shuffle or broadcast grouping, and all streams into keyed operators, read the output's plain channel. A
by-key stream into a map operator has a channel of its own, whose rows carry the group of keys they belong to.

The rows of a plain channel that keyed operators read may have the hashes of their keys beside them (key_hashes.py).
Then these operators need no shuffle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.channels.key_hashes import Key
from penstock.channels.spark_hash import can_hash
from penstock.topology.definition import ByKey, Keyed, Map, Stream, TopologyDefinition


@dataclass(frozen=True)
class Channel:
    """A channel of a topology: who writes it, who reads it, and how its rows are split."""

    name: str
    producer: str
    output: str
    schema: pa.Schema
    readers: tuple[str, ...]
    #: Columns by which rows are split into `groups`; empty for a plain channel.
    key: Key = ()
    groups: int = 1
    #: The keys whose hashes are beside the rows.
    hashed: tuple[Key, ...] = ()


def channel_name(definition: TopologyDefinition, stream: Stream) -> str:
    """The name of the channel that a stream reads."""
    plain = f"{stream.producer}.{stream.output}"
    return f"{plain}.to.{stream.consumer}" if _split_by_key(definition, stream) else plain


def _split_by_key(definition: TopologyDefinition, stream: Stream) -> bool:
    return isinstance(stream.grouping, ByKey) and isinstance(definition.operator(stream.consumer), Map)


def channels_of(definition: TopologyDefinition, hashed: Mapping[str, Key] | None = None) -> dict[str, Channel]:
    """All channels of a topology, by name. `hashed` says of keyed operators which hashes are to be beside the rows that
    they read."""
    asked = hashed or {}
    channels: dict[str, Channel] = {}
    for stream in definition.streams:
        name = channel_name(definition, stream)
        readers = channels[name].readers if name in channels else ()
        hashes = channels[name].hashed if name in channels else ()
        key: Key = ()
        groups = 1
        consumer = definition.operator(stream.consumer)
        if _split_by_key(definition, stream) and isinstance(stream.grouping, ByKey) and isinstance(consumer, Map):
            key, groups = stream.grouping.columns, consumer.tasks
        if asked.get(stream.consumer, ()) not in ((), *hashes):
            hashes = (*hashes, asked[stream.consumer])
        channels[name] = Channel(
            name=name,
            producer=stream.producer,
            output=stream.output,
            schema=definition.schema_of(stream),
            readers=(*readers, stream.consumer),
            key=key,
            groups=groups,
            hashed=hashes,
        )
    return channels


def why_not_hashed(definition: TopologyDefinition, operator: Keyed) -> str:
    """Why the key of an operator cannot be hashed as Spark does it; empty if it can, in all its inputs."""
    for stream in definition.inputs_of(operator.name):
        schema = definition.schema_of(stream)
        for column in operator.key:
            if not can_hash(kind := schema.field(column).type):
                return f'its key "{column}" is of type {kind}'
    return ""
