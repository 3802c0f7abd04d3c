"""Plans for what a person asks for by name. Pure functions from what there is to what is to change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.monitor.snapshot import Snapshot
from penstock.plans.plan import Action, AddMachine, MoveTask, Plan, RemoveMachine, SetInstances, SetTasks, diff
from penstock.plans.repair import repair
from penstock.strategies.mapping import NoRoom, Wanted, place
from penstock.strategies.mapping.tasks import follow_instances
from penstock.topology.definition import TopologyDefinition


def set_instances(placement: Placement, operator: str, slots: Mapping[Slot, int]) -> Plan:
    """An operator's instances; the tasks of a keyed operator follow them, as few as possible."""
    actions: list[Action] = [SetInstances(operator, slots)]
    tasks = placement.tasks.get(operator, ())
    if tasks and slots and min(slots.values()) > 0:
        after = follow_instances(tasks, slots)
        actions += [MoveTask(operator, task, slot) for task, slot in enumerate(after) if tasks[task] != slot]
    return Plan(tuple(actions), f"{operator} was to have other instances")


def so_many_instances(  # noqa: PLR0913 - all that a mapping is asked with
    definition: TopologyDefinition,
    placement: Placement,
    cluster: Cluster,
    operator: str,
    count: int,
    mapping: str = "round_robin",
    slot_instances: int | None = None,
    *,
    chains: bool = True,
    snapshot: Snapshot | None = None,
) -> Plan | NoRoom:
    """An operator with so many instances: the mapping says where. A number that makes no sense is left to the check of
    the plan."""
    if count < 1:
        return set_instances(placement, operator, {})
    wanted = Wanted.as_now(definition, cluster, placement)
    instances = {**wanted.instances, operator: count}
    answer = place(
        mapping,
        replace(wanted, instances=instances, slot_instances=slot_instances, chains=chains, snapshot=snapshot),
    )
    if isinstance(answer, NoRoom):
        return answer
    actions = diff(placement, answer) or (SetInstances(operator, answer.of(operator)),)
    return Plan(actions, f"{operator} was to have {count} instances")


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
