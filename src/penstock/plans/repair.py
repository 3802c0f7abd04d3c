"""A placement for the slots that are left: what was on the others goes to the least loaded. A pure function.

The same rule serves a slot that was lost and a machine that is to leave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from penstock.cluster.model import Placement, Slot


def repair(placement: Placement, usable: Collection[Slot]) -> Placement:
    """The placement with everything on usable slots. What is on one already stays there; if all is, or if there is no
    usable slot at all, the placement is returned as it is."""
    if not usable or placement.slots <= set(usable):
        return placement
    # Slots of the cluster, not those of the placement: a placement read back from a file knows no cores.
    known = {slot: slot for slot in usable}
    load = Counter({slot: count for slot, count in placement.load().items() if slot in known})
    instances = {
        operator: _instances(slots, sorted(known.values()), load) for operator, slots in placement.instances.items()
    }
    tasks = {operator: _tasks(slots, instances[operator], set(known)) for operator, slots in placement.tasks.items()}
    return Placement(instances, tasks)


def _instances(slots: Mapping[Slot, int], usable: list[Slot], load: Counter[Slot]) -> dict[Slot, int]:
    """One operator's instances, those of lost slots dealt one by one to the slot with the least on each of its cores;
    `load` counts along over all operators."""
    placed = Counter({slot: count for slot, count in slots.items() if slot in usable})
    for _ in range(sum(slots.values()) - sum(placed.values())):
        best = min(usable, key=lambda slot: (load[slot] / slot.cores, placed[slot], slot))
        placed[best] += 1
        load[best] += 1
    return {slot: count for slot, count in sorted(placed.items()) if count}


def _tasks(slots: tuple[Slot, ...], instances: Mapping[Slot, int], usable: set[Slot]) -> tuple[Slot, ...]:
    """One operator's tasks, those of lost slots one by one to the slot with the fewest for each of its instances."""
    held = Counter(slot for slot in slots if slot in usable)
    placed = []
    for task_slot in slots:
        if task_slot in usable:
            placed.append(task_slot)
            continue
        best = min(instances, key=lambda slot: (held[slot] / instances[slot], slot))
        held[best] += 1
        placed.append(best)
    return tuple(placed)


def follow_instances(tasks: tuple[Slot, ...], instances: Mapping[Slot, int]) -> tuple[Slot, ...]:
    """A keyed operator's tasks for new instances: every slot holds its share of the tasks, and as few as possible
    move. A slot's share is what its part of the instances gives; what does not divide goes to who holds it already."""
    total = sum(instances.values())
    share = {slot: len(tasks) * count // total for slot, count in instances.items()}
    held = Counter(tasks)
    # The rest: by the largest remainder, and among equals to a slot that would otherwise have to give one away.
    by_need = sorted(
        instances, key=lambda slot: (-(len(tasks) * instances[slot] % total), share[slot] - held[slot], slot)
    )
    for slot in by_need[: len(tasks) - sum(share.values())]:
        share[slot] += 1
    free = share.copy()
    placed: list[Slot | None] = []
    for slot in tasks:
        stays = free.get(slot, 0) > 0
        if stays:
            free[slot] -= 1
        placed.append(slot if stays else None)
    open_places = (slot for slot in sorted(free) for _ in range(free[slot]))
    return tuple(slot if slot is not None else next(open_places) for slot in placed)
