"""The topology-aware alternatives: existing instances move to the new machines, the most important operators' first.

Stela, section III-C. As many move as Stela would add, so that all are compared at the same load a machine. Those by
link load look at neighbours as well (neighbours.py). The papers describe no scale-in for them: Storm's default does it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.strategies.baselines import storm
from penstock.strategies.baselines.neighbours import Move, by_neighbours
from penstock.strategies.baselines.priorities import PRIORITIES, Neighbours
from penstock.strategies.decision import Decision, DecisionStep, DoesNotFit, NothingToDo, StrategyAnswer
from penstock.strategies.draft import Draft, check_new
from penstock.strategies.load import Load
from penstock.strategies.rules import PAPER, Rules
from penstock.strategies.stela.scale_out import instances_a_machine


class Migration:
    """One of PRIORITIES as a strategy."""

    needs_rates = True

    def __init__(self, name: str) -> None:
        self.name = name
        self._priority, self._neighbours = PRIORITIES[name]

    def scale_out(
        self,
        load: Load,
        placement: Placement,
        cluster: Cluster,
        new_machines: Sequence[Machine],
        rules: Rules = PAPER,
    ) -> StrategyAnswer:
        check_new(cluster.machines, new_machines)
        if not new_machines:
            return NothingToDo(self.name, "no machine was added")
        draft = Draft(load, placement, rules)
        # There may be more new machines than there are instances to fill them.
        wanted = min(instances_a_machine(placement, cluster), sum(draft.on.values()) // len(new_machines))
        if not wanted:
            return NothingToDo(self.name, "there are fewer instances than new machines")
        rank = _ranks(self._priority(load))
        if self._neighbours is Neighbours.ANYWHERE:
            moves = _in_order(load, placement, rank, new_machines, wanted)
        else:
            sign = self._neighbours.value
            moves = by_neighbours(load, placement, rank, [machine.name for machine in new_machines], wanted, sign)
        machines = {machine.name: machine for machine in new_machines}
        steps: list[DecisionStep] = []
        for move in moves:
            slot = draft.emptiest(machines[move.machine])
            if slot is None:
                break
            draft.move(move.operator, move.origin, slot)
            steps.append(DecisionStep(move.operator, slot, f"{move.reason} {self.name}", move.origin))
        if missing := wanted * len(new_machines) - len(steps):
            reason = "the slots of the new machines have no room for the instances that should move there"
            return DoesNotFit(self.name, reason, missing)
        reason = f"{len(steps)} instances moved to {len(new_machines)} new machines, by {self.name}"
        return Decision(self.name, draft.placement(), tuple(steps), reason, added=tuple(new_machines))

    def scale_in(
        self, load: Load, placement: Placement, cluster: Cluster, machines: int, rules: Rules = PAPER
    ) -> StrategyAnswer:
        return replace(storm.scale_in(load, placement, cluster, machines, rules), strategy=self.name)


def _ranks(priority: Sequence[float]) -> list[int]:
    """The number of each operator in the order of priority, from 1; ties in topological order."""
    ranks = [0] * len(priority)
    for number, place in enumerate(sorted(range(len(priority)), key=lambda place: priority[place]), start=1):
        ranks[place] = number
    return ranks


def _in_order(
    load: Load, placement: Placement, rank: Sequence[int], machines: Sequence[Machine], wanted: int
) -> Iterator[Move]:
    """Instances in the order of priority, of one operator from the fullest slots first, to the machines in turn."""
    left = wanted * len(machines)
    for place in sorted(range(len(rank)), key=lambda place: rank[place]):
        operator = load.operators[place].name
        held = Counter(dict(placement.of(operator)))
        while held.total() and left:
            slot: Slot = max(sorted(held), key=lambda slot: held[slot])
            held[slot] -= 1
            machine = machines[-left % len(machines)]
            left -= 1
            yield Move(operator, slot, machine.name, f"number {rank[place]} in the order of")
