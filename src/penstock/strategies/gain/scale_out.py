"""`gain` scales out: new machines get the instances that raise the throughput most, and none that bring nothing.

As many instances a machine are at hand as the others have on average, as in Stela. Existing instances stay, with one
exception: of an operator at its bound whose slots have no core left, some move to the new machines with their tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.cluster.model import Cluster, Machine, Placement
from penstock.strategies.decision import Decision, DecisionStep, DoesNotFit, NothingToDo, StrategyAnswer
from penstock.strategies.draft import Draft, check_new, most_instances
from penstock.strategies.fluid import Pipes, flow, rates_at
from penstock.strategies.gain.allocation import Allocation, allocate, full, throughput
from penstock.strategies.gain.cores import Relief, free_cores, relief
from penstock.strategies.gain.obstacles import why_nothing
from penstock.strategies.gain.rates import calibrated, counts, learned
from penstock.strategies.load import Load
from penstock.strategies.memory import EMPTY, Added, Memory
from penstock.strategies.rules import PAPER, Rules
from penstock.strategies.stela.scale_out import instances_a_machine

NAME = "gain"
#: A machine that would bring less than this share of the throughput brings nothing.
LEAST_GAIN = 0.005


@dataclass(frozen=True)
class _Choice:
    """Where the new instances go, on which pipes, after which moves of instances that are there."""

    pipes: Pipes
    allocation: Allocation
    relief: Relief | None = None


def scale_out(
    load: Load,
    placement: Placement,
    cluster: Cluster,
    new_machines: Sequence[Machine],
    rules: Rules = PAPER,
    memory: Memory = EMPTY,
) -> StrategyAnswer:
    check_new(cluster.machines, new_machines)
    if not new_machines:
        return NothingToDo(NAME, "no machine was added")
    draft = Draft(load, placement, rules)
    wanted = instances_a_machine(placement, cluster)
    rooms = (draft.room(machine.slots) for machine in new_machines)
    if missing := sum(max(0, wanted - room) for room in rooms if room is not None):
        reason = f"each new machine should get {wanted} instances, but its slots have no room for them"
        return DoesNotFit(NAME, reason, missing)
    memory = learned(load, placement, memory)
    pipes = calibrated(load, placement, memory)
    first, most = counts(load, placement), most_instances(load, placement)
    now = throughput(pipes, first)
    choice = _choice(load, draft, new_machines, pipes, wanted * len(new_machines), most)
    after = choice.allocation.throughput
    if after <= now * (1 + LEAST_GAIN):
        return NothingToDo(NAME, f"a machine would bring nothing: {why_nothing(pipes, first, most)}")
    steps = [*_moves(draft, choice, now), *_new_instances(draft, choice, first, new_machines)]
    added = [Added(one.name, _new_on(steps, one)) for one in new_machines]
    return Decision(
        NAME,
        draft.placement(evenly=True),
        tuple(steps),
        _reason(choice, steps, len(new_machines), now),
        added=tuple(new_machines),
        projected=flow(choice.pipes, choice.allocation.instances),
        memory=memory.with_added(*added),
    )


def _choice(
    load: Load, draft: Draft, machines: Sequence[Machine], pipes: Pipes, new: int, most: Sequence[float]
) -> _Choice:
    """With and without moving instances of the operators that are too slow at their bound: what brings more."""
    placement = draft.before
    first = counts(load, placement)
    best = _Choice(pipes, allocate(pipes, first, new, most))
    free = free_cores(load, [slot for machine in machines for slot in machine.slots], new=True)
    for place in full(pipes, rates_at(pipes, best.allocation.instances)):
        if first[place] < most[place]:
            continue
        name = load.operators[place].name
        found = relief(load, place, placement.of(name), name in placement.tasks, free, new, draft.rooms(free))
        if found is None:
            continue
        faster = replace(pipes, rates=_times(pipes.rates, place, found.factor))
        tried = _Choice(faster, allocate(faster, first, new - len(found.moves), most), found)
        if tried.allocation.throughput > best.allocation.throughput * (1 + LEAST_GAIN):
            best = tried
    return best


def _times(rates: Sequence[float], place: int, factor: float) -> tuple[float, ...]:
    return tuple(rate * factor if index == place else rate for index, rate in enumerate(rates))


def _moves(draft: Draft, choice: _Choice, now: float) -> list[DecisionStep]:
    if choice.relief is None:
        return []
    name = choice.pipes.load.operators[choice.relief.place].name
    steps = []
    for origin, to in choice.relief.moves:
        draft.move(name, origin, to)
        reason = f"{name} can use no other instance, and {origin} has no core left: on {to} it has cores of its own"
        steps.append(DecisionStep(name, to, reason, origin, (("faster", choice.relief.factor), ("throughput", now))))
    return steps


def _new_instances(
    draft: Draft, choice: _Choice, first: Sequence[int], machines: Sequence[Machine]
) -> list[DecisionStep]:
    """Deal the new instances to the new machines, round robin."""
    pipes, instances = choice.pipes, choice.allocation.instances
    steps: list[DecisionStep] = []
    for place, count in enumerate(instances):
        more = count - first[place]
        without = [*instances[:place], first[place], *instances[place + 1 :]]
        gain = choice.allocation.throughput - throughput(pipes, without)
        rates = rates_at(pipes, without)
        figures = (("input", rates.arriving[place]), ("capacity", rates.speed[place]), ("gain", gain))
        name = pipes.load.operators[place].name
        for _ in range(more):
            slot = draft.emptiest(machines[len(steps) % len(machines)])
            if slot is None:  # the slots of this machine are full
                slot = next(found for one in machines if (found := draft.emptiest(one)) is not None)
            reason = f"{_counted(more, 'new instance')} of {name} {_brings(more)} {gain:,.0f} rows/s at the sinks"
            draft.add(name, slot)
            steps.append(DecisionStep(name, slot, reason, None, figures))
    return steps


def _new_on(steps: Sequence[DecisionStep], machine: Machine) -> Counter[str]:
    return Counter(
        step.operator for step in steps if step.origin is None and step.to is not None and step.to in machine.slots
    )


def _reason(choice: _Choice, steps: Sequence[DecisionStep], machines: int, now: float) -> str:
    new = sum(step.origin is None for step in steps)
    reason = f"{_counted(new, 'new instance')} on {_counted(machines, 'new machine')}"
    if moved := len(steps) - new:
        reason += f", and {moved} moved there"
    reason += f": from {now:,.0f} to {choice.allocation.throughput:,.0f} rows/s at the sinks"
    if left := choice.allocation.left_out:
        reason += f"; {_counted(left, 'instance')} left out, because no operator would get faster by it"
    return reason


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _brings(count: int) -> str:
    return "brings" if count == 1 else "bring"
