"""Functions that make the plans for the changes that a person asks for. They are pure."""

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


def set_instances(
    placement: Placement, operator: str, slots: Mapping[Slot, int], *, snapshot: Snapshot | None = None
) -> Plan:
    """Give an operator exactly these instances. Tasks of a keyed operator follow its instances, and as few as possible
    move; with a snapshot that has the sizes of all tasks, of these choices the fewest bytes."""
    actions: list[Action] = [SetInstances(operator, slots)]
    tasks = placement.tasks.get(operator, ())
    if tasks and slots and min(slots.values()) > 0:
        sizes = snapshot.operators[operator].state_sizes(len(tasks)) if snapshot is not None else None
        after = follow_instances(tasks, slots, sizes)
        actions += [MoveTask(operator, task, slot) for task, slot in enumerate(after) if tasks[task] != slot]
    return Plan(tuple(actions), f"{operator} gets other instances")


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
    traffic_gain: float = 0.0,
) -> Plan | NoRoom:
    """Give an operator so many instances. The mapping chooses their slots. A number below 1 is refused when the plan is
    checked."""
    if count < 1:
        return set_instances(placement, operator, {})
    wanted = Wanted.as_now(definition, cluster, placement)
    instances = {**wanted.instances, operator: count}
    wanted = replace(wanted, instances=instances, slot_instances=slot_instances, chains=chains, snapshot=snapshot)
    answer = place(mapping, replace(wanted, traffic_gain=traffic_gain))
    if isinstance(answer, NoRoom):
        return answer
    actions = diff(placement, answer) or (SetInstances(operator, answer.of(operator)),)
    return Plan(actions, f"{operator} gets {count} instances in all")


def move_tasks(operator: str, slots: Mapping[int, Slot]) -> Plan:
    """Move tasks of a keyed operator, by number, to these slots."""
    moves = tuple(MoveTask(operator, task, slot) for task, slot in sorted(slots.items()))
    return Plan(moves, f"tasks of {operator} move to other slots")


def set_tasks(operator: str, tasks: int) -> Plan:
    """Cut the state of a keyed operator into another number of tasks."""
    return Plan((SetTasks(operator, tasks),), f"the state of {operator} is cut into {tasks} tasks")


def add_machines(machines: Collection[Machine]) -> Plan:
    """Add these machines, without instances on them. `RunningTopology.upcoming` says which machines can come."""
    return Plan(tuple(AddMachine(machine) for machine in machines), "machines are added")


def remove_machines(placement: Placement, cluster: Cluster, names: Collection[str]) -> Plan:
    """Remove the machines with these names. Their instances go to the least loaded slots of the other machines."""
    left = cluster.minus(names)
    moves = diff(placement, repair(placement, left.slots))
    return Plan((*moves, *(RemoveMachine(name) for name in names)), "machines are removed")
