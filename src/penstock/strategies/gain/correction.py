"""The second step, after a scale-out was measured: the new instances may move once more, on what is known by then.

A measurement shows what was estimated wrongly. So the rates are calibrated again and the new instances are given out
again; that is done only if it promises clearly more than what was measured, at most twice, and the placement that was
measured best is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.cluster.model import Placement, Slot
from penstock.strategies.decision import Decision, DecisionStep, NothingToDo, StrategyAnswer
from penstock.strategies.draft import Draft, most_instances
from penstock.strategies.fluid import flow
from penstock.strategies.gain.allocation import allocate, throughput
from penstock.strategies.gain.rates import calibrated, counts, learned
from penstock.strategies.gain.scale_out import LEAST_GAIN, NAME
from penstock.strategies.load import Load
from penstock.strategies.memory import EMPTY, NO_MACHINE, Added, Memory
from penstock.strategies.rules import PAPER, Rules

#: A correction must promise more than this many times what was measured.
ACT = 1.02
#: How often a scale-out is corrected at most.
MOST = 2
#: A placement was worse than another one if it brought less than this share of it: rates fluctuate.
WORSE = 0.98


@dataclass(frozen=True)
class Trial:
    """A placement that was measured after a scale-out, and which of its instances came with that scale-out."""

    placement: Placement
    #: Rows a second at the sinks, weighted, as measured once the placement had settled.
    throughput: float
    #: Operator -> slot -> instances.
    new: Mapping[str, Mapping[Slot, int]]
    #: How many instances the scale-out could have added; those that it left out may come with a correction.
    at_hand: int = 0

    @staticmethod
    def of(before: Placement, after: Placement, throughput: float, at_hand: int = 0) -> Trial:
        """`before` is the placement before the scale-out, also for the placement after a correction."""
        return Trial(after, throughput, {name: _new(before, after, name) for name in after.instances}, at_hand)


def correct(load: Load, trials: Sequence[Trial], rules: Rules = PAPER, memory: Memory = EMPTY) -> StrategyAnswer:
    """The answer after the last of these trials, which the load was measured on; the first is that of the scale-out."""
    if not trials:
        return NothingToDo(NAME, "nothing was measured since the scale-out")
    last = trials[-1]
    memory = learned(load, last.placement, memory)
    best = max(trials, key=lambda one: one.throughput)
    pipes = calibrated(load, last.placement, memory)
    if last.throughput < WORSE * best.throughput:
        reason = f"{last.throughput:,.0f} rows/s were measured, and {best.throughput:,.0f} before the last correction"
        return Decision(
            NAME,
            best.placement,
            tuple(_steps(last.placement, best.placement, reason)),
            f"back to the better placement: {reason}",
            projected=flow(pipes, counts(load, best.placement)),
            memory=_remembering(memory, best.new),
        )
    if len(trials) > MOST:
        return NothingToDo(NAME, f"the scale-out was corrected {MOST} times already")
    now = counts(load, last.placement)
    free = {name: sum(slots.values()) for name, slots in last.new.items()}
    first = [count - free.get(one.name, 0) for one, count in zip(load.operators, now, strict=True)]
    most = most_instances(load, last.placement)
    found = allocate(pipes, first, max(last.at_hand, sum(free.values())), most)
    least = max(ACT * last.throughput, (1 + LEAST_GAIN) * throughput(pipes, now))
    if found.throughput <= least:
        return NothingToDo(
            NAME, f"{last.throughput:,.0f} rows/s were measured, and no other assignment promises clearly more"
        )
    draft = Draft(load, last.placement, rules)
    new = _exchange(draft, load, last.new, found.instances)
    after = draft.placement(evenly=True)
    projected = flow(pipes, counts(load, after))
    reason = f"{projected.throughput:,.0f} rows/s are expected by what was measured since"
    return Decision(
        NAME,
        after,
        tuple(_steps(last.placement, after, reason)),
        f"the new instances are given out again: {last.throughput:,.0f} rows/s were measured, {reason}",
        projected=projected,
        memory=_remembering(memory, new),
    )


def _new(before: Placement, after: Placement, name: str) -> dict[Slot, int]:
    """The slots of the instances that an operator has more than before."""
    more = after.total(name) - (before.total(name) if name in before.instances else 0)
    found: dict[Slot, int] = {}
    for slot, count in sorted(after.of(name).items()):
        here = min(more, count - before.instances.get(name, {}).get(slot, 0))
        if here > 0:
            found[slot] = here
            more -= here
    return found


def _exchange(
    draft: Draft, load: Load, new: Mapping[str, Mapping[Slot, int]], wanted: Sequence[int]
) -> dict[str, dict[Slot, int]]:
    """Take new instances away from operators that have too many of them, and give their places to the others; where
    there are more to give than places, the slots of new instances take them as long as they have room."""
    held = {name: dict(slots) for name, slots in new.items()}
    beside = sorted({slot for slots in new.values() for slot in slots})
    places: list[Slot] = []
    for one, count in zip(load.operators, wanted, strict=True):
        for _ in range(draft.total(one.name) - count):
            slot = max(held[one.name], key=lambda slot: (held[one.name][slot], slot))
            held[one.name][slot] -= 1
            if not held[one.name][slot]:
                del held[one.name][slot]
            draft.remove(one.name, slot)
            places.append(slot)
    for one, count in zip(load.operators, wanted, strict=True):
        for _ in range(count - draft.total(one.name)):
            mine = held.setdefault(one.name, {})
            open_ = places or [slot for slot in beside if draft.room([slot]) != 0]
            if not open_:
                return held
            slot = min(open_, key=lambda slot: (mine.get(slot, 0), draft.on[slot], slot))
            if places:
                places.remove(slot)
            draft.add(one.name, slot)
            mine[slot] = mine.get(slot, 0) + 1
    return held


def _steps(before: Placement, after: Placement, reason: str) -> list[DecisionStep]:
    steps = []
    for name, slots in after.instances.items():
        for slot in sorted({*slots, *before.of(name)}):
            change = slots.get(slot, 0) - before.of(name).get(slot, 0)
            steps += [DecisionStep(name, slot, reason) for _ in range(change)]
            steps += [DecisionStep(name, None, reason, slot) for _ in range(-change)]
    return steps


def _remembering(memory: Memory, new: Mapping[str, Mapping[Slot, int]]) -> Memory:
    """The memory in which the last scale-out added these instances."""
    by_machine: dict[str, Counter[str]] = {}
    for name, slots in new.items():
        for slot, count in slots.items():
            by_machine.setdefault(slot.machine, Counter())[name] += count
    machines = by_machine.keys() | {one.machine for one in memory.last if one.machine != NO_MACHINE}
    kept = tuple(one for one in memory.added if one.machine not in machines)
    return replace(memory, added=kept).with_added(*(Added(one, by_machine[one]) for one in sorted(by_machine)))
