"""A topology in virtual time: a fluid cluster behind `penstock.running.RunningTopology`, for scenarios that take days.

    clock = VirtualClock()
    with clock.installed():
        topology = FluidTopology(definition, Cluster.of(["m1"], slots=2), truth, clock=clock)
        clock.sleep(3600)

Rows are water: nothing is executed, and a month takes seconds. docs/design/0026 says what is modelled and what is not.
"""

from penstock.simulator.clock import VirtualClock
from penstock.simulator.demand import Demand
from penstock.simulator.engine import Faults, Seconds
from penstock.simulator.simulation import Done, Moment, Simulation, Trace
from penstock.simulator.topology import FluidTopology
from penstock.simulator.truth import Truth

__all__ = [
    "Demand",
    "Done",
    "Faults",
    "FluidTopology",
    "Moment",
    "Seconds",
    "Simulation",
    "Trace",
    "Truth",
    "VirtualClock",
]
