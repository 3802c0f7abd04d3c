"""Machines, slots and the placement of operators on them: values without any Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from penstock.errors import Refusal

#: What is told of a cluster that cannot get machines.
NO_MACHINES = Refusal(
    "FIXED_MACHINES", "this cluster cannot get other machines.", "Choose a cluster whose machines can be changed."
)


@dataclass(frozen=True, order=True)
class Slot:
    """A process that runs bundles: one Spark executor (a logical one on a `local` cluster)."""

    machine: str
    index: int
    #: How many bundle processes of one operator may run at once here.
    cores: int = field(default=1, compare=False)

    @property
    def name(self) -> str:
        return f"{self.machine}/{self.index}"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Machine:
    """A host with slots: what a user adds or removes."""

    name: str
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class Cluster:
    """The machines that a topology may use."""

    machines: tuple[Machine, ...]

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(slot for machine in self.machines for slot in machine.slots)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(machine.name for machine in self.machines)

    def plus(self, machines: Sequence[Machine]) -> Cluster:
        """The cluster with these machines; a machine that is there already stays as it is."""
        return Cluster((*self.machines, *(one for one in machines if one.name not in self.names)))

    def minus(self, names: Collection[str]) -> Cluster:
        """The cluster without these machines."""
        return Cluster(tuple(machine for machine in self.machines if machine.name not in names))

    def without(self, slots: Collection[Slot]) -> Cluster:
        """The cluster without these slots, and without machines that have no other slots."""
        left = [Machine(one.name, tuple(slot for slot in one.slots if slot not in slots)) for one in self.machines]
        return Cluster(tuple(machine for machine in left if machine.slots))

    @staticmethod
    def of(machines: Sequence[str], slots: int, cores: int = 1) -> Cluster:
        """A cluster of machines that are all alike."""
        return Cluster(
            tuple(Machine(name, tuple(Slot(name, index, cores) for index in range(slots))) for name in machines)
        )


@dataclass(frozen=True)
class ComingMachines:
    """The machines that could come to a cluster, as they are known at one moment."""

    #: The next one first, under the names that they would have.
    machines: tuple[Machine, ...] = ()
    #: Slots that the next machines take in, if nothing is placed on them, before the cluster asks for more; the first
    #: come first. None where a machine comes as a whole, under a name of its own.
    spare: tuple[Slot, ...] = ()
    #: Why no more machines than these can come.
    refusal: Refusal = NO_MACHINES

    @staticmethod
    def only(machines: Iterable[Machine]) -> ComingMachines:
        """These machines could come, and no others."""
        coming = tuple(machines)
        why = Refusal("FIXED_MACHINES", f"only {len(coming)} machines can be added.", "Ask for fewer.")
        return ComingMachines(coming, refusal=why)

    def first(self, count: int) -> tuple[Machine, ...]:
        """The next machines, so many; the refusal is raised if there are fewer."""
        if count > len(self.machines):
            raise self.refusal.as_error()
        return self.machines[:count]


@dataclass(frozen=True)
class Placement:
    """Where everything runs: operator -> slot -> instances, and for keyed operators task -> slot."""

    instances: Mapping[str, Mapping[Slot, int]]
    tasks: Mapping[str, tuple[Slot, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # What is frozen already is shared: a history has hundreds of placements, and most of their operators are alike.
        frozen = {
            name: slots if isinstance(slots, MappingProxyType) else MappingProxyType(dict(slots))
            for name, slots in self.instances.items()
        }
        object.__setattr__(self, "instances", MappingProxyType(frozen))
        object.__setattr__(self, "tasks", MappingProxyType(dict(self.tasks)))

    def of(self, operator: str) -> Mapping[Slot, int]:
        """How many instances of an operator are on each slot."""
        return self.instances[operator]

    def total(self, operator: str) -> int:
        """How many instances an operator has on all slots."""
        return sum(self.instances[operator].values())

    @property
    def slots(self) -> set[Slot]:
        """Every slot that has an instance or a task."""
        return {slot for slots in self.instances.values() for slot in slots} | {
            slot for slots in self.tasks.values() for slot in slots
        }

    def load(self) -> Counter[Slot]:
        """How many instances of all operators are on each slot."""
        total: Counter[Slot] = Counter()
        for slots in self.instances.values():
            total.update(slots)
        return total
