"""A plan leads from one placement to another, as single actions with a reason. It is a value; the engine carries it
out.

Applying a plan twice is applying it once: every action says how things are to be, not what to add to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.errors import PenstockError
from penstock.topology.definition import Keyed, TopologyDefinition


@dataclass(frozen=True)
class SetInstances:
    """An operator has so many instances on each of these slots, and none on other slots."""

    operator: str
    slots: Mapping[Slot, int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", MappingProxyType(dict(self.slots)))

    def __str__(self) -> str:
        where = ", ".join(f"{count} on {slot}" for slot, count in sorted(self.slots.items()))
        return f"{self.operator}: {where}"


@dataclass(frozen=True)
class MoveTask:
    """A keyed operator's task is on this slot, with its state."""

    operator: str
    task: int
    slot: Slot

    def __str__(self) -> str:
        return f"{self.operator}: task {self.task} on {self.slot}"


@dataclass(frozen=True)
class AddMachine:
    """The cluster has this machine. Its name is the one that the cluster gives to the next machine, or stands for it
    where only the cluster's manager knows what will come (see `Provider.upcoming`)."""

    machine: Machine

    def __str__(self) -> str:
        return f"machine {self.machine.name} is there"


@dataclass(frozen=True)
class RemoveMachine:
    """The cluster does not have this machine. What runs there must have been placed elsewhere by the same plan."""

    name: str

    def __str__(self) -> str:
        return f"machine {self.name} is gone"


@dataclass(frozen=True)
class SetTasks:
    """A keyed operator's state is cut into so many tasks. The operator stands still meanwhile, so this is the only
    action of its plan. Its instances stay on their slots, and the tasks are dealt to them anew."""

    operator: str
    tasks: int

    def __str__(self) -> str:
        return f"{self.operator}: {self.tasks} task{'' if self.tasks == 1 else 's'}"


Action = SetInstances | MoveTask | AddMachine | RemoveMachine | SetTasks


@dataclass(frozen=True)
class Plan:
    """What is to change, in the order in which it is carried out, and why."""

    actions: tuple[Action, ...]
    reason: str = ""

    def __bool__(self) -> bool:
        return bool(self.actions)


@dataclass(frozen=True)
class Target:
    """Where a plan leads."""

    placement: Placement
    cluster: Cluster


def diff(before: Placement, after: Placement) -> tuple[Action, ...]:
    """The actions that lead from one placement to another; none if they are the same."""
    return tuple(_actions(before, after))


def _actions(before: Placement, after: Placement) -> Iterator[Action]:
    for operator, slots in after.instances.items():
        if dict(slots) != dict(before.instances.get(operator, {})):
            yield SetInstances(operator, slots)
    for operator, tasks in after.tasks.items():
        old = before.tasks.get(operator, ())
        for task, slot in enumerate(tasks):
            if task >= len(old) or old[task] != slot:
                yield MoveTask(operator, task, slot)


def apply(placement: Placement, actions: Sequence[Action]) -> Placement:
    """The placement after these actions. A task that does not exist is refused: NO_SUCH_TASK."""
    instances = dict(placement.instances)
    tasks = {operator: list(slots) for operator, slots in placement.tasks.items()}
    for action in actions:
        if isinstance(action, SetInstances):
            instances[action.operator] = action.slots
        elif isinstance(action, MoveTask):
            known = tasks.get(action.operator, [])
            if not 0 <= action.task < len(known):
                has = f"its tasks are 0 to {len(known) - 1}" if known else "it is no keyed operator of this topology"
                raise PenstockError(
                    "NO_SUCH_TASK", f'"{action.operator}" has no task {action.task}: {has}.', "Nothing was changed."
                )
            known[action.task] = action.slot
    return Placement(instances, {operator: tuple(slots) for operator, slots in tasks.items()})


def apply_to_cluster(cluster: Cluster, actions: Sequence[Action]) -> Cluster:
    """The machines after these actions, whatever their order."""
    added = [action.machine for action in actions if isinstance(action, AddMachine)]
    removed = [action.name for action in actions if isinstance(action, RemoveMachine)]
    return cluster.plus(added).minus(removed)


