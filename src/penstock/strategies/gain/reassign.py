"""`gain` on the machines that are there: other instances, on other slots, where that raises the throughput.

This is the thesis' second service level, the most throughput for a given number of machines. Operators that do not need
all their instances give some away; slots that have room, or cores that nobody uses, take more. What was added in this
way is taken back when it is not needed any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.cluster.model import Cluster, Placement, Slot
from penstock.strategies.decision import Decision, DecisionStep, NothingToDo, StrategyAnswer
from penstock.strategies.draft import Draft, most_instances
from penstock.strategies.fluid import Pipes, flow, rates_at
from penstock.strategies.gain.allocation import allocate, full, throughput
from penstock.strategies.gain.cores import free_cores, relief
from penstock.strategies.gain.obstacles import why_nothing
from penstock.strategies.gain.rates import calibrated, counts, learned
from penstock.strategies.gain.scale_out import NAME
from penstock.strategies.gain.surplus import needed
from penstock.strategies.load import Load, ratio
from penstock.strategies.memory import EMPTY, NO_MACHINE, Added, Memory
from penstock.strategies.rules import PAPER, Rules

#: A change must bring at least this much: instances that move cost a moment.
WORTH_IT = 1.02
#: Operators give away instances only if those that they keep are used by at most this share.
GIVES = 0.8
#: What was added is taken back only if the rest is then used by at most this share: far enough from GIVES not to swing.
TAKES_BACK = 0.6
#: An instance uses at least so much of a core: measured CPU times near 0 would let a slot take any number.
LEAST_CPU = 0.1


@dataclass(frozen=True)
class _Question:
    load: Load
    placement: Placement
    cluster: Cluster
    rules: Rules
    memory: Memory
    pipes: Pipes
    first: list[int]
    most: tuple[float, ...]
    now: float


def reassign(
    load: Load, placement: Placement, cluster: Cluster, rules: Rules = PAPER, memory: Memory = EMPTY
) -> StrategyAnswer:
    memory = learned(load, placement, memory)
    pipes = calibrated(load, placement, memory)
    first = counts(load, placement)
    most, now = most_instances(load, placement), throughput(pipes, first)
    here = _Question(load, placement, cluster, rules, memory, pipes, first, most, now)
    return _other_instances(here) or _other_slots(here) or _take_back(here) or NothingToDo(NAME, _why_not(here))


def _other_instances(here: _Question) -> Decision | None:
    keeps = needed(here.pipes, here.first, GIVES)
    draft = Draft(here.load, here.placement, here.rules)
    cores = _Cores(here, draft)
    room = cores.room()
    wanted = allocate(here.pipes, keeps, sum(here.first) - sum(keeps) + room, here.most).instances
    coming = [place for place, count in enumerate(wanted) for _ in range(count - here.first[place])]
    givers = _givers(here, wanted, keeps)
    steps: list[DecisionStep] = []
    for place in coming:
        giver = givers.pop(0) if room <= 0 and givers else None
        if room <= 0 and giver is None:
            break
        room -= giver is None
        step = cores.give(here.load.operators[place].name, giver)
        if step is None:
            break
        steps += step
    instances = [draft.total(one.name) for one in here.load.operators]
    after = throughput(here.pipes, instances)
    if after <= here.now * WORTH_IT:
        return None
    change = {
        one.name: count - before for one, count, before in zip(here.load.operators, instances, here.first, strict=True)
    }
    return Decision(
        NAME,
        draft.placement(evenly=True),
        tuple(steps),
        f"other instances on the same machines: from {here.now:,.0f} to {after:,.0f} rows/s at the sinks",
        projected=flow(here.pipes, instances),
        memory=here.memory.with_added(Added(NO_MACHINE, change)),
    )


def _givers(here: _Question, wanted: Sequence[int], keeps: Sequence[int]) -> list[str]:
    """The operators that can give instances away, once for each, those with the most to spare first."""
    rates = rates_at(here.pipes, wanted)
    spare = [
        (ratio(rates.arriving[place], here.pipes.speed(place, here.first[place] - number)), one.name)
        for place, one in enumerate(here.load.operators)
        for number in range(here.first[place] - max(wanted[place], keeps[place]))
    ]
    return [name for _, name in sorted(spare)]


class _Cores:
    """Gives instances to slots of a draft, and counts the cores that they take."""

    def __init__(self, here: _Question, draft: Draft) -> None:
        self._load, self._draft = here.load, draft
        self._slots = here.cluster.slots
        self._known = bool(here.load.slots)
        self._free = free_cores(here.load, self._slots)
        self._cpu = {
            one.name: max(LEAST_CPU, (one.cpu or 0.0) / count)
            for one, count in zip(here.load.operators, here.first, strict=True)
        }

    def room(self) -> int:
        """How many more instances the slots take: by their cores if these are known, by their capacity if that is set;
        none if neither is. Never more than there are."""
        bound = self._draft.room(self._slots)
        if not self._known:
            return 0 if bound is None else bound
        by_cores = sum(int(free / min(self._cpu.values())) for free in self._free.values())
        return min(by_cores, sum(self._draft.on.values()), by_cores if bound is None else bound)

    def give(self, taker: str, giver: str | None) -> list[DecisionStep] | None:
        """One instance for an operator, from another one or from none; None if no slot has room for it."""
        draft, steps = self._draft, list[DecisionStep]()
        if giver is not None:
            placed = draft.instances[giver]
            origin = max(placed, key=lambda slot: (draft.on[slot] / slot.cores, slot))
            draft.remove(giver, origin)
            steps.append(DecisionStep(giver, None, f"{giver} handles its rows without it", origin))
        to = self._slot(taker)
        if to is None:
            if giver is not None:
                draft.add(giver, origin)
            return None
        draft.add(taker, to)
        self._free[to] -= self._cpu[taker]
        steps.append(DecisionStep(taker, to, f"{taker} has more rows than it can handle, and {to} has room"))
        return steps

    def _slot(self, taker: str) -> Slot | None:
        open_ = [slot for slot in self._slots if self._draft.room([slot]) != 0]
        if self._known:
            open_ = [slot for slot in open_ if self._free[slot] >= self._cpu[taker]]
            return max(open_, key=lambda slot: (self._free[slot], slot), default=None)
        on = self._draft.on
        return min(open_, key=lambda slot: (on[slot] / slot.cores, slot), default=None)


def _other_slots(here: _Question) -> Decision | None:
    """Move instances of an operator that is too slow at its bound from full slots to slots with cores left."""
    for place in full(here.pipes, rates_at(here.pipes, here.first)):
        if here.first[place] < here.most[place]:
            continue
        name = here.load.operators[place].name
        draft = Draft(here.load, here.placement, here.rules)
        free = {slot: cores for slot, cores in free_cores(here.load, here.cluster.slots).items() if cores > 0}
        keyed = name in here.placement.tasks
        found = relief(here.load, place, here.placement.of(name), keyed, free, here.first[place], draft.rooms(free))
        if found is None:
            continue
        rates = [rate * (found.factor if index == place else 1) for index, rate in enumerate(here.pipes.rates)]
        faster = replace(here.pipes, rates=tuple(rates))
        after = throughput(faster, here.first)
        if after <= here.now * WORTH_IT:
            continue
        steps = []
        for origin, to in found.moves:
            draft.move(name, origin, to)
            reason = f"{name} can use no other instance, and {origin} has no core left: {to} has"
            steps.append(DecisionStep(name, to, reason, origin))
        return Decision(
            NAME,
            draft.placement(evenly=True),
            tuple(steps),
            f"{name} on slots with free cores: from {here.now:,.0f} to {after:,.0f} rows/s at the sinks",
            projected=flow(faster, here.first),
            memory=here.memory,
        )
    return None


def _take_back(here: _Question) -> Decision | None:
    """Undo the last reassignment that is not needed any more."""
    if not here.memory.added or here.memory.added[-1].machine != NO_MACHINE:
        return None
    last = here.memory.added[-1].instances
    instances = [count - last.get(one.name, 0) for one, count in zip(here.load.operators, here.first, strict=True)]
    keeps = needed(here.pipes, here.first, TAKES_BACK)
    pairs = zip(instances, keeps, here.first, here.most, strict=True)
    if any(count > most or (count < before and count < least) for count, least, before, most in pairs):
        return None
    draft = Draft(here.load, here.placement, here.rules)
    steps: list[DecisionStep] = []
    for one, count in zip(here.load.operators, instances, strict=True):
        for _ in range(draft.total(one.name) - count):
            placed = draft.instances[one.name]
            slot = max(placed, key=lambda slot: (draft.on[slot] / slot.cores, slot))
            draft.remove(one.name, slot)
            steps.append(DecisionStep(one.name, None, f"{one.name} handles its rows without it", slot))
    for one, count in zip(here.load.operators, instances, strict=True):
        for _ in range(count - draft.total(one.name)):
            open_ = [slot for slot in here.cluster.slots if draft.room([slot]) != 0]
            if not open_:
                return None
            slot = min(open_, key=lambda slot: (draft.on[slot] / slot.cores, slot))
            draft.add(one.name, slot)
            steps.append(DecisionStep(one.name, slot, "the operator gets back what it gave away before"))
    return Decision(
        NAME,
        draft.placement(evenly=True),
        tuple(steps),
        "the instances that the last reassignment added are not needed any more",
        projected=flow(here.pipes, instances),
        memory=replace(here.memory, added=here.memory.added[:-1]),
    )


def _why_not(here: _Question) -> str:
    slow = full(here.pipes, rates_at(here.pipes, here.first))
    if any(here.first[place] < here.most[place] for place in slow):
        return (
            "other instances would bring too little: operators have none to give away, and slots have no room or no "
            "core left"
        )
    return f"other instances would bring nothing: {why_nothing(here.pipes, here.first, here.most)}"
