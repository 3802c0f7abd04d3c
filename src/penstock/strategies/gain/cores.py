"""Cores: which slots have some left, and what an operator gains if some of its instances move to them.

An operator at its bound cannot get another instance. But if its instances share the cores of slots that are full, an
instance that moves away with its tasks gets a core of its own, and those that stay share what it leaves. Whether cores
are what lacks must have been measured (`Load.slots`, `OperatorLoad.cpu`); if not, nothing is moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.cluster.model import Slot
from penstock.strategies.load import Load

#: A slot that uses more than this share of its cores is full.
FULL = 0.9
#: A move must make the operator faster by this factor.
WORTH_IT = 1.01


@dataclass(frozen=True)
class Relief:
    """Moves of one operator's instances, as origin and target, and how many times as fast it is then."""

    place: int
    moves: tuple[tuple[Slot, Slot], ...]
    factor: float


def free_cores(load: Load, slots: Sequence[Slot], new: bool = False) -> dict[Slot, float]:
    """The cores that are left on slots; none on slots that were not measured, all on those of new machines."""
    if new:
        return {slot: float(slot.cores) for slot in slots}
    used = {one.name: one for one in load.slots}
    return {
        slot: max(0.0, FULL * used[slot.name].cores - used[slot.name].used) if slot.name in used else 0.0
        for slot in slots
    }


def full_slots(load: Load) -> set[str]:
    return {one.name for one in load.slots if one.used >= FULL * one.cores}


def relief(
    load: Load,
    place: int,
    instances: Mapping[Slot, int],
    keyed: bool,
    free: Mapping[Slot, float],
    most: int,
    room: Mapping[Slot, int] | None = None,
) -> Relief | None:
    """The moves from full slots to slots with free cores that make an operator faster, at most so many, and no more
    than there is room on a slot; None if no move does. Rows a second for each core are as measured; an instance uses
    one core at most."""
    one, total = load.operators[place], sum(instances.values())
    full = full_slots(load)
    if not one.cpu or not one.processing or not any(slot.name in full for slot in instances):
        return None
    a_core = one.processing / one.cpu
    # What the operator gets of each of its slots now, it keeps; a slot that is not full does not hold it back.
    given = {slot: one.cpu * count / total for slot, count in instances.items() if slot.name in full}
    given |= {slot: cores for slot, cores in free.items() if slot not in instances}
    now, moves = dict(instances), list[tuple[Slot, Slot]]()
    best = before = _speed(now, given, a_core, one.processing / total, keyed)
    while len(moves) < most:
        origin = min((slot for slot in now if slot.name in full), key=lambda s: (given[s] / now[s], s), default=None)
        open_ = [s for s in given if s not in instances and (room is None or now.get(s, 0) < room[s])]
        to = max(open_, key=lambda slot: given[slot] / (now.get(slot, 0) + 1), default=None)
        if origin is None or to is None:
            break
        tried = {**now, origin: now[origin] - 1, to: now.get(to, 0) + 1}
        tried = {slot: count for slot, count in tried.items() if count}
        speed = _speed(tried, given, a_core, one.processing / total, keyed)
        # The slot with the fewest cores for each instance sets the pace of a keyed operator: of several such slots the
        # first move gains nothing by itself, so moves go on as long as nothing is lost.
        if speed < best:
            break
        now, best = tried, speed
        moves.append((origin, to))
    if best < before * WORTH_IT:
        return None
    return Relief(place, tuple(moves), best / before)


def _speed(
    instances: Mapping[Slot, int], given: Mapping[Slot, float], a_core: float, measured: float, keyed: bool
) -> float:
    """Rows a second: of a keyed operator the slowest slot's instances set the pace, of another one all add up."""
    each = {
        slot: (min(count, given[slot]) * a_core / count if slot in given else measured)
        for slot, count in instances.items()
    }
    if keyed:
        return min(each.values()) * sum(instances.values())
    return sum(each[slot] * count for slot, count in instances.items())
