"""A keyed operator's tasks follow its instances, and as few move as possible: a task that moves takes its state along.

A slot's quota is its share of the tasks, tasks * its instances / all instances.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cluster.model import Slot


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


def _neediest(short: Mapping[Slot, int]) -> Slot | None:
    """The slot that is short of the most tasks, if one is."""
    slot = max(short, key=lambda slot: short[slot], default=None)
    return slot if slot is not None and short[slot] > 0 else None
