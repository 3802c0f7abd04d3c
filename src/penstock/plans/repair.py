"""A placement for the slots that are left: what was on the others goes to the least loaded. A pure function.

The same rule serves a slot that was lost and a machine that is to leave. It is not the setting `mapping` that answers
here: what was lost must run somewhere now, until the slot is back, and nothing else may move for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from penstock.cluster.model import Placement, Slot
from penstock.strategies.mapping.keeping import resized
from penstock.strategies.mapping.tasks import rehomed


def repair(placement: Placement, usable: Collection[Slot]) -> Placement:
    """The placement with everything on usable slots. What is on one already stays there; if all is, or if there is no
    usable slot at all, the placement is returned as it is."""
    if not usable or placement.slots <= set(usable):
        return placement
    # Slots of the cluster, not those of the placement: a placement read back from a file knows no cores.
    known = {slot: slot for slot in usable}
    load = Counter({slot: count for slot, count in placement.load().items() if slot in known})
    instances = {
        operator: resized(slots, sum(slots.values()), sorted(known.values()), load)
        for operator, slots in placement.instances.items()
    }
    tasks = {operator: rehomed(slots, instances[operator], known) for operator, slots in placement.tasks.items()}
    return Placement(instances, tasks)
