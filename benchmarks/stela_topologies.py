"""The topologies of benchmarks/stela.py: those of the papers' table I, with operators that wait or work, and variants
in which one operator alone is the bottleneck. No Spark."""

from __future__ import annotations

import math
import os
import runpy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from unittest.mock import patch
from zlib import crc32

from stela_work import Calibration

from penstock import Topology
from penstock.cluster.model import Cluster, Placement
from penstock.sources import RateSource
from penstock.strategies.mapping.round_robin import round_robin
from penstock.strategies.stela.scale_out import instances_a_machine
from penstock.topology.definition import Operator, Source, TopologyDefinition
from penstock.workloads import ServiceTime, StandIns, service_time

EXAMPLES = Path(__file__).parents[1] / "examples"
#: Sources give this much more than can be done.
MORE = 1.25
#: In a variant with one bottleneck all other operators are so many times as fast as published.
FASTER = 4
#: A machine of a lab has this many cores at most. All of them together leave one core of the computer to Spark.
MOST_CORES = 0.25
WAITING_CORES = 1.0
#: The operator that stays as slow as published where it alone is to be the bottleneck.
BOTTLENECKS = {
    "star": "center",
    "linear": "exclaim1",
    "diamond": "bolt_output_3",
    "page_load": "bolt_transform",
    "processing": "bolt_transform",
    "network_monitoring": "parseLines",
}


@dataclass(frozen=True)
class Experiment:
    """A scale-out by one machine."""

    topology: str
    #: Machines before, as in table I, and what the paper says of Stela over Storm's default.
    machines: int
    paper: float
    #: On machines that are really apart.
    is_lab: bool = False
    #: Operators work instead of waiting.
    works: bool = False
    #: One operator alone is the bottleneck.
    single: bool = False

    @property
    def bottleneck(self) -> str:
        return BOTTLENECKS[self.topology]

    @property
    def cores(self) -> float:
        """Of one machine of the lab. What waits needs next to none, and its rows must not lack what there is."""
        return machine_cores(self.machines + 1, os.cpu_count() or 2) if self.works else WAITING_CORES


TOPOLOGIES = {
    "star": Experiment("star", 4, 1.65),
    "linear": Experiment("linear", 6, 1.45),
    "diamond": Experiment("diamond", 6, 2.20),
    "page_load": Experiment("page_load", 7, 1.80),
    "processing": Experiment("processing", 8, 1.80),
    "network_monitoring": Experiment("network_monitoring", 8, 1.21),
}


def on_lab_machines(works: bool, single: bool) -> dict[str, Experiment]:
    ending = f"{'_single' if single else ''}{'' if works else '_waits'}"
    return {
        f"lab_{name}{ending}": replace(one, is_lab=True, works=works, single=single) for name, one in TOPOLOGIES.items()
    }


#: Operators that work, the same with one bottleneck, and both with operators that wait.
LAB_TOPOLOGIES = {
    name: one
    for works, single in ((True, False), (True, True), (False, True), (False, False))
    for name, one in on_lab_machines(works, single).items()
}


@dataclass(frozen=True)
class Built:
    """A topology with what its operators cost."""

    definition: TopologyDefinition
    #: By operator: seconds for a row, of waiting or of a core. Sources cost nothing.
    seconds: Mapping[str, float]
    #: By operator: the rows that it gets for each row of all sources together.
    rows: Mapping[str, float]

    def demand(self, operator: str) -> float:
        """Seconds that an operator needs for a row of the sources."""
        return self.seconds.get(operator, 0.0) * self.rows[operator]

    @property
    def demand_of_all(self) -> float:
        return sum(map(self.demand, self.rows))

    def paced(self, rate: float) -> Built:
        """All sources together give so many rows a second."""
        return replace(self, definition=faster(self.definition, rate / given_rate(self.definition)))


def machine_cores(machines: int, computer: int) -> float:
    """In hundredths; so many machines leave one core of the computer to Spark."""
    return math.floor(100 * min(MOST_CORES, max(computer - 1, 1) / machines)) / 100


def topology_of(name: str) -> TopologyDefinition:
    """As it is in the examples."""
    found = runpy.run_path(str(EXAMPLES / f"{name}.py"))["topology"]
    assert isinstance(found, Topology)
    return found.definition()


