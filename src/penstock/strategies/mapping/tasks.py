"""The slots of a keyed operator's tasks. No mapping is asked: a task must be on a slot where its operator has
instances, and a task that moves takes its state along. So tasks follow the instances, and as few of them move as
possible.

What is fair depends on what changed. Tasks are dealt out where there were none (`deal_tasks`); after a person or a
mapping has changed the instances, every slot gets its share (`follow_instances`); instances that a strategy adds take
tasks, and no others move (`follow`); and after a loss, only the tasks of lost slots move (`rehomed`). A slot's share is
tasks * its instances / all instances.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import cycle, islice

from penstock.cluster.model import Slot


def deal_tasks(tasks: int, slots: Mapping[Slot, int]) -> tuple[Slot, ...]:
    """The slot of each task. A slot gets as many tasks as its share of the instances; neighbouring tasks are apart."""
    instances = [slot for slot, count in sorted(slots.items()) for _ in range(count)]
    return tuple(islice(cycle(instances), tasks))


def follow_instances(tasks: tuple[Slot, ...], instances: Mapping[Slot, int]) -> tuple[Slot, ...]:
    """A keyed operator's tasks for new instances: every slot holds its share of the tasks, and as few as possible move.
    A slot's share is what its part of the instances gives; tasks that do not divide evenly stay where they are."""
    total = sum(instances.values())
    share = {slot: len(tasks) * count // total for slot, count in instances.items()}
    held = Counter(tasks)
    # The rest: by the largest remainder, and among equals to a slot that would otherwise have to give one away.
    by_need = sorted(
        instances, key=lambda slot: (-(len(tasks) * instances[slot] % total), share[slot] - held[slot], slot)
    )
    for slot in by_need[: len(tasks) - sum(share.values())]:
        share[slot] += 1
    free = share.copy()
    placed: list[Slot | None] = []
    for slot in tasks:
        stays = free.get(slot, 0) > 0
        if stays:
            free[slot] -= 1
        placed.append(slot if stays else None)
    open_places = (slot for slot in sorted(free) for _ in range(free[slot]))
    return tuple(slot if slot is not None else next(open_places) for slot in placed)


def follow(tasks: tuple[Slot, ...], before: Mapping[Slot, int], after: Mapping[Slot, int]) -> tuple[Slot, ...]:
    """Each task's slot after the operator's instances have changed.

    Two kinds of task move: those on a slot that has no instance any more, and, to a slot that got instances, as many as
    it is short of its quota, rounded down. They are taken from where an instance has the most of them. So on scale-out
    the only tasks that move are those that the new instances take.
    """
    holds: dict[Slot, list[int]] = {slot: [] for slot in sorted(after)}
    homeless = []
    for task, slot in enumerate(tasks):
        if slot in holds:
            holds[slot].append(task)
        else:
            homeless.append(task)
    total = sum(after.values())
    short = {
        slot: len(tasks) * after[slot] // total - len(held)
        for slot, held in holds.items()
        if after[slot] > before.get(slot, 0)
    }
    for task in homeless:
        receiver = _neediest(short) or min(holds, key=lambda slot: ((len(holds[slot]) + 1) / after[slot], slot))
        holds[receiver].append(task)
        if receiver in short:
            short[receiver] -= 1
    while taker := _neediest(short):
        giver = max(holds, key=lambda slot: len(holds[slot]) / after[slot])
        holds[taker].append(holds[giver].pop())
        short[taker] -= 1
    places = {task: slot for slot, held in holds.items() for task in held}
    return tuple(places[task] for task in range(len(tasks)))


def rehomed(slots: tuple[Slot, ...], instances: Mapping[Slot, int], usable: Collection[Slot]) -> tuple[Slot, ...]:
    """The slots of one operator's tasks. Tasks of lost slots go one by one to the slot with the fewest for each of its
    instances."""
    held = Counter(slot for slot in slots if slot in usable)
    placed = []
    for task_slot in slots:
        if task_slot in usable:
            placed.append(task_slot)
            continue
        best = min(instances, key=lambda slot: (held[slot] / instances[slot], slot))
        held[best] += 1
        placed.append(best)
    return tuple(placed)


def _neediest(short: Mapping[Slot, int]) -> Slot | None:
    """The slot that is short of the most tasks, if one is."""
    slot = max(short, key=lambda slot: short[slot], default=None)
    return slot if slot is not None and short[slot] > 0 else None
