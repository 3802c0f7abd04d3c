"""Which slot is which executor: pure functions, so that a slot keeps its name while executors come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from penstock.cluster.model import Cluster, Machine, Slot
from penstock.cluster.provider import Executor


def assign_slots(
    cluster: Cluster, executors: Iterable[Executor], previous: Mapping[Slot, Executor]
) -> dict[Slot, Executor]:
    """Give each slot an executor of its machine.

    A slot keeps the executor it had. The others are handed out by numeric id to the free slots by index, so a replaced
    executor takes the place of the one that was lost. Executors on other hosts, and more than there are slots, are left
    out; so is a slot for which there is none.
    """
    present = set(executors)
    assigned = {slot: previous[slot] for slot in cluster.slots if previous.get(slot) in present}
    waiting = sorted(present - set(assigned.values()), key=start_order, reverse=True)
    for machine in cluster.machines:
        candidates = [executor for executor in waiting if executor.host == machine.name]
        for slot in sorted(machine.slots):
            if slot not in assigned and candidates:
                assigned[slot] = candidates.pop()
    return dict(sorted(assigned.items()))


def discover_slots(
    executors: Iterable[Executor], previous: Mapping[Slot, Executor], cores: int
) -> dict[Slot, Executor]:
    """Read the slots off the executors: every executor is one, and keeps its index while others of its host leave."""
    present = sorted(executors, key=start_order)
    # Room for every executor beside every slot that was ever used; what stays empty is left out by assign_slots.
    room = Counter(executor.host for executor in present)
    for slot in previous:
        room[slot.machine] = max(room[slot.machine], slot.index + 1)
    machines = [Machine(host, tuple(Slot(host, i, cores) for i in range(count))) for host, count in room.items()]
    return assign_slots(Cluster(tuple(machines)), present, previous)


def cluster_of(slots: Iterable[Slot]) -> Cluster:
    """The machines that these slots belong to."""
    by_machine: dict[str, list[Slot]] = {}
    for slot in sorted(slots):
        by_machine.setdefault(slot.machine, []).append(slot)
    return Cluster(tuple(Machine(name, tuple(slots)) for name, slots in by_machine.items()))


def start_order(executor: Executor) -> tuple[bool, int, str]:
    """Spark numbers executors as they start; ids that are no numbers (other cluster managers) come last."""
    numeric = executor.id.isdecimal()
    return (not numeric, int(executor.id) if numeric else 0, executor.id)