def target(
    actions: Sequence[Action],
    placement: Placement,
    cluster: Cluster,
    definition: TopologyDefinition,
    slot_instances: int,
) -> Target:
    """Where these actions lead from here. Actions that lead to what could not run are refused with a named error."""
    if cut := [action for action in actions if isinstance(action, SetTasks)]:
        raise _bad(
            f'the plan cuts the state of "{cut[0].operator}" anew and has other actions too.',
            "Make two plans, one after the other.",
        )
    removed = {action.name for action in actions if isinstance(action, RemoveMachine)}
    added = {action.machine.name for action in actions if isinstance(action, AddMachine)}
    known = ", ".join(cluster.names)
    if both := added & removed:
        raise _bad(f"machine {min(both)} is both added and removed.", "Either add the machine or remove it.")
    if strangers := removed - set(cluster.names):
        names = ", ".join(sorted(strangers))
        raise PenstockError("NO_SUCH_MACHINE", f"there is no machine {names}.", f"The machines are: {known}.")
    leads_to = Target(apply(placement, actions), apply_to_cluster(cluster, actions))
    if not leads_to.cluster.machines:
        raise PenstockError(
            "LAST_MACHINE", f"{known} cannot be removed: no machine would be left.", "Add a machine first."
        )
    check(leads_to.placement, definition, leads_to.cluster)
    full = [(slot, count) for slot, count in leads_to.placement.load().items() if count > slot_instances]
    for slot, count in sorted(full):
        if count > placement.load()[slot]:
            raise PenstockError(
                "SLOT_FULL",
                f"slot {slot} would have {count} instances; a slot may have {slot_instances}.",
                "Spread the instances over more slots, or raise the setting slot_instances.",
            )
    return leads_to


def check(placement: Placement, definition: TopologyDefinition, cluster: Cluster) -> None:
    """Refuse a placement that does not fit: BAD_PLACEMENT says what is wrong, and nothing has changed."""
    known = set(cluster.slots)
    for operator in definition.operators:
        slots = placement.instances.get(operator.name, {})
        if not slots or min(slots.values()) < 1:
            raise _bad(
                f'"{operator.name}" has no instance, or fewer than one on a slot.', "Give it at least one instance."
            )
        if strangers := set(slots) - known:
            raise _bad(f'"{operator.name}" is placed on {_names(strangers)}.', f"The cluster has: {_names(known)}.")
        total = sum(slots.values())
        if total < operator.min_instances:
            raise _bad(
                f'"{operator.name}" would have {total} instances.',
                f"It is declared with at least {operator.min_instances}.",
            )
        if isinstance(operator, Keyed):
            _check_tasks(operator, placement, known)
    if unknown := set(placement.instances) - {operator.name for operator in definition.operators}:
        raise _bad(f"there is no operator {', '.join(sorted(unknown))}.", f'"{definition.name}" does not declare it.')


def _check_tasks(operator: Keyed, placement: Placement, known: set[Slot]) -> None:
    tasks, total = placement.tasks.get(operator.name, ()), placement.total(operator.name)
    if len(tasks) != operator.tasks:
        raise _bad(
            f'the placement has {len(tasks)} tasks of "{operator.name}".',
            f"The operator has {operator.tasks} tasks; place every one.",
        )
    if total > operator.tasks:
        raise _bad(
            f'"{operator.name}" would have {total} instances for {operator.tasks} tasks.',
            f"An instance without a task gets no row. First: penstock repartition {operator.name} {total}",
        )
    if strangers := set(tasks) - known:
        raise _bad(
            f'tasks of "{operator.name}" are placed on {_names(strangers)}.', f"The cluster has: {_names(known)}."
        )


def _names(slots: set[Slot]) -> str:
    return ", ".join(str(slot) for slot in sorted(slots))


def _bad(message: str, hint: str) -> PenstockError:
    return PenstockError("BAD_PLACEMENT", message, hint)
