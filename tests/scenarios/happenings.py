"""What can happen in a scenario: faults that begin and end, pauses, people who ask for something."""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import PenstockError
from penstock.simulator import Simulation

Happens = Callable[[Simulation], object]


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


def driver_limit(rate: float) -> Happens:
    return lambda simulation: simulation.topology.limit_driver(rate)


def person(action: str, *arguments: object) -> Happens:
    """Somebody asks for something."""

    def ask(simulation: Simulation) -> None:
        try:
            getattr(simulation.steering, action)(*arguments)
        except PenstockError as refusal:
            simulation.topology.happened("notice", f"refused: {refusal}", "person")

    return ask