def built(topology: str, calibration: Calibration | None = None, bottleneck: str | None = None) -> Built:
    """The topology with operators that work where a calibration is given; all operators but the bottleneck are faster,
    where one is named."""
    made: dict[str, ServiceTime] = {}

    def function(stand_ins: StandIns, name: str, load: float = 10, selectivity: float = 1.0) -> ServiceTime:
        seconds = load * stand_ins.seconds_per_load / (FASTER if bottleneck not in (None, name) else 1)
        seed = crc32(name.encode())
        chosen = service_time if calibration is None else calibration.work_time
        made[name] = chosen(seconds, selectivity, seed)
        return made[name]

    # The one place where the examples make their operators' functions.
    with patch.object(StandIns, "function", function):
        definition = topology_of(topology)
    seconds = {name: one.seconds_per_row for name, one in made.items()}
    return Built(definition, seconds, _rows(definition, {name: one.selectivity for name, one in made.items()}))


def experiment_built(experiment: Experiment, calibration: Calibration | None = None) -> Built:
    """What is measured. Except where it is as published, sources give more than can be done after the operation."""
    found = built(
        experiment.topology,
        calibration if experiment.works else None,
        experiment.bottleneck if experiment.single else None,
    )
    if experiment.works:
        return found.paced(MORE * (experiment.machines + 1) * experiment.cores / found.demand_of_all)
    if experiment.single:
        instances = found.definition.operator(experiment.bottleneck).instances
        most = instances + new_instances(found.definition, experiment.machines)
        return found.paced(MORE * most / found.demand(experiment.bottleneck))
    return found


def new_instances(definition: TopologyDefinition, machines: int) -> int:
    """That one machine more brings, as Stela counts them (section II-B)."""
    cluster = Cluster.of([str(index) for index in range(machines)], 1)
    return instances_a_machine(round_robin(definition, cluster), cluster)


def growth(instances: int, new: int) -> float:
    """What one operator that alone is the bottleneck can gain: (k + n) / k."""
    return (instances + new) / instances


def growth_of_cores(instances: int, machines: int) -> float:
    """What it can gain where the cores of its machines are used up: it is on one machine more."""
    held = min(instances, machines)
    return (held + 1) / held


def rate_when_full(found: Built, placement: Placement, cores: float) -> float:
    """Rows a second of all sources at which the first machine has used up its cores."""
    used: dict[str, float] = {}
    for operator, slots in placement.instances.items():
        count = sum(slots.values())
        for slot, instances in slots.items():
            used[slot.machine] = used.get(slot.machine, 0.0) + found.demand(operator) * instances / count
    return cores / max(used.values())


def faster(definition: TopologyDefinition, factor: float) -> TopologyDefinition:
    """Sources give so many times as much."""
    return replace(definition, operators=tuple(_faster(one, factor) for one in definition.operators))


def _faster(operator: Operator, factor: float) -> Operator:
    if not isinstance(operator, Source) or not isinstance(operator.spec, RateSource):
        return operator
    schedule = operator.spec.schedule
    steps = tuple(replace(step, rate=step.rate * Fraction(factor).limit_denominator(10**6)) for step in schedule.steps)
    return replace(operator, spec=replace(operator.spec, schedule=replace(schedule, steps=steps)))


def given_rate(definition: TopologyDefinition) -> float:
    """Rows a second of all sources."""
    return sum(_rate(source) for source in definition.sources)


def _rate(source: Source) -> float:
    assert isinstance(source.spec, RateSource)
    return source.spec.schedule.rate_at(0.0)


def _rows(definition: TopologyDefinition, selectivities: Mapping[str, float]) -> dict[str, float]:
    """An operator with several outputs gives each of them the same share."""
    total = given_rate(definition)
    rows: dict[str, float] = {}
    for operator in definition.operators:
        if isinstance(operator, Source):
            rows[operator.name] = _rate(operator) / total
            continue
        rows[operator.name] = sum(
            rows[stream.producer]
            * selectivities.get(stream.producer, 1.0)
            / max(len(definition.operator(stream.producer).outputs), 1)
            for stream in definition.inputs_of(operator.name)
        )
    return rows
