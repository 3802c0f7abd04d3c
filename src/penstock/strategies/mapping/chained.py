"""Where a topology starts when nobody says where: round robin, and operators that can run as one are dealt once.

An operator that has as many instances as the one before it, and could be in one chain with it, gets the same slots. So
a pipeline of one instance each is one process and not four with files in between. What is too slow that way wants more
instances, not another slot for its neighbour.
"""

from __future__ import annotations

from penstock.cluster.model import Cluster, Placement
from penstock.strategies.mapping.chains import candidates
from penstock.strategies.mapping.round_robin import deal, deal_tasks, round_robin
from penstock.topology.definition import Keyed, TopologyDefinition


def dealt(definition: TopologyDefinition, cluster: Cluster, chained: bool) -> Placement:
    """Where a topology starts, with chains or without."""
    return (chained_round_robin if chained else round_robin)(definition, cluster)


def chained_round_robin(definition: TopologyDefinition, cluster: Cluster) -> Placement:
    before = {stream.consumer: stream.producer for stream in candidates(definition)}
    firsts = {operator.name: operator.instances for operator in definition.operators if operator.name not in before}
    places = deal(firsts, {}, cluster).instances

    def first_of(name: str) -> str:
        return first_of(before[name]) if name in before else name

    slots = {operator.name: places[first_of(operator.name)] for operator in definition.operators}
    tasks = {one.name: deal_tasks(one.tasks, slots[one.name]) for one in definition.operators if isinstance(one, Keyed)}
    return Placement(slots, tasks)
