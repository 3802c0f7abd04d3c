"""The traffic between instances, from a snapshot, and how much of it crosses from machine to machine in a placement.

What instances exchange is not measured one by one. The traffic of a stream is split by how much each instance does: an
instance that executes a tenth of its operator's rows sends and gets a tenth of what its operator sends and gets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.cluster.model import Placement, Slot
from penstock.monitor.snapshot import Snapshot

#: Operators that run as one chain, or one operator: what is placed together.
Unit = tuple[str, ...]


@dataclass(frozen=True)
class Instance:
    """One instance of an operator or a chain, where it is now, and its part of the rows."""

    unit: Unit
    slot: Slot
    part: float


@dataclass(frozen=True)
class Traffic:
    """What operators exchange, in bytes a second, or in rows a second where bytes are not measured."""

    units: tuple[Unit, ...]
    streams: Mapping[tuple[Unit, Unit], float]
    instances: tuple[Instance, ...]

    def of(self, unit: Unit) -> Mapping[Unit, float]:
        """What a unit exchanges with each other one, both ways together."""
        found: dict[Unit, float] = {}
        for ends, rate in self.streams.items():
            if unit in ends:
                other = ends[1] if ends[0] == unit else ends[0]
                found[other] = found.get(other, 0.0) + rate
        return found

    def crossing(self, parts: Mapping[Unit, Mapping[str, float]]) -> float:
        """How much crosses from machine to machine, by the part of each unit that is on each machine."""
        return math.fsum(
            rate * (1.0 - math.fsum(share * parts[to].get(machine, 0.0) for machine, share in parts[one].items()))
            for (one, to), rate in self.streams.items()
        )


def traffic_of(snapshot: Snapshot, placement: Placement) -> Traffic | None:
    """None if neither bytes nor rows of all streams are known."""
    streams = _rates(snapshot)
    if streams is None:
        return None
    units = tuple(dict.fromkeys(snapshot.chain_of(one.name) for one in snapshot.definition.operators))
    between: dict[tuple[Unit, Unit], float] = {}
    for name, rate in streams.items():
        stream = snapshot.streams[name]
        ends = snapshot.chain_of(stream.producer), snapshot.chain_of(stream.consumer)
        if ends[0] != ends[1] and rate > 0:
            between[ends] = between.get(ends, 0.0) + rate
    instances = tuple(one for unit in units for one in _instances(snapshot, placement, unit))
    return Traffic(units, between, instances)


def _rates(snapshot: Snapshot) -> Mapping[str, float] | None:
    """By stream. Of an operator that reads several, only the sum is measured; it is split by their rows."""
    rows = {name: one.rate if one.rate is not None else one.emit_rate for name, one in snapshot.streams.items()}
    if any(rate is None for rate in rows.values()):
        return None
    known = {name: rate for name, rate in rows.items() if rate is not None}
    consumers = {one.consumer for one in snapshot.streams.values()}
    bytes_read = {name: snapshot.operators[name].traffic for name in consumers}
    if any(size is None for size in bytes_read.values()):
        return known
    totals: dict[str, float] = {}
    for name, rate in known.items():
        consumer = snapshot.streams[name].consumer
        totals[consumer] = totals.get(consumer, 0.0) + rate
    found = {}
    for name, rate in known.items():
        consumer = snapshot.streams[name].consumer
        part = rate / totals[consumer] if totals[consumer] > 0 else 0.0
        found[name] = (bytes_read[consumer] or 0.0) * part
    return found


def _instances(snapshot: Snapshot, placement: Placement, unit: Unit) -> list[Instance]:
    """Those of one slot do equally much. If it is not known what each slot does, all do."""
    placed = dict(sorted(placement.of(unit[0]).items()))
    seen = snapshot.operators[unit[0]].slots
    rates = {slot: one.rate for slot in placed if (one := seen.get(slot.name)) is not None and one.rate is not None}
    total = math.fsum(rates.values())
    even = len(rates) < len(placed) or total <= 0
    count = sum(placed.values())
    return [
        Instance(unit, slot, 1.0 / count if even else rates[slot] / total / number)
        for slot, number in placed.items()
        for _ in range(number)
    ]
