"""A scenario: what a cluster is like, what is offered to a topology over time, what goes wrong, and what must hold."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from happenings import DriverLimit, Person, Retuned

from penstock import Settings, Topology, sinks, sources
from penstock.autoscaler.goals import Goal
from penstock.autoscaler.guards import Guard
from penstock.cluster.model import Cluster
from penstock.simulator import Demand, FluidTopology, Seconds, Simulation, Trace, Truth, VirtualClock
from penstock.strategies.mapping.chained import Chained
from penstock.strategies.mapping.protocol import NoRoom, Wanted
from penstock.topology.definition import TopologyDefinition

#: What happens at a time, in hours; it may change anything.
Happening = tuple[float, Callable[[Simulation], object]]
#: What must hold: an empty text, or what does not.
Check = Callable[["Scenario", Trace], str]
SCHEMA = "id long, value double"
HOUR = 3600.0
#: In front of an operator wait at most as many rows as it executes in a minute or less.
SETTINGS: Mapping[str, object] = {"backlog_rows": 20_000}


@dataclass(frozen=True)
class Op:
    """An operator: rows a second of one instance, which works or waits. With tasks it is keyed."""

    rate: float
    works: bool = True
    emits: float = 1.0
    tasks: int = 0
    instances: int = 1
    #: Declared: it never has fewer instances.
    least: int = 1
    weight: float = 1.0
    most: float = math.inf

    @property
    def truth(self) -> Truth:
        return Truth(self.rate, self.works, self.emits, most=self.most)


#: `work` does nearly all there is to do: 1,000 rows a second need 2.74 cores.
LINE = {"rows": Op(50_000), "parse": Op(5_000), "work": Op(400), "out": Op(50_000)}


@dataclass(frozen=True)
class Shortfall:
    """What is known not to hold, and why: parts of what the checks say. All other checks must hold."""

    why: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What came of a scenario."""

    #: What does not hold, as was to be expected.
    known: tuple[str, ...]
    #: What does not hold, and a known shortfall that holds.
    surprises: tuple[str, ...]

    def __str__(self) -> str:
        known = f"known shortfall: {'; '.join(self.known)}" if self.known else "holds"
        return f"FAILS: {'; '.join(self.surprises)}" if self.surprises else known


