"""The mapping `storm_default`: what Storm's default scheduler does, at the start and after a rebalance.

At the start instances are dealt to all slots, one by one and across machines first. Later, Storm looks at what still
runs: the instances of operators whose numbers are the same. A slot that has as many of them as an even distribution
gives to a slot is kept as it is. All others are emptied, and what has no slot is dealt to them, one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import cycle

from penstock.cluster.model import Placement, Slot
from penstock.strategies.mapping.protocol import NoRoom, Wanted
from penstock.strategies.mapping.round_robin import across_machines, deal
from penstock.strategies.mapping.tasks import deal_tasks, follow_instances


class StormDefault:
    def place(self, wanted: Wanted) -> Placement | NoRoom:
        total, slots = sum(wanted.instances.values()), wanted.cluster.slots
        if wanted.slot_instances is not None and total > wanted.slot_instances * len(slots):
            missing = total - wanted.slot_instances * len(slots)
            return NoRoom("the topology has more instances than its slots have room for", missing)
        if wanted.before is None:
            return deal(wanted.instances, wanted.tasks, wanted.cluster)
        return rescheduled(wanted, wanted.before) if slots else NoRoom("there is no slot", total)


def rescheduled(wanted: Wanted, before: Placement) -> Placement:
    slots = list(across_machines(wanted.cluster))
    alive = _alive(wanted, before, slots)
    dealt = {name: Counter(alive[name]) for name in wanted.instances}
    lacking = {name: count - dealt[name].total() for name, count in wanted.instances.items()}
    on: Counter[Slot] = Counter()
    for placed in dealt.values():
        on.update(placed)
    if any(lacking.values()) or len(+on) < len(slots):
        kept = _kept_slots(on, sum(wanted.instances.values()), slots)
        for name, placed in dealt.items():
            dealt[name] = Counter({slot: count for slot, count in placed.items() if slot in kept})
        lacking = {name: count - dealt[name].total() for name, count in wanted.instances.items()}
        # If anything lacks a slot, some slot is not kept: those that are kept hold their even share.
        free = cycle([slot for slot in slots if slot not in kept] or slots)
        for name, count in lacking.items():
            dealt[name].update(next(free) for _ in range(count))
    return Placement(dealt, {name: _tasks(wanted, before, name, dealt[name]) for name in wanted.tasks})


def _alive(wanted: Wanted, before: Placement, slots: list[Slot]) -> dict[str, Mapping[Slot, int]]:
    """By operator: the instances that go on running. If an operator gets another number of instances, its tasks are
    grouped anew, and all its instances are new ones."""
    known = {slot: slot for slot in slots}
    found: dict[str, Mapping[Slot, int]] = {}
    for name, count in wanted.instances.items():
        placed = before.instances.get(name, {})
        same = sum(placed.values()) == count
        found[name] = {known[slot]: number for slot, number in placed.items() if same and slot in known}
    return found


def _kept_slots(on: Mapping[Slot, int], total: int, slots: list[Slot]) -> set[Slot]:
    """The slots with as many instances as an even distribution gives to one of them; each share is kept as often as it
    occurs there."""
    share, more = divmod(total, len(slots))
    shares = Counter({share: len(slots) - more, share + 1: more})
    kept = set()
    for slot in sorted(slot for slot, count in on.items() if count):
        if shares[on[slot]] > 0:
            shares[on[slot]] -= 1
            kept.add(slot)
    return kept


def _tasks(wanted: Wanted, before: Placement, name: str, instances: Mapping[Slot, int]) -> tuple[Slot, ...]:
    held = before.tasks.get(name, ())
    if len(held) != wanted.tasks[name]:
        return deal_tasks(wanted.tasks[name], instances)
    same = dict(before.instances.get(name, {})) == dict(instances)
    return held if same else follow_instances(held, instances, wanted.sizes(name))
