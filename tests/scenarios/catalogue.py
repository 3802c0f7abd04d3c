"""All scenarios."""

from __future__ import annotations

from checks import calm, few_machines, met
from scenario import Scenario

from penstock.autoscaler.goals import Goal
from penstock.simulator import Demand

SCENARIOS = [
    Scenario(
        "step-up-and-down",
        Demand.of((1, 300), (2, 1000), (2, 300)),
        Goal(throughput=1000),
        5,
        (calm, met(), few_machines()),
        fails="issue point 6: the backlog that drains makes it add a machine",
    ),
]
