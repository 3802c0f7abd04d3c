"""The mapping `fewest_moves`: other numbers of instances, and as little state as possible moves (Elastic Stateful
Storm, section IV-C). Only operators whose number of instances changes, or whose slots are gone, are placed anew. Of the
placements that move the least, it takes one with the fewest machines.

Where the sizes of all tasks are known, the least is the fewest bytes, and of equal bytes the fewest tasks; otherwise it
is the fewest tasks. Where an operator has no state, as many of its instances as possible stay.

One operator after the other is placed, each so that the least of it moves. Several that change compete for cores, so it
matters who comes first: up to four of them are placed in every order, and the best one counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

from penstock.cluster.model import Placement, Slot
from penstock.strategies.mapping.chained import Chained
from penstock.strategies.mapping.least_state import ChosenSlots, SlotRoom, chosen_slots
from penstock.strategies.mapping.protocol import NoRoom, Wanted
from penstock.strategies.mapping.tasks import deal_tasks, leaving
from penstock.strategies.mapping.turns import turns

#: So many operators that change are placed in every order; more of them only in topological order. Four have 24 orders.
ORDERED = 4


class FewestMoves:
    """At the start, when nothing can move, it is `chained`."""

    def place(self, wanted: Wanted) -> Placement | NoRoom:
        if wanted.before is None:
            return Chained().place(wanted)
        return fewest_moves(wanted, wanted.before)


def fewest_moves(wanted: Wanted, before: Placement) -> Placement | NoRoom:
    usable = {slot: slot for slot in wanted.cluster.slots}
    stays = [name for name in wanted.instances if _stays(wanted, before, name, usable)]
    load: Counter[Slot] = Counter()
    for name in stays:
        load.update(before.of(name))
    tasks = {name: before.tasks[name] for name in stays if name in wanted.tasks}
    found = _in_best_order(wanted, before, _Placed({name: before.of(name) for name in stays}, tasks, load))
    if isinstance(found, NoRoom):
        return found
    ordered = {name: found.instances[name] for name in wanted.instances}
    return Placement(ordered, {name: found.tasks[name] for name in wanted.tasks})


@dataclass(frozen=True)
class _Placed:
    """The operators that have their slots so far."""

    instances: Mapping[str, Mapping[Slot, int]]
    tasks: Mapping[str, tuple[Slot, ...]]
    #: Instances of these operators on each slot.
    load: Counter[Slot]
    #: What moves: bytes, where they are known, tasks, and instances of operators without tasks.
    moved: tuple[int, int, int] = (0, 0, 0)

    @cached_property
    def machines(self) -> set[str]:
        return {slot.machine for slot, number in self.load.items() if number}


def _in_best_order(wanted: Wanted, before: Placement, start: _Placed) -> _Placed | NoRoom:
    """All operators placed, one after the other, in the order that costs least; of equals in topological order."""
    changing = tuple(name for name in wanted.instances if name not in start.instances)
    orders = permutations(changing) if len(changing) <= ORDERED else iter([changing])
    cost = _cost_in(wanted, changing)
    made: dict[tuple[str, ...], _Placed] = {(): start}
    best: _Placed | None = None
    for order in orders:
        for length, name in enumerate(order):
            placed = made.get(order[: length + 1]) or _with(wanted, before, made[order[:length]], name)
            if isinstance(placed, NoRoom):
                return placed  # all orders need as much room
            made[order[: length + 1]] = placed
            if best is not None and cost(placed) >= cost(best):
                break
        else:
            best = made[order]
    assert best is not None  # there is at least one order
    return best


def _cost_in(wanted: Wanted, changing: Sequence[str]) -> Callable[[_Placed], tuple[int, ...]]:
    """What the operators cost that are placed so far: the instances without a core, because those that are placed first
    do not see who will stay; what moves, in bytes if the sizes of all are known; and the machines that are used."""
    sized = all(wanted.sizes(name) is not None for name in changing if name in wanted.tasks)
    cores = sum(slot.cores for slot in wanted.cluster.slots)
    times = -(-sum(wanted.instances.values()) // max(cores, 1))

    def cost(placed: _Placed) -> tuple[int, ...]:
        crowded = sum(max(placed.load[slot] - slot.cores * times, 0) for slot in wanted.cluster.slots)
        return crowded, *placed.moved[0 if sized else 1 :], len(placed.machines)

    return cost


def _with(wanted: Wanted, before: Placement, placed: _Placed, name: str) -> _Placed | NoRoom:
    """One operator more, where the least of it moves."""
    count = wanted.instances[name]
    places = _places(wanted, before, name, count, placed.load)
    chosen = chosen_slots(places, count, placed.machines, wanted.tasks.get(name, 0))
    if isinstance(chosen, int):
        return NoRoom(f"the slots have no room for {count} instances of {name}", chosen)
    known = {slot: slot for slot in wanted.cluster.slots}
    instances = {known[slot]: number for slot, number in sorted(chosen.instances.items())}
    tasks = {name: _tasks(wanted, before, name, chosen)} if name in wanted.tasks else {}
    moved = _moved(wanted, before, name, instances, tasks.get(name))
    return _Placed(
        {**placed.instances, name: instances},
        {**placed.tasks, **tasks},
        placed.load + Counter(instances),
        (placed.moved[0] + moved[0], placed.moved[1] + moved[1], placed.moved[2] + moved[2]),
    )


def _moved(
    wanted: Wanted, before: Placement, name: str, instances: Mapping[Slot, int], tasks: tuple[Slot, ...] | None
) -> tuple[int, int, int]:
    """What moves of one operator: bytes, tasks, and instances if it has no tasks."""
    if tasks is None:
        had = before.instances.get(name, {})
        stay = sum(min(number, instances.get(slot, 0)) for slot, number in had.items())
        return 0, 0, min(sum(had.values()), sum(instances.values())) - stay
    held = before.tasks.get(name, ())
    if len(held) != len(tasks):
        return 0, 0, 0  # the state is cut anew, wherever the tasks are
    gone = [task for task, slot in enumerate(tasks) if slot != held[task]]
    sizes = wanted.sizes(name)
    return 0 if sizes is None else sum(sizes[task] for task in gone), len(gone), 0


def _stays(wanted: Wanted, before: Placement, name: str, usable: Mapping[Slot, Slot]) -> bool:
    """Whether an operator has what is wanted, on slots that are there, already."""
    held, slots = before.tasks.get(name, ()), before.instances.get(name, {})
    same = sum(slots.values()) == wanted.instances[name] and len(held) == wanted.tasks.get(name, 0)
    return same and all(slot in usable for slot in (*slots, *held))


def _places(wanted: Wanted, before: Placement, name: str, count: int, load: Counter[Slot]) -> list[SlotRoom]:
    """What each slot holds of the operator now, and how many of its instances may be there."""
    most = _most_on_slots(wanted, before.instances.get(name, {}), count, load)
    costs = _costs_on_slots(wanted, before, name)
    had = before.instances.get(name, {})
    return [
        SlotRoom(slot, most[slot], tuple(costs.get(slot, ())), had.get(slot, 0), load.get(slot, 0))
        for slot in wanted.cluster.slots
    ]


def _most_on_slots(wanted: Wanted, had: Mapping[Slot, int], count: int, load: Counter[Slot]) -> dict[Slot, int]:
    """All operators together get no more instances on a slot than it has cores, because more would not be faster; twice
    as many on every slot if there are too few cores, and so on. Instances that are there already may stay."""
    bound = wanted.slot_instances
    room = {slot: count if bound is None else max(bound - load[slot], 0) for slot in wanted.cluster.slots}
    enough = min(count, sum(room.values()))

    def most(times: int) -> dict[Slot, int]:
        free = {slot: max(slot.cores * times - load[slot], had.get(slot, 0)) for slot in room}
        return {slot: min(free[slot], room[slot], count) for slot in room}

    # Cores may have a hundred instances each. So numbers are doubled, and then halves are tried, not all one by one.
    times, found = 1, most(1)
    while sum(found.values()) < enough:
        times *= 2
        found = most(times)
    first = times // 2 + 1
    least = first + bisect_left(range(first, times), enough, key=lambda few: sum(most(few).values()))
    return found if least == times else most(least)


def _costs_on_slots(wanted: Wanted, before: Placement, name: str) -> dict[Slot, list[int]]:
    """By slot: what it costs to move each of the operator's tasks away, or each instance where it has no tasks."""
    if name not in wanted.tasks:
        return {slot: [1] * count for slot, count in before.instances.get(name, {}).items()}
    held = before.tasks.get(name, ())
    if len(held) != wanted.tasks[name]:
        return {}  # the state is cut anew, so nothing of it is anywhere yet
    found: dict[Slot, list[int]] = {}
    for slot, cost in sorted(zip(held, _costs(wanted, name), strict=True), key=lambda pair: -pair[1]):
        found.setdefault(slot, []).append(cost)
    return found


