"""A placement for the slots that are left: instances of lost slots go to the least loaded ones. A pure function.

The same rule serves a slot that was lost and a machine that is to be removed. The setting `mapping` is not asked: the
instances of a lost slot must run somewhere now, until the slot is back, and no other instance may move for that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from penstock.cluster.model import Placement, Slot
from penstock.strategies.mapping.keeping import resized
from penstock.strategies.mapping.tasks import rehomed


def repair(placement: Placement, usable: Collection[Slot]) -> Placement:
    """The placement with all instances and tasks on usable slots. Those on a usable slot stay there. If all are, or if
    no slot is usable, the placement is returned as it is."""
    if not usable or placement.slots <= set(usable):
        return placement
    # The slots of the cluster, because a placement that was read from a file does not know the cores of its slots.
    known = {slot: slot for slot in usable}
    load = Counter({slot: count for slot, count in placement.load().items() if slot in known})
    instances = {
        operator: resized(slots, sum(slots.values()), sorted(known.values()), load)
        for operator, slots in placement.instances.items()
    }
    tasks = {operator: rehomed(slots, instances[operator], known) for operator, slots in placement.tasks.items()}
    return Placement(instances, tasks)
