"""Other numbers of instances where everything that can stay stays: new ones go to the slot with the least to do on each
of its cores, and where there are too many, those on the slots with the most to do go first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from penstock.cluster.model import Placement, Slot
from penstock.strategies.mapping.protocol import Wanted
from penstock.strategies.mapping.tasks import deal_tasks, follow_instances


def keeping(wanted: Wanted, before: Placement) -> Placement:
    """The placement with the wanted numbers on the wanted cluster. Tasks follow the instances that changed."""
    usable = {slot: slot for slot in wanted.cluster.slots}
    load = Counter({slot: count for slot, count in before.load().items() if slot in usable})
    instances: dict[str, Mapping[Slot, int]] = {}
    for operator, count in wanted.instances.items():
        instances[operator] = resized(before.instances.get(operator, {}), count, usable.values(), load)
    tasks = {operator: _tasks(wanted, before, operator, instances[operator]) for operator in wanted.tasks}
    return Placement(instances, tasks)


def resized(slots: Mapping[Slot, int], count: int, usable: Collection[Slot], load: Counter[Slot]) -> dict[Slot, int]:
    """One operator's instances on usable slots, so many of them; `load` counts along over all operators."""
    placed = Counter({slot: slots[slot] for slot in usable if slots.get(slot)})
    for _ in range(count - placed.total()):
        slot = least_loaded(usable, load, placed)
        placed[slot] += 1
        load[slot] += 1
    for _ in range(placed.total() - count):
        slot = max(+placed, key=lambda one: (load[one] / one.cores, placed[one], one))
        placed[slot] -= 1
        load[slot] -= 1
    return {slot: number for slot, number in sorted(placed.items()) if number}


def least_loaded(usable: Collection[Slot], load: Mapping[Slot, int], placed: Mapping[Slot, int]) -> Slot:
    """The slot with the least on each of its cores; of equals that with the fewest of the operator, then the first."""
    return min(usable, key=lambda slot: (load.get(slot, 0) / slot.cores, placed.get(slot, 0), slot))


def _tasks(wanted: Wanted, before: Placement, operator: str, after: Mapping[Slot, int]) -> tuple[Slot, ...]:
    tasks = before.tasks.get(operator, ())
    if len(tasks) != wanted.tasks[operator]:
        return deal_tasks(wanted.tasks[operator], after)
    same = dict(before.instances.get(operator, {})) == dict(after)
    return tasks if same else follow_instances(tasks, after, wanted.sizes(operator))
