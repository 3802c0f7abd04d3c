"""The fluid topology is a `RunningTopology` too: in virtual time, which passes when somebody waits for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from running_topology_contract import OPERATORS, RunningTopologyContract, declared

from penstock.cluster.model import Cluster
from penstock.running import RunningTopology
from penstock.simulator import Demand, FluidTopology, Truth, VirtualClock


class Hurrying(FluidTopology):
    """Whoever asks again and again whether something has failed waits for something: time passes."""

    def check(self) -> None:
        self.clock.sleep(1.0)
        super().check()


@pytest.fixture(scope="module")
def running() -> Iterator[RunningTopology]:
    clock = VirtualClock()
    with clock.installed():
        truth = {name: Truth(1000.0) for name in OPERATORS}
        demand = {"numbers": Demand.constant(200.0)}
        yield Hurrying(declared(), Cluster.of(["a"], slots=2), truth, demand, clock=clock)


class TestTheFluid(RunningTopologyContract):
    def flow(self, running: RunningTopology) -> None:
        assert isinstance(running, FluidTopology)
        running.clock.sleep(running.settings.sample_seconds * 2)
