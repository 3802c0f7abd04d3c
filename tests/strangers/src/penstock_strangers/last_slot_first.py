"""A mapping: everything on the last slot of the cluster, unless that is full; then on the one before it, and so on."""

from __future__ import annotations

from collections import Counter

from penstock.extending import NoRoom, Placement, Wanted, deal_tasks


class LastSlotFirst:
    def place(self, wanted: Wanted) -> Placement | NoRoom:
        most = wanted.slot_instances or sum(wanted.instances.values())
        free = [slot for slot in reversed(wanted.cluster.slots) for _ in range(most)]
        if (missing := sum(wanted.instances.values()) - len(free)) > 0:
            return NoRoom("all slots are full", missing)
        places = iter(free)
        instances = {name: Counter(next(places) for _ in range(count)) for name, count in wanted.instances.items()}
        return Placement(instances, {name: deal_tasks(count, instances[name]) for name, count in wanted.tasks.items()})
