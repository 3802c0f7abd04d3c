"""The topology-aware alternatives: existing instances move to the new machines, the most important operators' first.

Stela, section III-C. As many move as Stela would add, so that all are compared at the same load a machine. The papers
describe no scale-in for them: Storm's default does it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.strategies.baselines import storm
from penstock.strategies.baselines.priorities import PRIORITIES
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
        self._priority, self._together = PRIORITIES[name]

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
        free = Counter({machine.name: wanted for machine in new_machines})
        steps: list[DecisionStep] = []
        for operator, origin, number in _instances(load, placement, self._priority(load)):
            machine = self._machine(load, draft, operator, new_machines, free)
            slot = draft.emptiest(machine) if machine else None
            if machine is None or slot is None:
                break
            free[machine.name] -= 1
            draft.move(operator, origin, slot)
            steps.append(DecisionStep(operator, slot, f"number {number} in the order of {self.name}", origin))
        if missing := free.total():
            return DoesNotFit(self.name, "the new machines' slots do not take their share", missing)
        reason = f"{len(steps)} instances moved to {len(new_machines)} new machines, by {self.name}"
        return Decision(self.name, draft.placement(), tuple(steps), reason, added=tuple(new_machines))

    def _machine(
        self, load: Load, draft: Draft, operator: str, machines: Sequence[Machine], free: Counter[str]
    ) -> Machine | None:
        """Where neighbours belong together, the machine with most of them; else, and among equals, the one with most
        left to fill, which is round robin."""
        left = [machine for machine in machines if free[machine.name]]
        near = self._neighbours_on(load, draft, operator) if self._together else Counter[str]()
        return max(left, key=lambda machine: (near[machine.name], free[machine.name]), default=None)

    @staticmethod
    def _neighbours_on(load: Load, draft: Draft, operator: str) -> Counter[str]:
        place = load.position[operator]
        found: Counter[str] = Counter()
        for other in (*load.parents[place], *load.children[place]):
            for slot, count in draft.instances[load.operators[other].name].items():
                found[slot.machine] += count
        return found

    def scale_in(
        self, load: Load, placement: Placement, cluster: Cluster, machines: int, rules: Rules = PAPER
    ) -> StrategyAnswer:
        return replace(storm.scale_in(load, placement, cluster, machines, rules), strategy=self.name)


def _instances(load: Load, placement: Placement, priority: Sequence[float]) -> Iterator[tuple[str, Slot, int]]:
    """Every instance with its slot, in the order of priority; of one operator, from the fullest slots first."""
    order = sorted(range(len(load.operators)), key=lambda place: priority[place])
    for number, place in enumerate(order, start=1):
        operator = load.operators[place].name
        left = Counter(dict(placement.of(operator)))
        for _ in range(placement.total(operator)):
            slot = max(sorted(left), key=lambda slot: left[slot])
            left[slot] -= 1
            yield operator, slot, number
