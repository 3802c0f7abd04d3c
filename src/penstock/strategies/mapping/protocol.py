"""The protocol of mappings: a mapping gets what is to be placed and answers with slots. Pure: no clock, no Spark.

The mapping that the setting `mapping` names is asked at the start of a topology, whenever an operator gets another
number of instances and nobody names the slots, and by the policy `threshold` in every round: if it then answers with
other slots for the same numbers, what runs is moved there. Three other rules choose slots without it: a strategy that
names the machine itself (strategies/draft.py), the repair of what was lost and must run somewhere now
(plans/repair.py), and tasks, which follow the instances of their operator (strategies/mapping/tasks.py) unless a
mapping places them itself.
"""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from penstock import plugins
from penstock.cluster.model import Cluster, Placement
from penstock.errors import PenstockError
from penstock.monitor.snapshot import Snapshot
from penstock.topology.definition import Keyed, TopologyDefinition


@dataclass(frozen=True)
class Wanted:
    """What a mapping is to place, and all that is known about the slots."""

    definition: TopologyDefinition
    #: The slots that may be used.
    cluster: Cluster
    #: How many instances each operator has, in topological order.
    instances: abc.Mapping[str, int]
    #: How many tasks each keyed operator has.
    tasks: abc.Mapping[str, int] = field(default_factory=dict)
    #: The placement now; None at the start, when nothing runs yet. An operator stands still for a moment when it moves.
    before: Placement | None = None
    #: The most instances that all operators together may have on a slot; None is no bound.
    slot_instances: int | None = None
    #: Whether neighbouring operators that are placed alike run as one chain (the setting `chaining`).
    chains: bool = True
    #: The measurements (traffic, sizes of state); None at the start, or if the setting `monitoring` is off.
    snapshot: Snapshot | None = None
    #: By what share the traffic between machines must fall before what runs is moved for that (the setting).
    traffic_gain: float = 0.0

    def sizes(self, operator: str) -> tuple[int, ...] | None:
        """The bytes of each task of a keyed operator; None if the size of one of them is not known."""
        return None if self.snapshot is None else self.snapshot.operators[operator].state_sizes(self.tasks[operator])

    @staticmethod
    def at_start(
        definition: TopologyDefinition, cluster: Cluster, slot_instances: int | None = None, chains: bool = True
    ) -> Wanted:
        """All instances and tasks as the user declared them; nothing runs yet."""
        instances = {operator.name: operator.instances for operator in definition.operators}
        return Wanted(definition, cluster, instances, _tasks(definition), None, slot_instances, chains)

    @staticmethod
    def as_now(definition: TopologyDefinition, cluster: Cluster, before: Placement) -> Wanted:
        """All instances and tasks as they are now. A caller who wants another number replaces it."""
        instances = {name: before.total(name) for name in before.instances}
        return Wanted(definition, cluster, instances, {name: len(all_) for name, all_ in before.tasks.items()}, before)


@dataclass(frozen=True)
class NoRoom:
    """The answer of a mapping that the slots do not take what is wanted: a result, not an error."""

    reason: str
    #: How many instances have no place.
    missing: int = 0


@runtime_checkable
class Mapping(Protocol):
    """Chooses slots. A package registers its own mapping as an entry point of the group penstock.mappings: see
    penstock.plugins."""

    def place(self, wanted: Wanted) -> Placement | NoRoom:
        """A slot for every instance and every task that is wanted. Equal questions get equal answers."""


def mapping(name: str) -> Mapping:
    """The mapping of this name."""
    found = plugins.build(plugins.MAPPINGS, name)
    if not isinstance(found, Mapping):
        raise plugins.failed(plugins.MAPPINGS, name, "it has no method `place`")
    return found


def place(name: str, wanted: Wanted) -> Placement | NoRoom:
    """The answer of the mapping of this name. It is checked: every wanted instance and task is on a slot of the
    cluster."""
    found = mapping(name)
    try:
        answer = found.place(wanted)
    except PenstockError:
        raise
    except Exception as problem:  # a stranger's mapping may raise whatever it likes
        raise plugins.failed(plugins.MAPPINGS, name, problem) from problem
    if not isinstance(answer, Placement | NoRoom):
        raise plugins.failed(plugins.MAPPINGS, name, f"it answered with {type(answer).__name__}")
    if isinstance(answer, Placement) and (mistake := _mistake(answer, wanted)):
        raise PenstockError(
            "BAD_PLACEMENT",
            f'the mapping "{name}" gave a wrong placement: {mistake}.',
            "Choose another setting `mapping`.",
        )
    return answer


def start(name: str, wanted: Wanted) -> Placement:
    """The placement with which a topology starts. If the slots have no room, the topology cannot start: SLOT_FULL."""
    answer = place(name, wanted)
    if isinstance(answer, NoRoom):
        raise PenstockError(
            "SLOT_FULL", f"{name}: {answer.reason} ({answer.missing} too many).", "Start with more machines or slots."
        )
    return answer


def _mistake(placement: Placement, wanted: Wanted) -> str:
    known = set(wanted.cluster.slots)
    for operator, count in wanted.instances.items():
        slots = placement.instances.get(operator, {})
        if sum(slots.values()) != count or min(slots.values(), default=1) < 1:
            return f'"{operator}" has {sum(slots.values())} instances, and {count} are wanted'
    for operator, count in wanted.tasks.items():
        if (placed := len(placement.tasks.get(operator, ()))) != count:
            return f'"{operator}" has {placed} tasks, and {count} are wanted'
    if strangers := sorted(placement.slots - known):
        return f"it uses {', '.join(map(str, strangers))}, which the cluster does not have"
    return ""


def _tasks(definition: TopologyDefinition) -> dict[str, int]:
    return {operator.name: operator.tasks for operator in definition.operators if isinstance(operator, Keyed)}
