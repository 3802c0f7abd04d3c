"""A running topology without Spark: it carries out every change at once, and a test says which batches it publishes.

topology = RecordingTopology(declared.definition(), Cluster.of(["a", "b"], slots=2))
topology.publish("sink", rows=100)
topology.changes.carry_out(plan)
assert topology.engine.calls == ["place"]

Other topologies in memory are built on it (`penstock.simulator`). Such a class may override every public method, and
has these for itself: it hands in an `engine` of its own, tells what was done by `take`, is told of other placements by
`placed_anew`, reads `monitor` for what was measured, and `draining` and `stopped` for how far the end has come.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.clock import run_time, shown
from penstock.cluster.model import Cluster, ComingMachines, Machine, Placement, Slot
from penstock.errors import PenstockError
from penstock.monitor.decisions import DecisionLog
from penstock.monitor.events import Event, EventKind, EventLog
from penstock.monitor.history import HistoryQuery, SeriesHistory
from penstock.monitor.kept_book import KeptBook
from penstock.monitor.kept_state import KeptState, KeptStates, left_inside
from penstock.monitor.monitor import Monitor
from penstock.monitor.publications import Publications
from penstock.monitor.report import BatchReport
from penstock.monitor.sampling import DriverKnowledge, streams_of
from penstock.monitor.snapshot import Snapshot
from penstock.monitor.statistics import Statistics
from penstock.plans.repair import repair
from penstock.plans.repartition import CuttingEnactor
from penstock.running.placements import BundlePlace, Observed, Places, TaskPlace
from penstock.settings import Settings
from penstock.testing.recording import RecordingEngine
from penstock.topology.definition import Keyed, Sink, TopologyDefinition


@dataclass(frozen=True)
class NoState:
    """The location of a state that is never written."""

    path: Path = Path("/nowhere")
    temporary: bool = True


class RecordingTopology:
    """Implements `penstock.running.RunningTopology`. Any thread may call it, as any thread may call a real one."""

    def __init__(
        self,
        definition: TopologyDefinition,
        cluster: Cluster,
        settings: Settings | None = None,
        placement: Placement | None = None,
        upcoming: Sequence[Machine] = (),
        engine: RecordingEngine | None = None,
    ) -> None:
        """`upcoming` are the machines that can be added, the next one first. Without an engine it makes its own."""
        self.settings = settings or Settings()
        #: What plans are carried out on: its calls can be read, and it fails where it is told.
        self.engine = engine or RecordingEngine(definition, cluster, placement, self.settings.slot_instances)
        self.changes = RecordedChanges(self.engine, run_time)
        self.placements = RecordedPlacements(self)
        self.state = NoState()
        self.started_at = run_time()
        self.unplaced_because = ""
        #: By keyed operator: why its rows are shuffled.
        self.shuffles = {one.name: "nothing runs" for one in definition.operators if isinstance(one, Keyed)}
        self.paused = False
        #: Whether all sources have ended and all rows have reached the sinks; `finish` sets it.
        self.finished = False
        self.how_it_ended = ""
        self.unwritten_because = ""
        #: Slots that cannot take rows now.
        self.lost: set[Slot] = set()
        #: Operator -> rows that wait in front of it.
        self.waiting_rows: dict[str, int] = {}
        #: Operators that wait for those behind them.
        self.held_back: set[str] = set()
        #: What `check` raises.
        self.failure: PenstockError | None = None
        self._upcoming = tuple(upcoming)
        self._listeners: list[Callable[[BatchReport], None]] = []
        #: What keyed operators keep inside.
        self.kept_states = KeptStates()
        self.publications = Publications()
        #: What is measured; `take` feeds it.
        self.monitor = Monitor(definition, self.settings, self.started_at)
        self.engine.placed_anew = self.placed_anew
        self._ending = threading.Condition()
        #: Whether the sources are to emit nothing more.
        self.draining = False
        #: Whether all rows had reached the sinks when the topology stopped; None before that.
        self.stopped: bool | None = None
        self.happened(EventKind.STARTED, f"{len(definition.operators)} operators run", definition.name)

    # What a test says

    def publish(self, operator: str, rows: int, at: float | None = None, seconds: float = 0.5) -> BatchReport:
        """Publish a batch of an operator that read this many rows, emitted as many, and ended `at` this time."""
        finished = run_time() if at is None else at
        rows_out = {stream.name: rows for stream in self.definition.streams if stream.producer == operator}
        batch = self.statistics.batches(operator)
        report = BatchReport(operator, batch, finished - seconds, finished, rows, rows_out, ())
        sink = isinstance(self.definition.operator(operator), Sink)
        self.take(report, DriverKnowledge(streams_of(self.definition, operator), is_sink=sink))
        return report

    def take(self, report: BatchReport, known: DriverKnowledge) -> None:
        """A batch was published: it is counted, and whoever listens hears of it."""
        self.monitor.published(report, known)
        self.publications.note(report)
        for listener in self._listeners:
            listener(report)

    def finish(self) -> None:
        """All sources have ended, and all rows have reached the sinks."""
        with self._ending:
            self.finished = True
            self.waiting_rows.clear()
            self._ending.notify_all()

    def fail(self, failure: PenstockError) -> None:
        """An operator has failed."""
        with self._ending:
            self.failure = failure
            self._ending.notify_all()

    # What runs, and where

    @property
    def definition(self) -> TopologyDefinition:
        return self.engine.definition

    @property
    def cluster(self) -> Cluster:
        return self.engine.cluster

    @property
    def usable_slots(self) -> frozenset[Slot]:
        return frozenset(self.cluster.slots) - self.lost

    def coming(self) -> ComingMachines:
        """The machines that could come now."""
        return ComingMachines.only(machine for machine in self._upcoming if machine.name not in self.cluster.names)

    def upcoming(self, count: int) -> tuple[Machine, ...]:
        return self.coming().first(count)

    # What is measured

    def placed_anew(self) -> None:
        """The engine has another placement, or other tasks: what was measured before says nothing about it."""
        now = run_time()
        self.monitor.redefine(self.definition)
        self.monitor.restart(now)

    @property
    def statistics(self) -> Statistics:
        return self.monitor.statistics

    def snapshot(self) -> Snapshot:
        found = self.monitor.snapshot(run_time(), self.placements.requested, self.cluster)
        return replace(found, coming=self.coming())

    def history(self, query: HistoryQuery) -> list[SeriesHistory] | None:
        return None

    def backlog(self, operator: str) -> int:
        return self.waiting_rows.get(operator, 0)

    def throttled(self, operator: str) -> bool:
        return operator in self.held_back

    def kept(self, operator: str) -> tuple[KeptState, ...]:
        return self.kept_states.of(operator)

    def left_inside(self) -> dict[str, int]:
        return left_inside({one.name: self.kept(one.name) for one in self.definition.operators})

    def unknown_inside(self) -> list[str]:
        return []

    def listen(self, listener: Callable[[BatchReport], None]) -> None:
        self._listeners.append(listener)

    @property
    def events(self) -> EventLog:
        return self.monitor.events

    @property
    def decisions(self) -> DecisionLog:
        return self.monitor.decisions

    @property
    def kept_book(self) -> KeptBook:
        return self.monitor.kept_book

    def happened(
        self, kind: str, reason: str, subject: str = "", cause: str = "", fields: Mapping[str, Any] | None = None
    ) -> Event:
        return self.events.record(Event(shown(run_time()), EventKind(kind), subject, reason, cause, fields or {}))

    # Its life

    def pause(self, paused: bool = True) -> bool:
        changes, self.paused = paused != self.paused, paused
        return changes

    def resume(self) -> bool:
        return self.pause(False)

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def wait(self, seconds: float | None = None) -> bool:
        with self._ending:
            self._ending.wait_for(lambda: self.finished or self.failure is not None, seconds)
        self.check()
        return self.finished

    def expect_end(self) -> None:
        """It waits for no database."""

    def begin_drain(self) -> None:
        self.draining = True

    @property
    def drained(self) -> bool:
        return self.draining and not any(self.waiting_rows.values())

    def stop(self, drain: bool = True) -> bool:
        with self._ending:
            if self.stopped is None:
                if drain:
                    self.waiting_rows.clear()
                self.stopped = not any(self.waiting_rows.values())
                arrived = "everything had reached the sinks"
                self.how_it_ended = arrived if self.stopped else "rows were still on their way, and are kept"
                fields = {"left_inside": self.left_inside()}
                self.happened(EventKind.STOPPED, self.how_it_ended, self.definition.name, fields=fields)
            return self.stopped


class RecordedChanges(CuttingEnactor):
    """Implements `penstock.running.Changes` on a recording engine."""

    def cheapest_tasks(self, operator: str, origin: Slot, slot: Slot, count: int) -> list[int]:
        """All tasks cost the same."""
        held = enumerate(self.planned.tasks.get(operator, ()))
        return [task for task, place in held if place == origin][:count]


class RecordedPlacements:
    """Implements `penstock.running.Placements`: everything that is published ran where it was to run."""

    def __init__(self, topology: RecordingTopology) -> None:
        self._topology = topology

    @property
    def planned(self) -> Placement:
        return self._topology.engine.planned

    @property
    def requested(self) -> Placement:
        return repair(self.planned, self._topology.usable_slots)

    def observed(self, operator: str) -> Observed | None:
        newest, requested = self._topology.publications.newest(operator), self.requested
        if newest is None:
            return None
        tasks = dict(enumerate(requested.tasks.get(operator, ())))
        return Observed(newest.batch, newest.started, dict(requested.of(operator)), tasks)

    def places(self, operator: str) -> Places:
        """Without Spark no executor stands behind a slot."""
        planned = self.planned
        bundles = tuple(BundlePlace(one.name, count, None, ()) for one, count in sorted(planned.of(operator).items()))
        tasks = enumerate(planned.tasks.get(operator, ()))
        return Places(bundles, tuple(TaskPlace(task, slot.name, None, (), None, None) for task, slot in tasks), {})
