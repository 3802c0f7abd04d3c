"""Storm's default, the papers' first baseline: unassign everything and deal it out again over the machines there are.

The number of instances stays. On scale-in the machines that go are drawn at random (Stela, sections III-A and IV-E).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.strategies.decision import Decision, DecisionStep, DoesNotFit, NothingToDo, StrategyAnswer
from penstock.strategies.draft import Draft, check_new
from penstock.strategies.load import Load
from penstock.strategies.mapping.round_robin import deal
from penstock.strategies.rules import PAPER, Rules

NAME = "storm"


def scale_out(
    load: Load, placement: Placement, cluster: Cluster, new_machines: Sequence[Machine], rules: Rules = PAPER
) -> StrategyAnswer:
    check_new(cluster.machines, new_machines)
    if not new_machines:
        return NothingToDo(NAME, "no machine was added")
    draft = Draft(load, placement, rules)
    everywhere = Cluster((*cluster.machines, *new_machines))
    after = rebalance(placement, everywhere)
    if missing := _missing(draft, everywhere, rules):
        return DoesNotFit(NAME, "the topology has more instances than its slots have room for", missing)
    steps = tuple(_moves(placement, after, "dealt out again, round robin over all machines"))
    return Decision(NAME, after, steps, "everything was unassigned and dealt out again", added=tuple(new_machines))


def scale_in(load: Load, placement: Placement, cluster: Cluster, machines: int, rules: Rules = PAPER) -> StrategyAnswer:
    if machines <= 0:
        return NothingToDo(NAME, "the request removes no machine")
    draft = Draft(load, placement, rules)
    if machines >= len(cluster.machines):
        return DoesNotFit(NAME, "the last machine cannot be removed: the topology needs it", sum(draft.on.values()))
    names = [machine.name for machine in cluster.machines]
    drawn = set(random.Random(rules.seed).sample(names, machines))  # noqa: S311 - a draw, not a secret
    left = Cluster(tuple(machine for machine in cluster.machines if machine.name not in drawn))
    if missing := _missing(draft, left, rules):
        return DoesNotFit(NAME, "the other machines have no room for all instances", missing)
    after = rebalance(placement, left)
    removed = tuple(name for name in names if name in drawn)
    steps = tuple(_moves(placement, after, "dealt out again, round robin over the machines that stay"))
    return Decision(NAME, after, steps, f"{', '.join(removed)} drawn at random, seed {rules.seed}", removed=removed)


def rebalance(placement: Placement, cluster: Cluster) -> Placement:
    """As many instances of everything as before, dealt out from scratch."""
    instances = {operator: placement.total(operator) for operator in placement.instances}
    return deal(instances, {operator: len(tasks) for operator, tasks in placement.tasks.items()}, cluster)


def _missing(draft: Draft, cluster: Cluster, rules: Rules) -> int:
    if rules.slot_capacity is None:
        return 0
    return max(0, sum(draft.on.values()) - rules.slot_capacity * len(cluster.slots))


def _moves(before: Placement, after: Placement, reason: str) -> Iterator[DecisionStep]:
    """Which instance went where: those that a slot has too many of, to those that have too few, in order."""
    for operator, slots in after.instances.items():
        old = before.instances[operator]
        leaving = _surplus(old, slots)
        for to, origin in zip(_surplus(slots, old), leaving, strict=True):
            yield DecisionStep(operator, to, reason, origin)


def _surplus(one: Mapping[Slot, int], other: Mapping[Slot, int]) -> list[Slot]:
    return [slot for slot, count in sorted(one.items()) for _ in range(count - other.get(slot, 0))]
