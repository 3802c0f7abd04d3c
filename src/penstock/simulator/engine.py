"""The engine of a fluid topology: machines take their time to come, operators stand still while they are placed anew,
and what is told to fail fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.cluster.model import Cluster, Placement
from penstock.errors import PenstockError
from penstock.plans.enacting import GiveUp, Placed
from penstock.plans.plan import MoveTask, SetInstances, diff
from penstock.simulator.clock import VirtualClock
from penstock.testing.recording import RecordingEngine
from penstock.topology.definition import TopologyDefinition

#: How often a step that waits looks whether it is to give up.
LOOK = 5.0


@dataclass(frozen=True)
class Seconds:
    """How long the steps of an operation take."""

    machine_comes: float = 30.0
    placing: float = 5.0
    machine_goes: float = 5.0
    cutting: float = 20.0

    def of(self, call: str) -> float:
        known = (
            ("add machine", self.machine_comes),
            ("place", self.placing),
            ("remove machine", self.machine_goes),
            ("cut", self.cutting),
        )
        return next((seconds for name, seconds in known if call.startswith(name)), 0.0)


@dataclass
class Faults:
    """What goes wrong now. A scenario changes it while the topology runs."""

    #: Steps that fail, by how their call begins ("add machine", "place"), and why.
    fails: dict[str, str] = field(default_factory=dict)
    #: Operators of which nothing is heard.
    silent: set[str] = field(default_factory=set)
    #: So many seconds late is everything that is measured.
    late: float = 0.0


class FluidEngine(RecordingEngine):
    """Takes virtual time for what it does. `still` is told which operators stand still."""

    def __init__(
        self,
        definition: TopologyDefinition,
        cluster: Cluster,
        placement: Placement | None,
        slot_instances: int,
        clock: VirtualClock,
    ) -> None:
        super().__init__(definition, cluster, placement, slot_instances)
        self.seconds = Seconds()
        self.faults = Faults()
        self.still: Callable[[frozenset[str]], None] = lambda _: None
        #: Called when a change of the placement is over.
        self.placed_for_good: Callable[[], None] = lambda: None
        self.meanwhile = self._take_time
        self._clock = clock
        self._touched: frozenset[str] = frozenset()
        self._give_up: GiveUp = lambda: ""

    def place(self, placement: Placement, give_up: GiveUp) -> Placed:
        changes = diff(self.planned, placement)
        self._touched = frozenset(one.operator for one in changes if isinstance(one, SetInstances | MoveTask))
        self._give_up = give_up
        try:
            placed = super().place(placement, give_up)
        finally:
            self._give_up = lambda: ""
        self.placed_for_good()
        return placed

    def restore(self, placement: Placement) -> None:
        super().restore(placement)
        self.placed_for_good()

    def _take_time(self, call: str) -> None:
        left = self.seconds.of(call)
        self.still(
            self._touched
            if call == "place"
            else frozenset(call.split()[1:2])
            if call.startswith("cut")
            else frozenset()
        )
        try:
            while left > 0 and not self._give_up():
                self._clock.sleep(min(left, LOOK))
                left -= LOOK
        finally:
            self.still(frozenset())
        for name, why in self.faults.fails.items():
            if call.startswith(name):
                raise PenstockError("CLUSTER_FAILED", f"{call}: {why}.", "Nothing was changed; try again.")
