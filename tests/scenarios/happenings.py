"""What can happen in a scenario: faults that begin and end, pauses, people who ask for something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from penstock.errors import PenstockError
from penstock.plans.plan import Plan, RemoveMachine, diff
from penstock.plans.repair import repair
from penstock.simulator import FluidTopology, Simulation

Happens = Callable[[Simulation], object]
#: Seconds from one look at the topology to the next.
LOOK = 5.0


def fails(call: str, why: str = "the fault of the scenario") -> Happens:
    """From now on, steps that begin like this fail."""
    return lambda simulation: simulation.topology.faults.fails.update({call: why})


def works_again(simulation: Simulation) -> None:
    simulation.topology.faults.fails.clear()


def silent(*operators: str) -> Happens:
    """From now on, nothing is heard of these operators."""
    return lambda simulation: simulation.topology.faults.silent.update(operators)


def late(seconds: float) -> Happens:
    """From now on, everything that is measured comes so many seconds late."""

    def begin(simulation: Simulation) -> None:
        simulation.topology.faults.late = seconds

    return begin


def heard_again(simulation: Simulation) -> None:
    simulation.topology.faults.silent.clear()
    simulation.topology.faults.late = 0.0


def paused(simulation: Simulation) -> None:
    simulation.steering.pause()


def resumed(simulation: Simulation) -> None:
    simulation.steering.resume()


@dataclass(frozen=True)
class Retuned:
    """Operators have other rates from now on."""

    rates: Mapping[str, float]

    def __call__(self, simulation: Simulation) -> None:
        truth = simulation.topology.truth
        simulation.topology.retune({name: replace(truth[name], rate=rate) for name, rate in self.rates.items()})


@dataclass(frozen=True)
class DriverLimit:
    """From now on, the driver hands out so many rows a second at most, at all sources together."""

    rate: float

    def __call__(self, simulation: Simulation) -> None:
        simulation.topology.limit_driver(self.rate)


@dataclass(frozen=True)
class Slowed:
    """From now on, all instances of an operator together execute at most so many rows a second whenever the topology
    is like this. Changes can be harmful by that, and no measurement before them tells."""

    operator: str
    most: float
    when: Callable[[FluidTopology], bool]

    def __call__(self, simulation: Simulation) -> None:
        topology, usual = simulation.topology, simulation.topology.truth[self.operator]

        def look() -> None:
            truth = replace(usual, most=self.most) if self.when(topology) else usual
            if topology.truth[self.operator] != truth:
                topology.retune({self.operator: truth})

        topology.clock.every(lambda: LOOK, look)


@dataclass(frozen=True)
class Restarted:
    """The driver ends, and another one begins after a minute."""

    #: The next driver's cluster has so many machines fewer; all instances are there.
    fewer: int = 0
    #: What the controller remembers is this by then; None is what it wrote itself.
    book: str | None = None

    def __call__(self, simulation: Simulation) -> None:
        simulation.restart()
        topology = simulation.topology
        if self.book is not None:
            topology.kept_book.write(self.book)
        gone = topology.cluster.names[len(topology.cluster.names) - self.fewer :]
        if gone:
            planned = topology.placements.planned
            left = repair(planned, topology.cluster.minus(gone).slots)
            topology.changes.carry_out(Plan((*diff(planned, left), *(RemoveMachine(name) for name in gone))))


def crowded(operator: str, instances: int) -> Callable[[FluidTopology], bool]:
    """Whether an operator has more instances than this: they get in each other's way."""
    return lambda topology: topology.placements.requested.total(operator) > instances


def cramped(machines: int) -> Callable[[FluidTopology], bool]:
    """Whether there are fewer machines than this: what they keep in memory no longer fits."""
    return lambda topology: len(topology.cluster.machines) < machines


@dataclass(frozen=True)
class Person:
    """Somebody asks for something."""

    action: str
    arguments: tuple[object, ...]

    def __call__(self, simulation: Simulation) -> None:
        try:
            getattr(simulation.steering, self.action)(*self.arguments)
        except PenstockError as refusal:
            simulation.topology.happened("notice", f"refused: {refusal}", "person")


def person(action: str, *arguments: object) -> Person:
    return Person(action, arguments)
