"""Stela's scale-out: every new instance goes to the congested operator that affects the throughput most.

Section II-E, algorithm 2. Existing instances stay where they are. Read as: a congested operator that cannot use another
instance (it has as many as tasks) is passed over, and where no congested one is left, a source gets the instance, as if
nothing were congested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from penstock.cluster.model import Cluster, Machine, Placement
from penstock.strategies.decision import Decision, DecisionStep, DoesNotFit, NothingToDo, StrategyAnswer
from penstock.strategies.draft import Draft, check_new, most_instances
from penstock.strategies.load import Load
from penstock.strategies.rules import PAPER, Rules
from penstock.strategies.stela.capacity import CapacityProjection
from penstock.strategies.stela.etp import Floats
from penstock.strategies.stela.projection import PaperProjection, Projection

NAME = "stela"
BY_CAPACITY = "stela_capacity"


def instances_a_machine(placement: Placement, cluster: Cluster) -> int:
    """N_instances (section II-B): what a machine had on average before, rounded down, and at least 1."""
    return instances_each(placement, len(cluster.machines))


def instances_each(placement: Placement, machines: int) -> int:
    """The same for a number of machines."""
    total = sum(placement.total(operator) for operator in placement.instances)
    return max(1, total // max(1, machines))


def scale_out(
    load: Load, placement: Placement, cluster: Cluster, new_machines: Sequence[Machine], rules: Rules = PAPER
) -> StrategyAnswer:
    """N_instances new instances a new machine, dealt to the new machines round robin."""
    return _scale_out(NAME, PaperProjection, load, placement, cluster, new_machines, rules)


def scale_out_by_capacity(
    load: Load, placement: Placement, cluster: Cluster, new_machines: Sequence[Machine], rules: Rules = PAPER
) -> StrategyAnswer:
    """The same rule on another projection, which knows what an operator could do and not only what it did."""
    return _scale_out(BY_CAPACITY, CapacityProjection, load, placement, cluster, new_machines, rules)


def _scale_out(
    name: str,
    project: Callable[[Load, Sequence[int], Rules, Sequence[int | None]], Projection],
    load: Load,
    placement: Placement,
    cluster: Cluster,
    new_machines: Sequence[Machine],
    rules: Rules,
) -> StrategyAnswer:
    check_new(cluster.machines, new_machines)
    if not new_machines:
        return NothingToDo(name, "no machine was added")
    draft = Draft(load, placement, rules)
    wanted = instances_a_machine(placement, cluster)
    if missing := sum(_too_many(draft, machine, wanted) for machine in new_machines):
        reason = f"each new machine should get {wanted} instances, but its slots have no room for them"
        return DoesNotFit(name, reason, missing)
    names = [operator.name for operator in load.operators]
    tasks = [len(placement.tasks[name]) if name in placement.tasks else None for name in names]
    projection = project(load, [placement.total(name) for name in names], rules, tasks)
    most = np.array(most_instances(load, placement))
    steps: list[DecisionStep] = []
    for number in range(wanted * len(new_machines)):
        place = _target(load, projection, most)
        slot = draft.emptiest(new_machines[number % len(new_machines)])
        if place is None or slot is None:
            break
        operator = load.operators[place].name
        figures = _figures(projection, place)
        steps.append(
            DecisionStep(operator, slot, _reason(projection.congested[place], **figures), None, tuple(figures.items()))
        )
        draft.add(operator, slot)
        projection.give(place)
    if not steps:
        return NothingToDo(name, "no operator can use another instance: all have as many instances as tasks")
    reason = f"{len(steps)} new instances on {len(new_machines)} new machines, {wanted} a machine as on the others"
    if len(steps) < wanted * len(new_machines):
        reason += "; the rest is left out, because no operator can use another instance"
    return Decision(
        name, draft.placement(), tuple(steps), reason, added=tuple(new_machines), projected=projection.load()
    )


def _too_many(draft: Draft, machine: Machine, wanted: int) -> int:
    room = draft.room(machine.slots)
    return 0 if room is None else max(0, wanted - room)


def _target(load: Load, projection: Projection, most: Floats) -> int | None:
    """The highest ETP among the congested, or else among the sources; then the higher ratio, then topological order."""
    free = projection.instances < most
    places = np.flatnonzero(projection.congested & free)
    if not places.size:
        sources = np.array(load.sources, dtype=np.intp)
        places = sources[free[sources]]
    if not places.size:
        return None
    values = projection.values(places)
    places = places[values == values.max()]
    return int(places[projection.ratio[places].argmax()])


def _figures(projection: Projection, place: int) -> dict[str, float]:
    return {
        "input": float(projection.input[place]),
        "processing": float(projection.processing[place]),
        "ratio": float(projection.ratio[place]),
        "etp": projection.etp(place),
        "instances": float(projection.instances[place]),
    }


def _reason(congested: bool, ratio: float, etp: float, **_: float) -> str:
    if congested:
        return f"it is congested (input / processing = {ratio:.2f}), and none of these has a higher ETP ({etp:.1%})"
    return f"no congested operator can use it, so the source with the highest ETP ({etp:.1%}) gets it"
