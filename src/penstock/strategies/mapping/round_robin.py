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
    instances = {operator.name: operator.instances for operator in definition.operators}
    tasks = {operator.name: operator.tasks for operator in definition.operators if isinstance(operator, Keyed)}
    return deal(instances, tasks, cluster)


def deal(instances: Mapping[str, int], tasks: Mapping[str, int], cluster: Cluster) -> Placement:
    """So many instances of each operator, and so many tasks of each keyed one, in the order in which they are given."""
    if not cluster.slots:
        raise PenstockError("BAD_PLACEMENT", "the cluster has no slot.", "Add a machine.")
    dealer = cycle(_across_machines(cluster))
    dealt = {operator: Counter(islice(dealer, count)) for operator, count in instances.items()}
    return Placement(dealt, {operator: deal_tasks(count, dealt[operator]) for operator, count in tasks.items()})


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
