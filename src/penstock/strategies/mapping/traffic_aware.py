"""The mapping `traffic_aware`: the scheduler of Xu et al. (T-Storm), as Elastic Stateful Storm uses it (section VI-A).

Instances are taken by their traffic, those with the most first, and each goes to the machine where it adds the least
traffic between machines. A machine gets at most ceil(E / N) of the E instances on N machines, and uses one slot. What
runs is moved only if less crosses from machine to machine then, by the share `traffic_gain` at least. After a scaling
decision only what was changed is placed, by `fewest_moves`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.strategies.mapping.fewest_moves import fewest_moves
from penstock.strategies.mapping.protocol import NoRoom, Wanted
from penstock.strategies.mapping.round_robin import deal
from penstock.strategies.mapping.tasks import follow_instances
from penstock.strategies.mapping.traffic import Traffic, Unit, traffic_of

#: Traffic that is less by no more than this share is the same: sums of floats differ in their last digits.
SAME = 1e-9


class TrafficAware:
    """As long as no traffic is known, instances are dealt to one slot of each machine, round and round."""

    def place(self, wanted: Wanted) -> Placement | NoRoom:
        if wanted.before is None:
            return _at_start(wanted)
        found = fewest_moves(wanted, wanted.before)
        if wanted.snapshot is None or found != wanted.before:
            return found
        traffic = traffic_of(wanted.snapshot, wanted.before)
        return wanted.before if traffic is None else _if_less_crosses(wanted, wanted.before, traffic)


def _at_start(wanted: Wanted) -> Placement | NoRoom:
    one_slot = Cluster(tuple(Machine(one.name, one.slots[:1]) for one in wanted.cluster.machines if one.slots))
    total, room = sum(wanted.instances.values()), wanted.slot_instances
    if room is not None and total > room * len(one_slot.slots):
        reason = "traffic_aware uses one slot of each machine, and these slots have no room for all instances"
        return NoRoom(reason, total - room * len(one_slot.slots))
    return deal(wanted.instances, wanted.tasks, one_slot)


def _if_less_crosses(wanted: Wanted, before: Placement, traffic: Traffic) -> Placement:
    """The placement by traffic, or the one that is there if no less would cross, or not enough less."""
    machines = [machine for machine in wanted.cluster.machines if machine.slots]
    most = -(-len(traffic.instances) // len(machines))
    if wanted.slot_instances is not None and most > wanted.slot_instances:
        return before
    now = [one.slot.machine for one in traffic.instances]
    then = assigned(traffic, [machine.name for machine in machines], most)
    crosses, would = traffic.crossing(_parts(traffic, now)), traffic.crossing(_parts(traffic, then))
    if would >= crosses * (1 - SAME) or would > crosses * (1 - wanted.traffic_gain + SAME):
        return before
    load = before.load()
    slots = {machine.name: max(machine.slots, key=lambda slot: (load[slot], -slot.index)) for machine in machines}
    counts: dict[Unit, Counter[Slot]] = {unit: Counter() for unit in traffic.units}
    for one, machine in zip(traffic.instances, then, strict=True):
        counts[one.unit][slots[machine]] += 1
    instances = {name: dict(sorted(counts[unit].items())) for unit in traffic.units for name in unit}
    tasks = dict(before.tasks)
    for name, held in before.tasks.items():
        if dict(before.of(name)) != instances[name]:
            tasks[name] = follow_instances(held, instances[name], wanted.sizes(name))
    return Placement({name: instances[name] for name in wanted.instances}, tasks)


def assigned(traffic: Traffic, machines: Sequence[str], most: int) -> list[str]:
    """A machine for every instance, at most so many on one. Of machines that add equally little, an instance stays
    where it is, or goes to the one with the fewest."""
    exchanged = {unit: traffic.of(unit) for unit in traffic.units}
    order = sorted(
        range(len(traffic.instances)),
        key=lambda place: -traffic.instances[place].part * sum(exchanged[traffic.instances[place].unit].values()),
    )
    chosen = [""] * len(traffic.instances)
    placed: dict[Unit, dict[str, float]] = {unit: {} for unit in traffic.units}
    count = dict.fromkeys(machines, 0)
    for place in order:
        one = traffic.instances[place]
        near = dict.fromkeys(machines, 0.0)
        for other, rate in exchanged[one.unit].items():
            for machine, part in placed[other].items():
                near[machine] += rate * part
        room = [machine for machine in machines if count[machine] < most]
        best = max(room, key=lambda name: (near[name], name == one.slot.machine, -count[name]))
        chosen[place] = best
        count[best] += 1
        placed[one.unit][best] = placed[one.unit].get(best, 0.0) + one.part
    return chosen


def _parts(traffic: Traffic, machines: Sequence[str]) -> dict[Unit, dict[str, float]]:
    """How much of each unit is on each machine, if its instances are on these."""
    found: dict[Unit, dict[str, float]] = {unit: {} for unit in traffic.units}
    for one, machine in zip(traffic.instances, machines, strict=True):
        found[one.unit][machine] = found[one.unit].get(machine, 0.0) + one.part
    return found
