"""Storm's default scheduler: instances are dealt out to the slots one by one, round and round.

Slots are taken across machines first, so that two instances of an operator land on two machines before they share one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import cycle, islice

from penstock.cluster.model import Cluster, Placement, Slot
from penstock.errors import PenstockError
from penstock.strategies.mapping.keeping import keeping
from penstock.strategies.mapping.protocol import NoRoom, Wanted
from penstock.strategies.mapping.tasks import deal_tasks
from penstock.topology.definition import TopologyDefinition


class RoundRobin:
    """The mapping `round_robin` deals out all instances at the start. Later, instances that are placed stay."""

    def place(self, wanted: Wanted) -> Placement | NoRoom:
        if wanted.before is not None:
            return keeping(wanted, wanted.before)
        return deal(wanted.instances, wanted.tasks, wanted.cluster)


def round_robin(definition: TopologyDefinition, cluster: Cluster) -> Placement:
    """All instances and tasks as the user declared them, dealt out round robin."""
    wanted = Wanted.at_start(definition, cluster)
    return deal(wanted.instances, wanted.tasks, cluster)


def deal(instances: Mapping[str, int], tasks: Mapping[str, int], cluster: Cluster) -> Placement:
    """So many instances of each operator, and so many tasks of each keyed one, in the order in which they are given."""
    if not cluster.slots:
        raise PenstockError("BAD_PLACEMENT", "the cluster has no slot.", "Add a machine.")
    dealer = cycle(across_machines(cluster))
    dealt = {operator: Counter(islice(dealer, count)) for operator, count in instances.items()}
    return Placement(dealt, {operator: deal_tasks(count, dealt[operator]) for operator, count in tasks.items()})


def across_machines(cluster: Cluster) -> Iterator[Slot]:
    """The first slot of every machine, then the second of every machine, and so on."""
    deepest = max(len(machine.slots) for machine in cluster.machines)
    for index in range(deepest):
        for machine in cluster.machines:
            if index < len(machine.slots):
                yield machine.slots[index]
