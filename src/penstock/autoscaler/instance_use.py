"""The CPU utilisation of instances, from a snapshot: which share of the CPU time that it could have had an instance has
used. What was not measured stays unknown.

Bundles are measured as a whole, so instances of one operator on one slot have the same figure. Operators that run as
one chain share their instances: an instance of a chain uses what all its operators use together.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cluster.model import Slot
from penstock.monitor.snapshot import Snapshot
from penstock.strategies.thresholds import InstanceUse


def uses_of(snapshot: Snapshot, chain: Sequence[str]) -> tuple[InstanceUse, ...]:
    """By slot: the instances of an operator, or of a chain, and what each of them uses. A gap in the utilisation of an
    operator makes it unknown: what was counted is then less than what was done."""
    placed = sorted(snapshot.placement.of(chain[0]).items())
    if any(gap.subject in chain for gap in snapshot.gaps_in("utilisation")):
        return tuple(InstanceUse(count, None) for _, count in placed)
    return tuple(InstanceUse(count, _share(snapshot, chain, slot, count)) for slot, count in placed)


def _share(snapshot: Snapshot, chain: Sequence[str], slot: Slot, count: int) -> float | None:
    """Of what an instance could have had. Where CPU time is not measured, because Spark SQL does the work, the time
    counts in which the instance was busy."""
    cores = busy = 0.0
    for name in chain:
        seen = snapshot.operators[name].slots.get(slot.name)
        if seen is None or (seen.cpu_utilisation is None and seen.utilisation is None):
            return None
        if seen.cpu_utilisation is not None:
            cores += seen.cpu_utilisation
        else:
            busy += seen.utilisation or 0.0
    return min(busy + cores / _obtainable(snapshot, slot, count, cores), 1.0)


def _obtainable(snapshot: Snapshot, slot: Slot, count: int, cores: float) -> float:
    """How much of a core an instance could have had that used so much of one: a whole core, but no more than its part
    of the cores that its bundle may use, and on a machine of a lab no more than its group had for it."""
    known = next((one.cores for one in snapshot.cluster.slots if one == slot), slot.cores)
    most = min(1.0, known / count)
    use = snapshot.machine_uses.get(slot.machine)
    if use is None:
        return most
    # A group deals its cores fairly: what one leaves idle, another may have.
    fair = use.cores / max(_instances_on(snapshot, slot.machine), 1)
    return min(most, max(fair, cores + max(use.cores - use.cpu_cores, 0.0)))


def _instances_on(snapshot: Snapshot, machine: str) -> int:
    """Those of a chain are counted once."""
    behind = {name for chain in snapshot.chains for name in chain[1:]}
    return sum(
        count
        for name, slots in snapshot.placement.instances.items()
        if name not in behind
        for slot, count in slots.items()
        if slot.machine == machine
    )
