"""The engine's `RunningTopology`: a run on Spark, together with what changes it and what others may ask of it."""

from __future__ import annotations

import time
from collections.abc import Mapping

from penstock.clock import run_time
from penstock.cluster.model import Cluster, Machine, Slot
from penstock.engine.change.changes import RunChanges
from penstock.engine.run.run import Run
from penstock.monitor.history import HistoryQuery, SeriesHistory
from penstock.topology.definition import Source

#: How often somebody who waits looks again.
POLL = 0.05


class SparkTopology(Run):
    """Implements `penstock.running.RunningTopology`. The run itself is the life of a topology, and knows neither its
    changes nor who asks: both are added here."""

    def _complete(self) -> None:
        self.changes = RunChanges(self)

    # Its gates

    @property
    def paused(self) -> bool:
        return self.gates.paused

    def pause(self, paused: bool = True) -> bool:
        """Let the sources emit nothing until `resume`; rows that they have emitted go on. Rows that are
        due stay due. False if nothing changes."""
        changes = self.gates.pause(paused)
        if changes and not paused:
            self.measure_anew(run_time())  # what was measured meanwhile says nothing
        return changes

    def resume(self) -> bool:
        return self.pause(False)

    def begin_drain(self) -> None:
        """Let the sources emit nothing more; rows that they have emitted go on to the sinks."""
        self.expect_end()
        self.gates.begin_drain()

    @property
    def drained(self) -> bool:
        """After `begin_drain`: whether all rows that the sources have emitted have reached the sinks."""
        return self.gates.drained

    # Its end

    @property
    def finished(self) -> bool:
        """Whether all sources have ended and all their rows have reached the sinks. Whoever asks again and again makes
        the topology end sooner: an operator is told when all operators before it have ended."""
        if all(query.drained for query in self.queries.all()):
            return True
        self.queries.tell_who_is_the_last()
        return False

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the topology has finished (True) or the time is over (False). Raises when an operator fails."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while deadline is None or time.monotonic() < deadline:
            self.check()
            if self.finished:
                return True
            time.sleep(POLL)
        return False

    # Its machines

    @property
    def cluster(self) -> Cluster:
        return self.host.cluster

    @property
    def usable_slots(self) -> frozenset[Slot]:
        return self.host.slots.usable()

    @property
    def shuffles(self) -> Mapping[str, str]:
        return {name: split.why for name, split in self.context.splits.items()}

    @property
    def unplaced_because(self) -> str:
        return self.host.unplaced_because

    def upcoming(self, count: int) -> tuple[Machine, ...]:
        return self.host.provider.upcoming(count)

    # Its measurements

    def history(self, query: HistoryQuery) -> list[SeriesHistory] | None:
        store = self.monitor.store
        return None if store is None else store.history(query)

    def backlog(self, operator: str) -> int:
        """Rows that wait in front of an operator. In front of a source, these are the rows that are there and not
        emitted, where the source can count them."""
        query = self.query(operator)
        if query.operator.name != operator:
            return 0  # the operator gets its rows from the operator before it in the same bundle
        if isinstance(query.operator, Source):
            return sum(feed.unmet or 0 for feed in query.feeds)
        inputs = {channel for feed in query.feeds for channel in getattr(feed, "position", {})}
        return sum(self.channels.backlog(operator, channel).rows for channel in inputs)

    def throttled(self, operator: str) -> bool:
        return self.query(operator).intake.throttled
