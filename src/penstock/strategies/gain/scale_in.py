"""`gain` scales in: the machine goes whose loss costs least, and with it as many instances as a machine had brought.

What the last scale-out added is taken back, so that cycles of growing and shrinking come back to the same instances;
where that is not known, as many go as a machine has on average, those that are missed least. Instances that are left on
the machine move to the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.strategies.decision import Decision, DecisionStep, DoesNotFit, NothingToDo, StrategyAnswer
from penstock.strategies.draft import Draft, most_instances
from penstock.strategies.fluid import Pipes, flow, rates_at
from penstock.strategies.gain.allocation import throughput
from penstock.strategies.gain.rates import calibrated, counts, learned
from penstock.strategies.gain.scale_out import NAME
from penstock.strategies.gain.surplus import fewer_by, missed_least
from penstock.strategies.load import Load
from penstock.strategies.mapping.keeping import least_loaded
from penstock.strategies.memory import EMPTY, NO_MACHINE, Memory, merged
from penstock.strategies.rules import PAPER, Rules

#: What a scale-out added is taken back unless other instances are missed less by more than this share.
CLEARLY = 0.02
#: Operators can use this share of the cores that are there.
MOST_USED = 0.95


def scale_in(
    load: Load,
    placement: Placement,
    cluster: Cluster,
    machines: int,
    rules: Rules = PAPER,
    memory: Memory = EMPTY,
) -> StrategyAnswer:
    """Machines go one at a time: each is chosen after the instances of the last one found their places."""
    if machines <= 0:
        return NothingToDo(NAME, "the request removes no machine")
    draft = Draft(load, placement, rules)
    if machines >= len(cluster.machines):
        return DoesNotFit(NAME, "the last machine cannot be removed: the topology needs it", sum(draft.on.values()))
    memory = learned(load, placement, memory)
    pipes = calibrated(load, placement, memory)
    most = most_instances(load, placement)
    now = throughput(pipes, counts(load, placement))
    left, steps, removed = list(cluster.machines), list[DecisionStep](), list[str]()
    for _ in range(machines):
        instances = [draft.total(one.name) for one in load.operators]
        target = _target(pipes, instances, most, len(left), memory)
        came_last = {one.machine for one in memory.last}
        goes = min(left, key=lambda machine: _cost(load, pipes, target, draft, machine, left, came_last))
        left.remove(goes)
        slots = [slot for machine in left for slot in machine.slots]
        target = _that_fit(pipes, target, slots, rules)
        missing = 0 if rules.slot_capacity is None else max(0, sum(target) - rules.slot_capacity * len(slots))
        missing = missing or _carry_out(draft, load, goes, slots, target, steps)
        if missing:
            return DoesNotFit(NAME, f"the other machines have no room for what runs on {goes.name}", missing)
        removed.append(goes.name)
        memory = memory.without_last()
    instances = [draft.total(one.name) for one in load.operators]
    pipes = _on_cores(load, pipes, instances, [slot for machine in left for slot in machine.slots])
    after = flow(pipes, instances)
    names = ", ".join(removed)
    reason = f"{names} cost least: without {names}, {after.throughput:,.0f} of {now:,.0f} rows/s reach the sinks"
    if gone := sum(step.to is None for step in steps):
        reason += f"; {gone} instance{'' if gone == 1 else 's'} taken away"
    gone_slots = {slot for machine in cluster.machines if machine.name in removed for slot in machine.slots}
    return Decision(
        NAME,
        draft.placement(gone_slots, evenly=True),
        tuple(steps),
        reason,
        removed=tuple(removed),
        projected=after,
        memory=memory,
    )


def _target(pipes: Pipes, instances: Sequence[int], most: Sequence[float], machines: int, memory: Memory) -> list[int]:
    """How many instances are to be left: what came last goes; if no machine is known to have come, as many go as a
    machine has on average."""
    last = merged(memory.last)
    back = [
        int(max(one.least_instances, min(bound, count - last.get(one.name, 0))))
        for one, count, bound in zip(pipes.load.operators, instances, most, strict=True)
    ]
    if all(one.machine == NO_MACHINE for one in memory.last):
        return fewer_by(pipes, back, math.ceil(sum(back) * (machines - 1) / machines))
    other = fewer_by(pipes, instances, sum(back))
    return other if throughput(pipes, other) > throughput(pipes, back) * (1 + CLEARLY) else back


def _cost(
    load: Load,
    pipes: Pipes,
    target: Sequence[int],
    draft: Draft,
    machine: Machine,
    machines: Sequence[Machine],
    came_last: set[str],
) -> tuple[float, bool, int, int]:
    """Throughput that is lost with a machine; then machines that came last, then the fewest tasks and instances to
    move."""
    others = [slot for one in machines if one is not machine for slot in one.slots]
    kept = throughput(_on_cores(load, pipes, target, others), target)
    own = set(machine.slots)
    tasks = sum(slot in own for slots in draft.before.tasks.values() for slot in slots)
    moving = sum(
        max(0, sum(n for slot, n in draft.instances[one.name].items() if slot in own) - draft.total(one.name) + count)
        for one, count in zip(load.operators, target, strict=True)
    )
    return -round(kept, 6), machine.name not in came_last, tasks, moving


def _on_cores(load: Load, pipes: Pipes, instances: Sequence[int], slots: Sequence[Slot]) -> Pipes:
    """The pipes if only the cores of these slots are there: operators that need more of them in all are slower by the
    same share. Operators whose CPU time was not measured need none."""
    rates = rates_at(pipes, instances)
    demand = sum(
        one.cpu / one.processing * executed
        for one, executed in zip(load.operators, rates.executed, strict=True)
        if one.cpu and one.processing
    )
    cores = MOST_USED * sum(slot.cores for slot in slots)
    if demand <= cores or not load.slots:
        return pipes
    share = cores / demand
    slower = [
        rate if not speed else rate * min(1.0, share * executed / speed)
        for rate, speed, executed in zip(pipes.rates, rates.speed, rates.executed, strict=True)
    ]
    return replace(pipes, rates=tuple(slower))


def _that_fit(pipes: Pipes, target: list[int], slots: Sequence[Slot], rules: Rules) -> list[int]:
    """Fewer instances where the slots that are left do not take all of them."""
    if rules.slot_capacity is None:
        return target
    room = rules.slot_capacity * len(slots)
    while sum(target) > room and (place := missed_least(pipes, target)) is not None:
        target[place] -= 1
    return target


def _carry_out(
    draft: Draft, load: Load, goes: Machine, slots: Sequence[Slot], target: Sequence[int], steps: list[DecisionStep]
) -> int:
    """Take away and move instances until the machine is empty and operators have what they are to have; returns how
    many instances found no place."""
    own = set(goes.slots)
    for one, count in zip(load.operators, target, strict=True):
        for _ in range(draft.total(one.name) - count):
            placed = draft.instances[one.name]
            slot = max(placed, key=lambda slot: (slot in own, draft.on[slot] / slot.cores, slot))
            draft.remove(one.name, slot)
            reason = f"with {count} instances {one.name} handles its rows, or loses less than any other operator"
            steps.append(DecisionStep(one.name, None, reason, slot))
    moving = [
        (one.name, slot)
        for one in load.operators
        for slot, count in sorted(draft.instances[one.name].items())
        if slot in own
        for _ in range(count)
    ]
    coming = [
        (one.name, None)
        for one, count in zip(load.operators, target, strict=True)
        for _ in range(count - draft.total(one.name))
    ]
    for number, (name, origin) in enumerate([*moving, *coming]):
        open_ = [slot for slot in slots if draft.room([slot]) != 0]
        if not open_:
            return len(moving) + len(coming) - number
        to = least_loaded(open_, draft.on, draft.instances[name])
        if origin is None:
            draft.add(name, to)
            steps.append(DecisionStep(name, to, "the operator gets back what it gave away before"))
        else:
            draft.move(name, origin, to)
            steps.append(DecisionStep(name, to, f"{goes.name} is removed; {to} has the least to do", origin))
    return 0
