"""A placement while a strategy changes it: instances are added and moved, slots never get past their capacity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from penstock.cluster.model import Machine, Placement, Slot
from penstock.errors import PenstockError
from penstock.strategies.load import Load
from penstock.strategies.mapping.keeping import least_loaded
from penstock.strategies.mapping.tasks import follow, follow_instances
from penstock.strategies.rules import Rules


class Draft:
    def __init__(self, load: Load, placement: Placement, rules: Rules) -> None:
        for operator in load.operators:
            if not placement.instances.get(operator.name):
                raise PenstockError(
                    "BAD_PLACEMENT",
                    f'"{operator.name}" has no instance.',
                    "Use the placement on which the load was measured.",
                )
        self.before = placement
        self.instances: dict[str, Mapping[Slot, int]] = dict(placement.instances)
        self._changed: dict[str, dict[Slot, int]] = {}
        self.on: Counter[Slot] = Counter()
        for slots in placement.instances.values():
            for slot, count in slots.items():
                self.on[slot] += count
        self._capacity = rules.slot_capacity
        self._sizes = {operator.name: operator.state for operator in load.operators}

    def room(self, slots: Iterable[Slot]) -> int | None:
        """How many more instances these slots take together; None is no bound."""
        if self._capacity is None:
            return None
        return sum(max(0, self._capacity - self.on[slot]) for slot in slots)

    def rooms(self, slots: Iterable[Slot]) -> dict[Slot, int] | None:
        """How many more instances each of these slots takes; None is no bound."""
        if self._capacity is None:
            return None
        return {slot: max(0, self._capacity - self.on[slot]) for slot in slots}

    def emptiest(self, machine: Machine) -> Slot | None:
        """The machine's slot with the least to do, the first of several, if it has room: on a machine that gets one
        after the other this is round robin. No mapping is asked: that the instance goes to this machine is the
        strategy's own rule."""
        slot = least_loaded(machine.slots, self.on, {}) if machine.slots else None
        return slot if slot is not None and self.room([slot]) != 0 else None

    def add(self, operator: str, slot: Slot) -> None:
        slots = self._slots(operator)
        slots[slot] = slots.get(slot, 0) + 1
        self.on[slot] += 1

    def move(self, operator: str, origin: Slot, to: Slot) -> None:
        self.remove(operator, origin)
        self.add(operator, to)

    def remove(self, operator: str, slot: Slot) -> None:
        slots = self._slots(operator)
        slots[slot] -= 1
        self.on[slot] -= 1
        if not slots[slot]:
            del slots[slot]

    def total(self, operator: str) -> int:
        return sum(self.instances[operator].values())

    def _slots(self, operator: str) -> dict[Slot, int]:
        if operator not in self._changed:
            self.instances[operator] = self._changed[operator] = dict(self.instances[operator])
        return self._changed[operator]

    def placement(self, gone: Collection[Slot] = (), evenly: bool = False) -> Placement:
        """Tasks follow the instances of operators that were changed, and leave slots that will be gone. `evenly` gives
        every slot its share of the tasks, and not only those that got instances. Of tasks that could as well move, the
        smallest do."""
        tasks = dict(self.before.tasks)
        leaving = {operator for operator, slots in tasks.items() if not set(gone).isdisjoint(slots)}
        for operator in (self._changed.keys() & tasks.keys()) | leaving:
            before, after = self.before.instances[operator], self.instances[operator]
            sizes = self._sizes.get(operator)
            if evenly:
                tasks[operator] = follow_instances(tasks[operator], after, sizes)
            else:
                tasks[operator] = follow(tasks[operator], before, after, sizes)
        return Placement(self.instances, tasks)


def most_instances(load: Load, placement: Placement) -> tuple[float, ...]:
    """How many instances each operator can use at most: a keyed operator no more than it has tasks."""
    bounds = []
    for operator in load.operators:
        tasks = placement.tasks.get(operator.name)
        given = [len(tasks)] if tasks is not None else []
        given += [operator.most_instances] if operator.most_instances is not None else []
        bounds.append(float(min(given, default=float("inf"))))
    return tuple(bounds)


def check_new(old: Sequence[Machine], new: Sequence[Machine]) -> None:
    names = [machine.name for machine in (*old, *new)]
    if doubles := sorted(name for name, count in Counter(names).items() if count > 1):
        raise PenstockError(
            "BAD_CLUSTER", f"the cluster has machine {', '.join(doubles)} already.", "Name each machine once."
        )
    if empty := sorted(machine.name for machine in new if not machine.slots):
        raise PenstockError(
            "BAD_CLUSTER", f"machine {', '.join(empty)} has no slot.", "Give each machine at least one slot."
        )
