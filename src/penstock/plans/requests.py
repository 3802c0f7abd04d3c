"""Plans for what a person asks for by name. Pure functions from what there is to what is to change.

To remove machines without naming them, a chooser picks them: any function from placement, cluster and number to names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.errors import PenstockError
from penstock.plans.plan import Action, AddMachine, MoveTask, Plan, RemoveMachine, SetInstances, SetTasks, diff
from penstock.plans.repair import follow_instances, repair

MachineChooser = Callable[[Placement, Cluster, int], Sequence[str]]


def set_instances(placement: Placement, operator: str, slots: Mapping[Slot, int]) -> Plan:
    """An operator's instances; the tasks of a keyed operator follow them, as few as possible."""
    actions: list[Action] = [SetInstances(operator, slots)]
    tasks = placement.tasks.get(operator, ())
    if tasks and slots and min(slots.values()) > 0:
        after = follow_instances(tasks, slots)
        actions += [MoveTask(operator, task, slot) for task, slot in enumerate(after) if tasks[task] != slot]
    return Plan(tuple(actions), f"{operator} was to have other instances")


def so_many_instances(placement: Placement, cluster: Cluster, operator: str, count: int) -> dict[Slot, int]:
    """Where an operator's instances are if it has so many: those it has stay and new ones go to the least loaded slots;
    if there are too many, those on the most loaded slots go."""
    slots = dict(placement.of(operator))
    load = placement.load()
    while sum(slots.values()) < count:
        slot = min(cluster.slots, key=lambda one: (load[one], slots.get(one, 0), one))
        slots[slot] = slots.get(slot, 0) + 1
        load[slot] += 1
    while sum(slots.values()) > max(count, 0):
        slot = max(slots, key=lambda one: (load[one], slots[one], one))
        slots[slot] -= 1
        load[slot] -= 1
        if not slots[slot]:
            del slots[slot]
    return slots


def move_tasks(operator: str, slots: Mapping[int, Slot]) -> Plan:
    """Tasks of a keyed operator, by number."""
    moves = tuple(MoveTask(operator, task, slot) for task, slot in sorted(slots.items()))
    return Plan(moves, f"tasks of {operator} were to move")


def set_tasks(operator: str, tasks: int) -> Plan:
    """The number of tasks of a keyed operator."""
    return Plan((SetTasks(operator, tasks),), f"{operator} was to have another number of tasks")


def add_machines(machines: Collection[Machine]) -> Plan:
    """Machines, with nothing on them yet: see `RunningTopology.upcoming` for which."""
    return Plan(tuple(AddMachine(machine) for machine in machines), "machines were to be added")


def remove_machines(placement: Placement, cluster: Cluster, names: Collection[str]) -> Plan:
    """Machines by name: what they hold goes to the least loaded slots of the others."""
    left = cluster.minus(names)
    moves = diff(placement, repair(placement, left.slots))
    return Plan((*moves, *(RemoveMachine(name) for name in names)), "machines were to be removed")


def fewest_instances(placement: Placement, cluster: Cluster, count: int) -> list[str]:
    """A chooser: the machines with the fewest instances and tasks, so that the least has to move."""
    load = placement.load()
    for slots in placement.tasks.values():
        load.update(slots)
    held = {machine.name: sum(load[slot] for slot in machine.slots) for machine in cluster.machines}
    return sorted(held, key=lambda name: (held[name], name))[:count]


def remove_any(placement: Placement, cluster: Cluster, count: int, choose: MachineChooser = fewest_instances) -> Plan:
    """So many machines, whichever the chooser picks."""
    if not 1 <= count < len(cluster.machines):
        raise PenstockError(
            "LAST_MACHINE",
            f"{count} of {len(cluster.machines)} machines cannot be removed.",
            "Remove at least one, and leave at least one.",
        )
    return remove_machines(placement, cluster, choose(placement, cluster, count))
