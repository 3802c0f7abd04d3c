"""Storm's default scheduler: instances are dealt out to the slots one by one, round and round.

Slots are taken across machines first, so that two instances of an operator land on two machines before they share one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import cycle, islice

from penstock.cluster.model import Cluster, Placement, Slot
from penstock.errors import PenstockError
from penstock.topology.definition import Keyed, TopologyDefinition


def round_robin(definition: TopologyDefinition, cluster: Cluster) -> Placement:
    if not cluster.slots:
        raise PenstockError("BAD_PLACEMENT", "the cluster has no slot.", "Add a machine.")
    dealer = cycle(_across_machines(cluster))
    instances: dict[str, dict[Slot, int]] = {}
    tasks: dict[str, tuple[Slot, ...]] = {}
    for operator in definition.operators:
        dealt = Counter(islice(dealer, operator.instances))
        instances[operator.name] = dict(dealt)
        if isinstance(operator, Keyed):
            tasks[operator.name] = deal_tasks(operator.tasks, dealt)
    return Placement(instances, tasks)


def deal_tasks(tasks: int, slots: Mapping[Slot, int]) -> tuple[Slot, ...]:
    """Each task's slot: as many tasks a slot as its share of the instances, neighbouring tasks apart."""
    instances = [slot for slot, count in sorted(slots.items()) for _ in range(count)]
    return tuple(islice(cycle(instances), tasks))


def _across_machines(cluster: Cluster) -> Iterator[Slot]:
    deepest = max(len(machine.slots) for machine in cluster.machines)
    for index in range(deepest):
        for machine in cluster.machines:
            if index < len(machine.slots):
                yield machine.slots[index]