@dataclass(frozen=True)
class Scenario:
    name: str
    demand: Demand
    #: None if the strategy needs none, or if nothing scales.
    goal: Goal | None
    hours: float
    holds: tuple[Check, ...]
    #: "a > b > c; b > d": who reads from whom.
    graph: str = "rows > parse > work > out"
    operators: Mapping[str, Op] = field(default_factory=lambda: LINE)
    machines: int = 1
    slots: int = 1
    cores: int = 2
    machines_most: int = 12
    #: Whether operators that are placed alike run as one.
    chaining: str = "off"
    settings: Mapping[str, object] = field(default_factory=dict)
    seconds: Seconds = field(default_factory=Seconds)
    happens: tuple[Happening, ...] = ()
    #: Guards of the user's own.
    guards: tuple[Guard, ...] = ()
    #: What is known not to hold; None if everything does.
    shortfall: Shortfall | None = None

    @property
    def strategy(self) -> str:
        """Empty if the scenario names none."""
        return str(self.settings.get("strategy", ""))

    @property
    def title(self) -> str:
        return f"{self.name}-{self.strategy}" if self.strategy else self.name

    @property
    def window(self) -> float:
        """The seconds of the window that decisions are made on."""
        settings = self._settings
        return settings.window_samples * settings.sample_seconds

    @cached_property
    def _settings(self) -> Settings:
        return Settings(**{**SETTINGS, "chaining": self.chaining, **self.settings})  # type: ignore[arg-type]

    def under(self, strategy: str) -> Scenario:
        """The same with this strategy."""
        return replace(self, settings={**self.settings, "strategy": strategy})

    @cached_property
    def edges(self) -> tuple[tuple[str, str], ...]:
        found = []
        for path in self.graph.split(";"):
            names = [name.strip() for name in path.split(">")]
            found += list(itertools.pairwise(names))
        return tuple(dict.fromkeys(found))

    def definition(self) -> TopologyDefinition:
        topology = Topology("scenario")
        made: dict[str, object] = {}
        readers = {producer for producer, _ in self.edges}
        for name, op in self.operators.items():
            inputs = [made[producer] for producer, consumer in self.edges if consumer == name]
            if not inputs:
                made[name] = topology.source(name, sources.rate(1, sources.numbers()), instances=op.instances)
            elif name not in readers:
                topology.sink(name, sinks.noop(), inputs=inputs, instances=op.instances, weight=op.weight)
            elif op.tasks:
                made[name] = topology.keyed(
                    name, _count, inputs=inputs, key="id", schema=SCHEMA, tasks=op.tasks, instances=op.instances
                )
            else:
                made[name] = topology.map(
                    name, _same, inputs=inputs, schema=SCHEMA, instances=op.instances, min_instances=op.least
                )
        return topology.definition()

    def run(self) -> Trace:
        """Let it happen, in virtual time."""
        clock, definition = VirtualClock(), self.definition()
        cluster = Cluster.of([f"m{n + 1}" for n in range(self.machines)], self.slots, self.cores)
        settings = self._settings
        wanted = Wanted.at_start(definition, cluster, settings.slot_instances, settings.chaining == "on")
        placement = Chained().place(wanted)
        assert not isinstance(placement, NoRoom)
        with clock.installed():
            topology = FluidTopology(
                definition,
                cluster,
                {name: op.truth for name, op in self.operators.items()},
                {source.name: self.demand for source in definition.sources},
                clock=clock,
                settings=self._settings,
                placement=placement,
                machines_most=self.machines_most,
            )
            topology.engine.seconds = self.seconds
            simulation = Simulation(topology, self.goal, guards=self.guards)
            try:
                for hours, happens in self.happens:
                    clock.later(hours * HOUR, lambda happens=happens: _happen(simulation, happens), "")
                return simulation.run(self.hours * HOUR)
            finally:
                simulation.close()

    def judge(self, trace: Trace) -> Outcome:
        """Compare what happened with what must hold."""
        problems = [problem for check in self.holds if (problem := check(self, trace))]
        if self.shortfall is None:
            return Outcome((), tuple(problems))
        parts = self.shortfall.problems
        known = [problem for problem in problems if any(part in problem for part in parts)]
        others = [problem for problem in problems if problem not in known]
        for part in parts:
            if not any(part in problem for problem in known):
                others.append(f'"{part}" is a known shortfall, and it holds: take it out of KNOWN')
        return Outcome(tuple(known), tuple(others))

    # What is true, which no controller sees

    @cached_property
    def row(self) -> Mapping[str, float]:
        """By operator: rows that it executes for a row of each source."""
        found: dict[str, float] = {}
        for name in self.operators:
            producers = [producer for producer, consumer in self.edges if consumer == name]
            found[name] = sum(found[one] * self.operators[one].emits for one in producers) if producers else 1.0
        return found

    @property
    def sinks(self) -> list[str]:
        return [name for name in self.operators if name not in {producer for producer, _ in self.edges}]

    @cached_property
    def changes(self) -> list[float]:
        """When the load or something else changes, in seconds."""
        return sorted({*self.demand.changes(self.hours), *(hours * HOUR for hours, _ in self.happens)})

    @cached_property
    def loads(self) -> list[float]:
        """When what is offered or what is true changes. That metrics are missing, that sources are paused or that
        machines do not come is not another load."""
        true = (hours * HOUR for hours, happens in self.happens if isinstance(happens, Retuned | DriverLimit))
        return sorted({*self.demand.changes(self.hours), *true})

    @cached_property
    def asked_by_people(self) -> frozenset[float]:
        """When somebody asks for something, in seconds."""
        return frozenset(hours * HOUR for hours, happens in self.happens if isinstance(happens, Person))

    @cached_property
    def _for_a_row(self) -> float:
        """Throughput for a row of every source."""
        return sum(self.operators[sink].weight * self.row[sink] for sink in self.sinks)

    @property
    def sources(self) -> int:
        return len(set(self.operators) - {consumer for _, consumer in self.edges})

    def required(self, offered: float) -> float:
        """The throughput that is to be: the goal, or all that there is, if every source is offered so much."""
        return min(offered * self._for_a_row, (self.goal.throughput if self.goal else None) or math.inf)

    def fewest(self, offered: float, at: float = 0.0) -> int:
        """The fewest machines whose cores are enough for the required throughput, or for as much of it as the driver,
        a service or the tasks of keyed operators let through, by what is true then."""
        rates = {name: op.rate for name, op in self.operators.items()}
        tasks = {name: op.tasks for name, op in self.operators.items()}
        driver = math.inf
        for hours, happens in self.happens:
            if hours * HOUR > at:
                continue
            if isinstance(happens, Retuned):
                rates |= happens.rates
            elif isinstance(happens, DriverLimit):
                driver = happens.rate
            elif isinstance(happens, Person) and happens.action == "repartition":
                operator, number = happens.arguments
                tasks[str(operator)] = int(str(number))
        rows = min(self.required(offered) / self._for_a_row, driver / self.sources)
        for name, op in self.operators.items():
            most = min(op.most, rates[name] * (tasks[name] or math.inf))
            rows = min(rows, most / self.row[name])
        cores = sum(rows * self.row[name] / rates[name] for name, op in self.operators.items() if op.works)
        return max(math.ceil(cores / (self.slots * self.cores) - 1e-9), 1)


def _same(batch):
    return batch


def _count(frame):
    return frame


def _happen(simulation: Simulation, happens: Callable[[Simulation], object]) -> None:
    simulation.topology.disturb()
    happens(simulation)
