"""Other instances on the machines that are there: the answer to congestion where cores are idle, and the only answer on
a cluster that cannot get machines.

Instances are added one by one, each for an operator that the fluid model says is too slow, on the slot with the most
idle cores. Where an operator cannot have more instances (a keyed operator has no more than tasks), one of its instances
moves from a slot without idle cores to a slot that has some. A chain that is too slow as a whole gets instances as a
whole; if one of its operators is too slow, the engine takes the chain apart around that operator (docs/design/0010).
Where the slots with idle cores have as many instances as they may (`slot_instances`), an operator that can do without
one of its own gives it away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.autoscaler.expectation import Expectation, Expected
from penstock.cluster.model import Placement, Slot
from penstock.monitor.snapshot import Snapshot
from penstock.settings import Settings
from penstock.strategies.draft import most_instances
from penstock.strategies.fluid import worth
from penstock.strategies.load import Load
from penstock.strategies.mapping.tasks import follow

#: A slot has room for an instance if so much of a core that the instance would use is idle.
ROOM = 0.5
#: Cores are never planned to be busier than this.
MOST_BUSY = 0.95
#: An operator gives an instance away only if those that it keeps are then used by at most this share.
GIVES = 0.8


@dataclass(frozen=True)
class Rearranged:
    """Another placement on the same machines."""

    placement: Placement
    #: The fluid model knows numbers of instances, not cores: of instances that move it expects nothing.
    expected: Expected
    #: Operator -> how many instances it got; below 0, how many it gave away.
    added: Mapping[str, int]
    moved: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"{abs(count)} {'more' if count > 0 else 'fewer'} of {name}" for name, count in self.added.items()]
        moved = Counter(self.moved)
        parts += [f"{count} of {name} move to idle cores" for name, count in moved.items()]
        return ", ".join(parts)


@dataclass(frozen=True)
class Stuck:
    """Why other instances would bring nothing."""

    reason: str
    expected: Expected


def rearranged(
    snapshot: Snapshot, load: Load, required: float | None, settings: Settings | None = None
) -> Rearranged | Stuck:
    """The placement that reaches the required throughput (None: as much as possible) with as few new instances as
    possible, as far as cores are idle."""
    draft = _Draft(snapshot, load, settings or Settings())
    start = found = draft.expected()
    stuck = ""
    # At most twice as many instances: what is measured then is a better guess than any from here.
    for _ in range(sum(snapshot.placement.total(one.name) for one in load.operators)):
        if required is not None and found.throughput >= required:
            break
        slow = draft.slow(found)
        if not slow:
            break
        stuck = draft.help(slow)
        if stuck:
            break
        found = draft.expected()
    changed = {name: count for name, count in draft.added.items() if count}
    if not changed and not draft.moved:
        return Stuck(stuck or "no operator is too slow for what it gets", start)
    return Rearranged(draft.placement(), found, changed, tuple(draft.moved))


class _Draft:
    """A placement that gets one instance after the other."""

    def __init__(self, snapshot: Snapshot, load: Load, settings: Settings) -> None:
        self._snapshot = snapshot
        self._load = load
        self._most_on_slot = settings.slot_instances
        self._expectation = Expectation(snapshot, load, settings.chaining == "on")
        self._before = snapshot.placement
        self._instances = {name: dict(slots) for name, slots in self._before.instances.items()}
        self._most = dict(zip(load.position, most_instances(load, self._before), strict=True))
        self._cores = {one.name: cores_of_one(snapshot, one.name) for one in load.operators}
        self._sizes = {one.name: one.state for one in load.operators}
        self._idle = idle_cores(snapshot)
        #: The slots whose cores are all busy.
        self._crowded = {slot for slot, idle in self._idle.items() if idle < 0.1 * slot.cores}
        self.added: dict[str, int] = {}
        self.moved: list[str] = []

    def expected(self) -> Expected:
        return self._expectation.of(self.placement())

    def placement(self) -> Placement:
        tasks = dict(self._before.tasks)
        for name in self.added.keys() & tasks.keys() | set(self.moved) & tasks.keys():
            tasks[name] = follow(tasks[name], self._before.of(name), self._instances[name], self._sizes[name])
        return Placement(self._instances, tasks)

    def slow(self, expected: Expected) -> tuple[str, ...]:
        """The operators to help next: of those that are too slow the one that brings most, or a whole chain."""
        groups = list(dict.fromkeys(self._group(name, expected) for name in expected.saturated))
        if not groups:
            return ()
        gains = [self._expectation.of(self._with(group)).throughput - expected.throughput for group in groups]
        best = max(range(len(groups)), key=lambda number: gains[number])
        # If nobody alone brings anything, several are equally slow: the one nearest to the sinks comes first.
        return groups[best] if gains[best] > 0 else groups[-1]

    def _group(self, name: str, expected: Expected) -> tuple[str, ...]:
        """The operator, or its whole chain if each operator of that by itself would be fast enough."""
        chain = self._snapshot.chain_of(name)
        if len(chain) == 1 or any(self._instances[one] != self._instances[chain[0]] for one in chain):
            return (name,)
        comes, measured = expected.arriving[chain[0]], self._snapshot.operators[chain[0]].rate or 1.0
        alone = {
            one: comes * (self._snapshot.operators[one].rate or 0.0) / measured / max(self._speed(one), 1e-9)
            for one in chain
        }
        slowest = max(alone, key=lambda one: alone[one])
        return (slowest,) if alone[slowest] > 1 else chain

    def _with(self, names: tuple[str, ...]) -> Placement:
        """The placement with one more instance of these, wherever that is."""
        more = {name: dict(self._instances[name]) for name in names}
        for slots in more.values():
            slots[min(slots)] += 1
        return Placement({**self._instances, **more}, self._before.tasks)

    def _speed(self, name: str) -> float:
        return self._expectation.rates[name] * self._total(name)

    def help(self, names: tuple[str, ...]) -> str:
        """One more instance for these operators, all on the same slot; or why that cannot be."""
        needed = max(self._cores[name] for name in names)  # the operators of a chain take turns
        full = [name for name in names if self._total(name) >= self._most[name]]
        if full:
            return self._moved(full[0])
        slot = self._roomiest(needed, len(names)) or self._given_up(needed, names)
        if slot is None:
            return f"no slot has idle cores and room for another instance of {names[0]}"
        for name in names:
            self._instances[name][slot] = self._instances[name].get(slot, 0) + 1
            self.added[name] = self.added.get(name, 0) + 1
        self._idle[slot] -= needed
        return ""

    def _total(self, name: str) -> int:
        return sum(self._instances[name].values())

    def _given_up(self, needed: float, names: tuple[str, ...]) -> Slot | None:
        """A slot with idle cores on which another operator gives up an instance for this one; None if there is none."""
        if len(names) > 1:  # a chain would need an instance of somebody else for each of its operators
            return None
        slots = [slot for slot in self._snapshot.cluster.slots if self._idle[slot] >= ROOM * needed]
        found = [(*spare, slot) for slot in slots if (spare := self._spare_on(slot, names[0])) is not None]
        if not found:
            return None
        _, giver, slot = min(found)
        self._instances[giver][slot] -= 1
        if not self._instances[giver][slot]:
            del self._instances[giver][slot]
        self.added[giver] = self.added.get(giver, 0) - 1
        return slot

    def _spare_on(self, slot: Slot, taker: str) -> tuple[float, str] | None:
        """Of the operators on a slot that can do without an instance, the one that has most time to spare: the share of
        its instances' time that it uses then, and its name. Who got instances gives none, and a chain stays whole."""
        expected, found = self.expected(), []
        for name, slots in self._instances.items():
            count, tasks = self._total(name), len(self._before.tasks.get(name, ())) or None
            chained = len(self._snapshot.chain_of(name)) > 1
            least = max(self._snapshot.definition.operator(name).min_instances, 1)
            if not slots.get(slot) or count <= least or chained or name == taker or self.added.get(name, 0) > 0:
                continue
            used = expected.fullness[name] * worth(count, tasks) / worth(count - 1, tasks)
            if used <= GIVES:
                found.append((used, name))
        return min(found, default=None)

    def _moved(self, name: str) -> str:
        """Move an instance of an operator that has all instances that it can use, from a slot where more of them want a
        core than there are cores, to a slot where cores are idle."""
        slots, tasks = self._instances[name], len(self._before.tasks.get(name, ()))
        origin = max(slots, key=lambda slot: (slots[slot] / slot.cores, slot))
        slot = self._roomiest(1.0, 1)
        wants = slots[origin] > origin.cores and origin in self._crowded
        if not wants or slot is None or slot in self._crowded or slots.get(slot, 0) >= slot.cores:
            limit = (
                f"{name} has {tasks} tasks and {tasks} instances: penstock repartition {name} {2 * tasks} would help"
            )
            return limit if tasks else f"{name} cannot use more instances"
        slots[origin] -= 1
        slots[slot] = slots.get(slot, 0) + 1
        self._idle[slot] -= 1.0
        self.moved.append(name)
        return ""

    def _roomiest(self, needed: float, count: int) -> Slot | None:
        on = Placement(self._instances).load()
        free = [
            slot
            for slot in self._snapshot.cluster.slots
            if self._idle[slot] >= ROOM * needed and on[slot] + count <= self._most_on_slot
        ]
        return max(free, key=lambda slot: (self._idle[slot], -on[slot] / slot.cores), default=None)


def cores_of_one(snapshot: Snapshot, name: str) -> float:
    """The cores that one more instance of an operator would use if it were always busy: less than one where instances
    wait for something else. An operator that runs in a chain uses its part of the chain's time."""
    one = snapshot.operators[name]
    if one.cpu_utilisation is None or not one.utilisation:
        return 1.0
    return min(max(one.cpu_utilisation / one.utilisation, 0.01), 1.0)


def idle_cores(snapshot: Snapshot) -> dict[Slot, float]:
    """By slot, the cores that nobody uses, by the share of their time that the operators' instances use."""
    idle = {slot: MOST_BUSY * slot.cores for slot in snapshot.cluster.slots}
    for name, slots in snapshot.placement.instances.items():
        one = snapshot.operators[name]
        share = one.cpu_utilisation if one.cpu_utilisation is not None else one.utilisation
        for slot, count in slots.items():
            if slot in idle:
                idle[slot] -= count * (1.0 if share is None else share)
    return idle
