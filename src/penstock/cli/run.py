"""`penstock run`: start a topology, show it while it runs, stop it in order, and print a summary."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.api.discovery import Entry
from penstock.api.neighbourhood import leases_of, neighbours_of
from penstock.api.starting import started
from penstock.api.steered_topology import found_from_the_start, steered
from penstock.api.steering import Steering
from penstock.autoscaler.goals import Goal
from penstock.autoscaler.guards import Guard
from penstock.cli.ending import NOTHING_READ
from penstock.cli.loader import Loaded
from penstock.cli.run_display import display_of, waiting_rows
from penstock.cli.screen import Screen
from penstock.cli.stopping import INTERRUPTED, StoppedEarly, StopRequests
from penstock.cli.summary import Summary, nothing_ran, summarize
from penstock.cli.summary_page import end
from penstock.clock import run_time
from penstock.cluster.choice import ClusterChoice
from penstock.errors import PenstockError
from penstock.running import RunningTopology
from penstock.settings import Settings
from penstock.topology.definition import TopologyDefinition

#: Four looks a second: quick enough for people, and cheap.
TICK = 0.25
#: KeyboardInterrupt comes while PySpark starts: PySpark handles Ctrl-C itself for a moment.
_STOPPED_EARLY = (StoppedEarly, KeyboardInterrupt)


@dataclass(frozen=True)
class Order:
    """What a user asked for."""

    loaded: Loaded
    definition: TopologyDefinition
    choice: ClusterChoice
    settings: Settings
    seconds: float | None = None
    state: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    #: What the topology is to reach by scaling itself.
    goal: Goal | None = None
    #: Operators that begin anew: Penstock deletes what the state folder holds of them.
    forget: tuple[str, ...] = ()
    #: Guards of the user's own, for a topology that scales by itself.
    guards: tuple[Guard, ...] = ()
    #: Whether the controller forgets what it decided before.
    forget_decisions: bool = False


def run_topology(order: Order, screen: Screen) -> tuple[Summary, int]:
    """The summary and the exit code; raises the named error of an operator that fails."""
    order.loaded.ship_by_value()
    name, kind = order.definition.name, order.choice.kind
    with screen, StopRequests().listening() as stops:
        try:
            with found_from_the_start(name, order.settings, own_process=True) as entry:
                return _launched(order, screen, stops, entry)
        except _STOPPED_EARLY:
            screen.tell("the topology was stopped before any row was read")
            return nothing_ran(name, kind), 0


def _launched(order: Order, screen: Screen, stops: StopRequests, entry: Entry | None) -> tuple[Summary, int]:
    stops.when_early(lambda: _tell_of_the_end(entry, NOTHING_READ))
    try:
        with (
            leases_of(order.choice, order.definition.name, order.settings) as leases,
            started(
                order.definition,
                order.choice,
                order.settings,
                order.state,
                python_path=[order.loaded.folder],
                spark_conf=order.spark_conf,
                tell=screen.tell,
                forget=order.forget,
            ) as run,
        ):
            stops.started()
            with (
                neighbours_of(run, leases) as neighbours,
                steered(
                    run,
                    order.choice.kind,
                    stops.ask,
                    order.goal,
                    entry,
                    neighbours,
                    order.guards,
                    order.forget_decisions,
                ) as steering,
            ):
                summary, code = Watch(run, order, screen, stops, steering).until_the_end()
            _tell_of_the_end(entry, end(summary))
            run.stop(drain=False)  # the watch has drained it, or the user does not want that
            if run.unwritten_because:
                summary = replace(summary, unwritten_because=run.unwritten_because)
                _tell_of_the_end(entry, end(summary))
            return summary, code
    except _STOPPED_EARLY:
        _tell_of_the_end(entry, NOTHING_READ)
        raise
    except PenstockError as error:
        _tell_of_the_end(entry, f"It failed: {error}")
        raise


def _tell_of_the_end(entry: Entry | None, how: str) -> None:
    """Tell processes that wait for the end of the topology how it ended."""
    if entry is not None:
        entry.ending(how)


class Watch:
    """Watches a topology from its first row to its last."""

    def __init__(
        self, run: RunningTopology, order: Order, screen: Screen, stops: StopRequests, steering: Steering
    ) -> None:
        self.run = run
        self.order = order
        self.screen = screen
        self.stops = stops
        self.steering = steering

    def until_the_end(self) -> tuple[Summary, int]:
        try:
            finished = self._until_stopped()
        finally:
            self.run.expect_end()  # an operation that is rolled back may wait for the catalog, also after a failure
        asked = self.stops.count
        self.steering.close()
        drained = finished or self._drain(asked)
        code = INTERRUPTED if not drained and self.stops.count > asked else 0
        return summarize(self.run, self.order.choice.kind, drained), code

    def _until_stopped(self) -> bool:
        """True if the topology came to its own end; False if its time is over or a stop was asked for."""
        run, seconds = self.run, self.order.seconds
        while seconds is None or run_time() < run.started_at + seconds:
            run.check()
            if run.finished:
                return True
            self._show()
            if self.stops.wait(TICK):
                return False
        run.check()
        return False

    def _drain(self, asked: int) -> bool:
        """Wait until emitted rows have reached the sinks, unless the user asks once more to stop."""
        run = self.run
        deadline = time.monotonic() + self.order.settings.drain_seconds
        run.begin_drain()
        while not run.drained:
            run.check()
            if self.stops.at_once or self.stops.count > asked or time.monotonic() > deadline:
                return False
            rows = waiting_rows(run)
            what = f"{rows:,} rows to reach the sinks" if rows else "the last batches to end"
            self._show(f"stopping: waiting for {what} (Ctrl-C stops at once)")
            self.stops.wait(TICK)
        return True

    def _show(self, stopping: str = "") -> None:
        if self.screen.wants(stopping):
            self.screen.show(display_of(self.run, self.order.choice.kind, self.order.seconds, stopping))
