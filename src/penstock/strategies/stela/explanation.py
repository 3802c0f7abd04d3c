"""The load as Stela sees it, which explains its decisions: as values, as JSON and in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.cluster.model import Cluster, Placement
from penstock.strategies.decision import finite
from penstock.strategies.load import Load
from penstock.strategies.rules import PAPER, Rules
from penstock.strategies.stela.congestion import ratios
from penstock.strategies.stela.etp import etp, reachable_sinks
from penstock.strategies.stela.scale_in import etp_sum


@dataclass(frozen=True)
class OperatorExplanation:
    name: str
    instances: int
    input: float
    processing: float
    ratio: float
    congested: bool
    #: The sinks that it reaches over at least one path of uncongested operators.
    sinks: tuple[str, ...]
    etp: float

    def __str__(self) -> str:
        state = "congested" if self.congested else "not congested"
        reach = f"reaches {', '.join(self.sinks)}" if self.sinks else "reaches no sink on an uncongested path"
        return (
            f"{self.name}: input {self.input:,.0f}/s, processing {self.processing:,.0f}/s, ratio {self.ratio:.2f}, "
            f"{state}; {self.instances} instances; {reach}; ETP {self.etp:.1%}"
        )


@dataclass(frozen=True)
class MachineExplanation:
    name: str
    instances: int
    etp_sum: float

    def __str__(self) -> str:
        return f"{self.name}: {self.instances} instances, ETPSum {self.etp_sum:.3f}"


@dataclass(frozen=True)
class Explanation:
    """All that Stela decides on: operators in topological order, machines in the order in which it would remove
    them."""

    alpha: float
    throughput: float
    operators: tuple[OperatorExplanation, ...]
    machines: tuple[MachineExplanation, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "alpha": self.alpha,
            "throughput": self.throughput,
            "operators": [
                {**vars(one), "sinks": list(one.sinks), "ratio": finite(one.ratio)} for one in self.operators
            ],
            "machines": [vars(one) for one in self.machines],
        }

    def __str__(self) -> str:
        head = f"throughput {self.throughput:,.0f}/s; congested above a ratio of {self.alpha:g}"
        return "\n".join([head, "", *map(str, self.operators), "", *map(str, self.machines)])


def explained(load: Load, placement: Placement, cluster: Cluster, rules: Rules = PAPER) -> Explanation:
    ratio = ratios(load)
    congested = [value > rules.alpha for value in ratio]
    shares, sets = etp(load, congested), reachable_sinks(load, congested)
    operators = tuple(
        OperatorExplanation(
            operator.name,
            placement.total(operator.name),
            load.inputs[place],
            operator.processing,
            ratio[place],
            congested[place],
            tuple(load.operators[sink].name for bit, sink in enumerate(load.sinks) if sets[place] >> bit & 1),
            shares[place],
        )
        for place, operator in enumerate(load.operators)
    )
    by_name = {operator.name: operator.etp for operator in operators}
    machines = tuple(
        MachineExplanation(
            machine.name,
            sum(slots.get(slot, 0) for slots in placement.instances.values() for slot in machine.slots),
            etp_sum(machine, placement.instances, by_name),
        )
        for machine in cluster.machines
    )
    machines = tuple(sorted(machines, key=lambda machine: (machine.etp_sum, machine.instances)))
    return Explanation(rules.alpha, load.throughput, operators, machines)