def _costs(wanted: Wanted, name: str) -> list[int]:
    """What it costs to move each task. A byte costs more than any number of tasks; if the size of a task is not known,
    only tasks count."""
    tasks, sizes = wanted.tasks[name], wanted.sizes(name)
    return [1] * tasks if sizes is None else [size * (tasks + 1) + 1 for size in sizes]


def _tasks(wanted: Wanted, before: Placement, name: str, found: ChosenSlots) -> tuple[Slot, ...]:
    """The slot of each task: the cheapest leave a slot that holds too many, and go where instances lack them."""
    held, count = before.tasks.get(name, ()), wanted.tasks[name]
    if len(held) != count:
        return deal_tasks(count, found.instances)
    costs = _costs(wanted, name)
    by_slot: dict[Slot, list[int]] = {}
    for task, slot in enumerate(held):
        by_slot.setdefault(slot, []).append(task)
    moving = [
        task for slot, mine in by_slot.items() for task in leaving(mine, costs)[: len(mine) - found.kept.get(slot, 0)]
    ]
    known = {slot: slot for slot in found.instances}
    placed, holds = [known.get(slot, slot) for slot in held], Counter(found.kept)
    # Those whose instances have the fewest come first, so those that have none.
    least_full = turns(found.instances, lambda slot: (holds[slot] / found.instances[slot],))
    for task, slot in zip(sorted(moving), least_full, strict=False):
        placed[task] = slot
        holds[slot] += 1
    return tuple(placed)
