"""A Kafka source as the engine deals its ranges, without brokers: partitions that have so many messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from penstock import sources
from penstock.engine.message.shares import Bundle, Share
from penstock.engine.standing.supplies import SourceSupply
from penstock.kinds import SourcePlace
from penstock.sources.kafka_source import KafkaOffsets


class _Notes:
    def get_meta(self, key: str) -> str | None:
        return None

    def change_metas(self, values: Mapping[str, str], gone: Sequence[str] = ()) -> None:
        pass


def supply_of(ends: Sequence[int], weights: Callable[[Sequence[Bundle]], Sequence[int]]) -> SourceSupply:
    """`ends` says how many messages each partition has, `weights` how much of a batch each bundle gets."""
    partitions = [("t", number) for number in range(len(ends))]
    brokers: Any = SimpleNamespace(
        partitions=lambda topics: partitions,
        earliest=lambda some: dict.fromkeys(some, 0),
        latest=lambda some: {one: ends[one[1]] for one in some},
    )
    notes: Any = _Notes()
    spec = sources.kafka("nowhere:9092", "t")
    offsets = KafkaOffsets(spec, SourcePlace("in", notes, lambda: 1.0), brokers)
    offsets.look()
    dealer: Any = SimpleNamespace(closed=False, lingers=False, weights=weights)
    return SourceSupply(offsets, spec, None, dealer)


def ranges_of(share: Share) -> list[tuple[int, int, int]]:
    """(partition, first, stop) of what a bundle reads, in the order in which it does."""
    return [(load[1], load[2], load[3]) for load, _ in (share.load or {})["ranges"]]


def size_of(share: Share) -> int:
    return share.work or 0
