"""The slots of a keyed operator's tasks. No mapping is asked: a task must be on a slot where its operator has
instances, and a task that moves takes its state along. So tasks follow the instances, and as few of them move as
possible.

What is fair depends on what changed. Tasks are dealt out where there were none (`deal_tasks`); after a person or a
mapping has changed the instances, every slot gets its share (`follow_instances`); instances that a strategy adds take
tasks, and no others move (`follow`); and after a loss, only the tasks of lost slots move (`rehomed`). A slot's share is
tasks * its instances / all instances.

Which tasks move is the same everywhere: of what is fair, the fewest tasks, and where the sizes of all tasks are known,
of those choices the fewest bytes. A slot that gives tasks away gives its smallest ones (`leaving`). After a loss there
is no choice. tests/property/test_task_moves.py compares this with all assignments there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import cycle, islice

from penstock.cluster.model import Slot


def deal_tasks(tasks: int, slots: Mapping[Slot, int]) -> tuple[Slot, ...]:
    """The slot of each task. A slot gets as many tasks as its share of the instances; neighbouring tasks are apart."""
    instances = [slot for slot, count in sorted(slots.items()) for _ in range(count)]
    return tuple(islice(cycle(instances), tasks))


def leaving(held: Collection[int], sizes: Sequence[int]) -> list[int]:
    """The tasks of a slot in the order in which the slot gives them away: the smallest first, of equals the last."""
    return sorted(held, key=lambda task: (sizes[task], -task))


def follow_instances(
    tasks: tuple[Slot, ...],
    instances: Mapping[Slot, int],
    sizes: Sequence[int] | None = None,
    homes: Sequence[Slot] = (),
) -> tuple[Slot, ...]:
    """A keyed operator's tasks for new instances: every slot holds its share of the tasks, and as few as possible move.
    A slot's share is what its part of the instances gives; tasks that do not divide evenly stay where they are. `sizes`
    are the bytes of each task, where they are known: of the choices that are left, the fewest bytes move. `homes` are
    where the tasks were before a change that is taken back: of choices that cost the same, tasks go home."""
    total, known = sum(instances.values()), _known(tasks, sizes)
    share = {slot: len(tasks) * count // total for slot, count in instances.items()}
    home = homes if len(homes) == len(tasks) else tasks
    give = {
        slot: sorted(held, key=lambda task: (known[task], home[task] == tasks[task], -task))
        for slot, held in _held(tasks).items()
    }

    def need(slot: Slot) -> tuple[int, int, Slot]:
        """Who gets the rest: by the largest remainder, and among equals the slot that would otherwise have to give one
        away, the largest one."""
        more = len(give.get(slot, ())) - share[slot]
        spared = known[give[slot][more - 1]] if more > 0 else -1
        return -(len(tasks) * instances[slot] % total), -spared, slot

    for slot in sorted(instances, key=need)[: len(tasks) - sum(share.values())]:
        share[slot] += 1
    placed: list[Slot | None] = list(tasks)
    for slot, held in give.items():
        for task in held[: max(len(held) - share.get(slot, 0), 0)]:
            placed[task] = None
    stay = Counter(placed)
    room = {slot: share[slot] - stay[slot] for slot in sorted(share)}
    for task, stays_on in enumerate(placed):
        if stays_on is None and room.get(home[task], 0) > 0:
            placed[task] = home[task]
            room[home[task]] -= 1
    open_places = (slot for slot, places in room.items() for _ in range(places))
    return tuple(slot if slot is not None else next(open_places) for slot in placed)


def follow(
    tasks: tuple[Slot, ...],
    before: Mapping[Slot, int],
    after: Mapping[Slot, int],
    sizes: Sequence[int] | None = None,
) -> tuple[Slot, ...]:
    """Each task's slot after the operator's instances have changed.

    Two kinds of task move: those on a slot that has no instance any more, and, to a slot that got instances, as many as
    it is short of its quota, rounded down. They are taken from where an instance has the most of them, and of slots
    that have as many, from the one with the smallest task (`sizes` are the bytes of each task, where they are known).
    So on scale-out the only tasks that move are those that the new instances take.
    """
    known, held = _known(tasks, sizes), _held(tasks)
    # The tasks that a slot gives away first are at the end.
    holds = {slot: leaving(held.get(slot, ()), known)[::-1] for slot in sorted(after)}
    homeless = [task for task, slot in enumerate(tasks) if slot not in holds]
    total = sum(after.values())
    short = {
        slot: len(tasks) * after[slot] // total - len(there)
        for slot, there in holds.items()
        if after[slot] > before.get(slot, 0)
    }
    for task in homeless:
        receiver = _neediest(short) or min(holds, key=lambda slot: ((len(holds[slot]) + 1) / after[slot], slot))
        holds[receiver].append(task)
        if receiver in short:
            short[receiver] -= 1
    while taker := _neediest(short):
        giver = max(holds, key=lambda slot: _gives(holds[slot], after[slot], known))
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


def _known(tasks: Sequence[Slot], sizes: Sequence[int] | None) -> Sequence[int]:
    """The sizes, or the same size for every task if those of just these tasks are not known."""
    return sizes if sizes is not None and len(sizes) == len(tasks) else [0] * len(tasks)


def _held(tasks: Sequence[Slot]) -> dict[Slot, list[int]]:
    held: dict[Slot, list[int]] = {}
    for task, slot in enumerate(tasks):
        held.setdefault(slot, []).append(task)
    return held


def _gives(held: Sequence[int], instances: int, sizes: Sequence[int]) -> tuple[float, int, int]:
    """The more, the sooner a slot gives a task away: if its instances have more of them; if fewer instances share what
    one task less spares; if its smallest task is smaller."""
    return len(held) / instances, -instances, -sizes[held[-1]] if held else 0


def _neediest(short: Mapping[Slot, int]) -> Slot | None:
    """The slot that is short of the most tasks, if one is."""
    slot = max(short, key=lambda slot: short[slot], default=None)
    return slot if slot is not None and short[slot] > 0 else None
