"""`RunningTopology`: a topology that runs, as code outside the engine sees it.

The protocol is the sum of smaller ones. A function that needs only one of them should ask for that one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from penstock.cluster.model import Cluster, Machine, Slot
from penstock.monitor.decisions import DecisionLog
from penstock.monitor.events import Event, EventLog
from penstock.monitor.history import HistoryQuery, SeriesHistory
from penstock.monitor.kept_book import KeptBook
from penstock.monitor.kept_state import KeptState
from penstock.monitor.report import BatchReport
from penstock.monitor.snapshot import Snapshot
from penstock.monitor.statistics import Statistics
from penstock.running.changes import Changes
from penstock.running.placements import Placements
from penstock.settings import Settings
from penstock.topology.definition import TopologyDefinition


class StateLocation(Protocol):
    """Where a topology keeps what it needs to go on after a stop."""

    @property
    def path(self) -> Path: ...
    @property
    def temporary(self) -> bool:
        """Whether the state is deleted at the end, so that no later run can go on from it."""


class Identity(Protocol):
    """What runs."""

    @property
    def definition(self) -> TopologyDefinition:
        """The topology as declared, except for the tasks of operators that were repartitioned."""

    @property
    def settings(self) -> Settings: ...
    @property
    def shuffles(self) -> Mapping[str, str]:
        """By keyed operator: why Spark shuffles its rows. The text is empty if Spark shuffles none of them."""

    @property
    def state(self) -> StateLocation: ...
    @property
    def started_at(self) -> float:
        """When the first row was let in, in the time of `penstock.clock.run_time`."""


class Machines(Protocol):
    """The machines that a topology has, and those that it could get."""

    @property
    def cluster(self) -> Cluster: ...
    @property
    def usable_slots(self) -> frozenset[Slot]:
        """The slots of the cluster that can take rows now."""

    @property
    def unplaced_because(self) -> str:
        """Why bundles run wherever Spark wants and not where they are placed; empty if they are placed."""

    def upcoming(self, count: int) -> tuple[Machine, ...]:
        """The machines that would come next; FIXED_MACHINES where none can come. A decision reads them off its
        snapshot."""


class Measurements(Protocol):
    """What was measured, and what is measured now."""

    @property
    def statistics(self) -> Statistics:
        """What people read: totals since the start, rates and latency of the last seconds."""

    def snapshot(self) -> Snapshot:
        """What strategies decide on: rates, utilisation, backlog and traffic over the sliding window."""

    def history(self, query: HistoryQuery) -> list[SeriesHistory] | None:
        """What was measured over time, from the statistics store; None if the run keeps no history."""

    def backlog(self, operator: str) -> int:
        """Rows that wait in front of an operator; in front of a source, rows that are due and not emitted."""

    def throttled(self, operator: str) -> bool:
        """Whether an operator waits for those behind it."""

    def kept(self, operator: str) -> tuple[KeptState, ...]:
        """The state of a keyed operator after its newest batch; nothing before its first one."""

    def left_inside(self) -> dict[str, int]:
        """By operator, results of windows that are still open, and so are not emitted yet."""

    def unknown_inside(self) -> list[str]:
        """The operators of which it is not known whether they have results of open windows."""

    def listen(self, listener: Callable[[BatchReport], None]) -> None:
        """Have this function called with the report of every batch that is published, on the thread that publishes
        it."""


class Events(Protocol):
    """What happened, and why."""

    @property
    def events(self) -> EventLog: ...
    @property
    def decisions(self) -> DecisionLog:
        """What was decided, and what it turned out to be."""

    @property
    def kept_book(self) -> KeptBook:
        """What the controller remembers, for the next driver."""

    def happened(
        self, kind: str, reason: str, subject: str = "", cause: str = "", fields: Mapping[str, Any] | None = None
    ) -> Event:
        """Enter an event: its kind is one of `EventKind`, its cause the id of another event or a name."""


class Life(Protocol):
    """Pause, resume, drain and stop."""

    @property
    def paused(self) -> bool: ...

    def pause(self, paused: bool = True) -> bool:
        """Let the sources emit nothing until `resume`; rows that they have emitted go on. False if nothing changes."""

    def resume(self) -> bool:
        """Let the sources emit again. False if nothing changes."""

    def check(self) -> None:
        """Raise the named error of the first operator that failed, if one did."""

    @property
    def finished(self) -> bool:
        """Whether all sources have ended and all their rows have reached the sinks."""

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the topology has finished (True) or the time is over (False). Raises what `check` raises."""

    def expect_end(self) -> None:
        """The end is asked for, and what is under way is about to be rolled back. From now on nobody waits without end
        for a database that does not answer."""

    def begin_drain(self) -> None:
        """Let the sources emit nothing more at all; rows that they have emitted go on."""

    @property
    def drained(self) -> bool:
        """Whether all rows have reached the sinks since `begin_drain`."""

    def stop(self, drain: bool = True) -> bool:
        """End the topology, once its rows have reached the sinks or at once; True if they have reached them. A second
        call changes nothing and returns the same."""

    @property
    def how_it_ended(self) -> str:
        """How the topology ended, in words; empty until it has stopped."""

    @property
    def unwritten_because(self) -> str:
        """Why its end could not be written to the catalog, in words; empty if it could. The next start on its state
        makes up for that."""


class RunningTopology(Identity, Machines, Measurements, Events, Life, Protocol):
    """A topology that runs. Any thread may call it."""

    @property
    def placements(self) -> Placements:
        """What is planned, requested and observed."""

    @property
    def changes(self) -> Changes:
        """What carries plans out."""
