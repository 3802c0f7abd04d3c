"""The mapping `chained`, the default: round robin, and operators that can run as one chain are dealt out together.

An operator that has as many instances as the one before it, and could be in one chain with it, gets the same slots. So
a pipeline of one instance each is one process and not four with files in between. What is too slow that way wants more
instances, not another slot for its neighbour.
"""

from __future__ import annotations

from penstock.cluster.model import Placement
from penstock.strategies.mapping.chains import candidates
from penstock.strategies.mapping.keeping import keeping
from penstock.strategies.mapping.protocol import NoRoom, Wanted
from penstock.strategies.mapping.round_robin import deal
from penstock.strategies.mapping.tasks import deal_tasks


class Chained:
    """The mapping `chained`. If chains are off it is round robin. Later, instances that are placed stay."""

    def place(self, wanted: Wanted) -> Placement | NoRoom:
        if wanted.before is not None:
            return keeping(wanted, wanted.before)
        if not wanted.chains:
            return deal(wanted.instances, wanted.tasks, wanted.cluster)
        return chained_round_robin(wanted)


def chained_round_robin(wanted: Wanted) -> Placement:
    before = {
        stream.consumer: stream.producer
        for stream in candidates(wanted.definition)
        if wanted.instances[stream.consumer] == wanted.instances[stream.producer]
    }
    firsts = {name: count for name, count in wanted.instances.items() if name not in before}
    places = deal(firsts, {}, wanted.cluster).instances

    def first_of(name: str) -> str:
        return first_of(before[name]) if name in before else name

    slots = {name: places[first_of(name)] for name in wanted.instances}
    return Placement(slots, {name: deal_tasks(count, slots[name]) for name, count in wanted.tasks.items()})
