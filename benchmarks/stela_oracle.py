"""The oracle: the best assignment by exhaustive search as a decision that can be carried out. And how well
throughput was predicted. No Spark."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from best import best

from penstock.cluster.model import Cluster, Machine, Placement
from penstock.strategies.decision import Decision, DecisionStep
from penstock.strategies.draft import Draft, most_instances
from penstock.strategies.fluid import Pipes, flow
from penstock.strategies.gain.rates import calibrated, counts, learned
from penstock.strategies.load import Load
from penstock.strategies.memory import EMPTY
from penstock.strategies.rules import Rules
from penstock.strategies.stela.scale_out import instances_a_machine

ORACLE = "oracle"


def service(load: Load, placement: Placement) -> Pipes:
    """The service rates measured in a run, calibrated as `gain` does it: by what saturated operators did."""
    return calibrated(load, placement, learned(load, placement, EMPTY))


def oracle(
    load: Load, placement: Placement, cluster: Cluster, new_machines: Sequence[Machine], rules: Rules
) -> Decision:
    """The best of all assignments of as many new instances as Stela would give, dealt to the new machines."""
    pipes, first = service(load, placement), counts(load, placement)
    new = instances_a_machine(placement, cluster) * len(new_machines)
    found = best(pipes, first, new, most_instances(load, placement))
    draft = Draft(load, placement, rules)
    steps: list[DecisionStep] = []
    for place, count in enumerate(found.instances):
        for _ in range(count - first[place]):
            slot = draft.emptiest(new_machines[len(steps) % len(new_machines)])
            if slot is None:
                raise RuntimeError("the new machines have no room for the best assignment")
            draft.add(load.operators[place].name, slot)
            steps.append(DecisionStep(load.operators[place].name, slot, "best of all assignments"))
    reason = f"the best of {found.tried} assignments"
    projected = flow(pipes, found.instances)
    placed = draft.placement(evenly=True)
    return Decision(ORACLE, placed, tuple(steps), reason, added=tuple(new_machines), projected=projected)


@dataclass(frozen=True)
class Predictions:
    """How well the throughput after so many operations was predicted."""

    operations: int
    #: Of |predicted - measured| / measured.
    median_error: float
    #: Share of the variance of what was measured that the predictions explain.
    r2: float


def judged(pairs: Sequence[tuple[float, float]]) -> Predictions:
    """Of predicted and measured throughputs. Infinite or missing errors are those of operations without throughput. Of
    fewer than two operations nothing is said."""
    if len(pairs) < 2:
        return Predictions(len(pairs), float("nan"), float("nan"))
    errors = [abs(predicted - measured) / measured if measured else float("inf") for predicted, measured in pairs]
    mean = statistics.mean(measured for _, measured in pairs)
    total = sum((measured - mean) ** 2 for _, measured in pairs)
    missed = sum((measured - predicted) ** 2 for predicted, measured in pairs)
    return Predictions(len(pairs), statistics.median(errors), 1 - missed / total if total else float("nan"))
