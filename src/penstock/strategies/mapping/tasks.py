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
from itertools import chain, cycle, islice
from operator import itemgetter

from penstock.cluster.model import Slot
from penstock.strategies.mapping.turns import turns


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
    slots = {slot: slot for slot in after}  # the slot of a task may not know its cores; these do
    placed = [slots.get(slot, slot) for slot in tasks]
    moving = [task for task, slot in enumerate(placed) if slot not in slots]
    holds, total = Counter(placed), sum(after.values())
    short = {
        slot: len(tasks) * after[slot] // total - holds[slot] for slot in after if after[slot] > before.get(slot, 0)
    }
    takers = _neediest_first(short)
    if len(takers) > len(moving):
        moving += _fullest_first(tasks, after, _known(tasks, sizes))[: len(takers) - len(moving)]
    # What is left of tasks that have no slot goes where an instance has the fewest then.
    least_full = turns(after, lambda slot: ((holds[slot] + 1) / after[slot],))
    for task, slot in zip(moving, chain(takers, least_full), strict=False):
        placed[task] = slot
        holds[slot] += 1
    return tuple(placed)


def rehomed(slots: tuple[Slot, ...], instances: Mapping[Slot, int], usable: Collection[Slot]) -> tuple[Slot, ...]:
    """The slots of one operator's tasks. Tasks of lost slots go one by one to the slot with the fewest for each of its
    instances."""
    placed, lost = list(slots), [task for task, slot in enumerate(slots) if slot not in usable]
    held = Counter(slot for slot in slots if slot in usable)
    least_full = turns(instances, lambda slot: (held[slot] / instances[slot],))
    for task, slot in zip(lost, least_full, strict=False):
        placed[task] = slot
        held[slot] += 1
    return tuple(placed)


def _known(tasks: Sequence[Slot], sizes: Sequence[int] | None) -> Sequence[int]:
    """The sizes, or the same size for every task if those of just these tasks are not known."""
    return sizes if sizes is not None and len(sizes) == len(tasks) else [0] * len(tasks)


def _held(tasks: Sequence[Slot]) -> dict[Slot, list[int]]:
    held: dict[Slot, list[int]] = {}
    for task, slot in enumerate(tasks):
        held.setdefault(slot, []).append(task)
    return held


def _neediest_first(short: Mapping[Slot, int]) -> list[Slot]:
    """Who takes the next task, for all tasks that slots are short of: always the slot that is short of the most, the
    first of several."""
    found = [(-left, slot) for slot in sorted(short) for left in range(1, short[slot] + 1)]
    return [slot for _, slot in sorted(found, key=itemgetter(0))]


def _fullest_first(tasks: Sequence[Slot], instances: Mapping[Slot, int], sizes: Sequence[int]) -> list[int]:
    """The tasks in the order in which slots give them away. The more, the sooner a slot gives one: if its instances
    have more of them; if fewer instances share what one task less spares; if its smallest task is smaller.

    All can be sorted at once, without a look at all slots before each step: a slot that has given one is less full and
    comes later than before, and a slot that takes has less than its share, so it is never the fullest."""
    held = _held(tasks)
    found: list[tuple[float, int, int, int, int]] = []
    for number, slot in enumerate(sorted(instances)):
        mine = leaving(held.get(slot, ()), sizes)
        for given, task in enumerate(mine):
            fullness = (len(mine) - given) / instances[slot]
            found.append((-fullness, instances[slot], sizes[task], number, task))
    return [task for *_, task in sorted(found)]
