"""An engine that only writes down what it is asked to do.

engine = RecordingEngine(topology.definition(), Cluster.of(["a", "b"], slots=2))
Enactor(engine).carry_out(plan)
assert engine.calls == ["add machine c", "place", ...]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.clock import run_time
from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.errors import PenstockError
from penstock.plans.enacting import GiveUp, Interruption, Move, Placed
from penstock.plans.migration import Migration
from penstock.plans.plan import MoveTask, SetInstances, diff
from penstock.plans.repartition import Repartition, check_repartition, with_tasks
from penstock.strategies.mapping.round_robin import round_robin
from penstock.strategies.mapping.tasks import deal_tasks
from penstock.topology.definition import TopologyDefinition


class RecordingEngine:
    """An engine without Spark: it does at once what it is asked, writes down every call, and fails where it is told."""

    def __init__(
        self,
        definition: TopologyDefinition,
        cluster: Cluster,
        placement: Placement | None = None,
        slot_instances: int = 128,
    ) -> None:
        self.definition = definition
        self.cluster = cluster
        self.planned = placement or round_robin(definition, cluster)
        self.slot_instances = slot_instances
        #: Every call that changes something, in order, in words.
        self.calls: list[str] = []
        #: What is noted as being changed.
        self.noted = ""
        #: Call -> the error to raise instead of doing it.
        self.fails: dict[str, PenstockError] = {}
        #: Operator -> the bytes of each task's state; 0 where a test says nothing.
        self.state_bytes: dict[str, list[int]] = {}
        #: Machines that come under another name than planned.
        self.comes_as: dict[str, Machine] = {}
        #: Called in the middle of every call.
        self.meanwhile: Callable[[str], None] = lambda call: None
        #: Called after every change of the placement or of the number of tasks.
        self.placed_anew: Callable[[], None] = lambda: None
        self._came: dict[str, Mapping[Slot, Slot]] = {}

    def slots_of(self, machine: Machine) -> Mapping[Slot, Slot] | None:
        return self._came.get(machine.name)

    def add_machine(self, machine: Machine, give_up: GiveUp) -> Mapping[Slot, Slot]:
        self._call(f"add machine {machine.name}", give_up)
        real = self.comes_as.get(machine.name, machine)
        self.cluster = self.cluster.plus([real])
        came = self._came[machine.name] = dict(zip(machine.slots, real.slots, strict=True))
        return came

    def remove_machine(self, name: str) -> None:
        self._call(f"remove machine {name}")
        real = {slot.machine for slot in self._came.get(name, {}).values()} or {name}
        self.cluster = self.cluster.minus(real)
        self._came = {
            planned: came
            for planned, came in self._came.items()
            if real.isdisjoint({slot.machine for slot in came.values()})
        }

    def place(self, placement: Placement, give_up: GiveUp) -> Placed:
        asked_at = run_time()
        self._call("place", give_up)
        before, self.planned = self.planned, placement
        self.placed_anew()
        changes = diff(before, placement)
        touched = sorted({action.operator for action in changes if isinstance(action, SetInstances | MoveTask)})
        interruptions = {name: Interruption(name, 0.0, None) for name in touched}
        moves = tuple(
            Move(
                action.operator,
                action.task,
                before.tasks[action.operator][action.task],
                action.slot,
                self._sizes(action.operator)[action.task],
                None,
                interruptions[action.operator],
            )
            for action in changes
            if isinstance(action, MoveTask)
        )
        moving = dict.fromkeys(move.operator for move in moves)
        migrations = tuple(self._migration(name, moves, asked_at) for name in moving)
        return Placed(moves, tuple(interruptions.values()), migrations)

    def _sizes(self, operator: str) -> list[int]:
        return self.state_bytes.get(operator) or [0] * len(self.planned.tasks[operator])

    def _migration(self, operator: str, moves: tuple[Move, ...], asked_at: float) -> Migration:
        """What was moved. No batch runs here, so no phase is measured."""
        own, sizes = [move for move in moves if move.operator == operator], self._sizes(operator)
        moved = sum(move.state_bytes for move in own)
        return Migration(operator, tuple(move.task for move in own), len(sizes), moved, sum(sizes), asked_at)

    def dealt_anew(self, operator: str, tasks: int) -> Placement:
        planned = self.planned
        return Placement(planned.instances, {**planned.tasks, operator: deal_tasks(tasks, planned.of(operator))})

    def cut_anew(self, operator: str, tasks: int) -> Repartition:
        was = check_repartition(self.definition, operator, tasks, self.planned.total(operator)).tasks
        self._call(f"cut {operator} into {tasks} tasks")
        self.planned = self.dealt_anew(operator, tasks)
        self.definition = with_tasks(self.definition, {operator: tasks})
        self.placed_anew()
        return Repartition(operator, was, tasks, 0.0, 0.0)

    def restore(self, placement: Placement) -> None:
        self._call("restore")
        self.planned = placement
        self.placed_anew()

    def note(self, change: str) -> None:
        """Not among the calls. It fails as "note", or as "clear the note" when it is empty."""
        call = "note" if change else "clear the note"
        if call in self.fails:
            raise self.fails[call]
        self.noted = change

    def _call(self, call: str, give_up: GiveUp = lambda: "") -> None:
        self.calls.append(call)
        self.meanwhile(call)
        if call in self.fails:
            raise self.fails[call]
        if why := give_up():
            raise PenstockError("CANCELLED", f"{why}.", "The topology runs again as it did before.")
