"""Other numbers of instances where everything that can stay stays: new ones go to the slot with the least to do on each
of its cores, and where there are too many, those on the slots with the most to do go first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import islice

from penstock.cluster.model import Placement, Slot
from penstock.strategies.mapping.protocol import Wanted
from penstock.strategies.mapping.tasks import deal_tasks, follow_instances
from penstock.strategies.mapping.turns import turns


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
    more = count - placed.total()
    for slot in islice(turns(usable, lambda slot: _does(slot, load, placed)), max(more, 0)):
        placed[slot] += 1
        load[slot] += 1
    for slot in _busiest_first(load, placed)[: max(-more, 0)]:
        placed[slot] -= 1
        load[slot] -= 1
    return {slot: number for slot, number in sorted(placed.items()) if number}


def least_loaded(usable: Collection[Slot], load: Mapping[Slot, int], placed: Mapping[Slot, int]) -> Slot:
    """The slot with the least on each of its cores; of equals that with the fewest of the operator, then the first."""
    return min(usable, key=lambda slot: (_does(slot, load, placed), slot))


def _does(slot: Slot, load: Mapping[Slot, int], placed: Mapping[Slot, int]) -> tuple[float, int]:
    """How much a slot has to do: on each of its cores, and of the operator."""
    return load.get(slot, 0) / slot.cores, placed.get(slot, 0)


def _busiest_first(load: Mapping[Slot, int], placed: Mapping[Slot, int]) -> list[Slot]:
    """The slot of each instance, in the order in which instances go: always from the slot with the most to do. A slot
    that lost one has less to do and comes later than before, so all of them can be sorted at once."""
    slots = sorted(placed)
    found = [
        ((load.get(slot, 0) - gone) / slot.cores, placed[slot] - gone, number)
        for number, slot in enumerate(slots)
        for gone in range(placed[slot])
    ]
    return [slots[number] for *_, number in sorted(found, reverse=True)]


def _tasks(wanted: Wanted, before: Placement, operator: str, after: Mapping[Slot, int]) -> tuple[Slot, ...]:
    tasks = before.tasks.get(operator, ())
    if len(tasks) != wanted.tasks[operator]:
        return deal_tasks(wanted.tasks[operator], after)
    same = dict(before.instances.get(operator, {})) == dict(after)
    return tasks if same else follow_instances(tasks, after, wanted.sizes(operator))
