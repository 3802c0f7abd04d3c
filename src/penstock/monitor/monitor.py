"""All of it together: samples go in and are counted once; snapshots and statistics come out, and what is over is
written to the statistics store.

The engine calls `published` with every batch and `look` once a sampling interval; a thread in the background calls
`write` after that, which is also what closes the window's intervals, whether or not anybody asks for a snapshot.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence

from penstock.cluster.model import Cluster, Placement
from penstock.cluster.readings import MachineReading, MachineUse, use_between
from penstock.logs import LOGGER
from penstock.monitor.counts import Counts
from penstock.monitor.decisions import DecisionLog
from penstock.monitor.evaluation import snapshot_of
from penstock.monitor.events import EventLog
from penstock.monitor.intervals import Interval
from penstock.monitor.kept_book import KeptBook
from penstock.monitor.machine_uses import MachineUses
from penstock.monitor.places import with_uses
from penstock.monitor.report import BatchReport
from penstock.monitor.sample import Levels, Sample, Waited
from penstock.monitor.sampling import DriverKnowledge, sample_of, sample_of_rows
from penstock.monitor.snapshot import Snapshot
from penstock.monitor.statistics import Statistics
from penstock.monitor.store import StatisticsStore
from penstock.settings import Settings
from penstock.topology.definition import TopologyDefinition

#: Seconds between two rounds of the store's housekeeping.
HOUSEKEEPING = 60.0
#: The most intervals that wait for a store that is away; the oldest go first.
UNWRITTEN = 1000


class Monitor:
    """One running topology. Any thread may call it."""

    def __init__(
        self, definition: TopologyDefinition, settings: Settings, since: float, store: StatisticsStore | None = None
    ) -> None:
        self.events = EventLog(store)
        self.decisions = DecisionLog(store)
        self.kept_book = KeptBook(store)
        self.store = store
        self._definition = definition
        self._settings = settings
        unwritten = UNWRITTEN if store is not None else 0
        self._counts = Counts(settings.sample_seconds, settings.window_samples, since, unwritten)
        self._uses = MachineUses(settings.sample_seconds)
        #: What people read.
        self.statistics = Statistics(self._counts)
        self._writing = threading.Lock()
        self._unwritten: deque[tuple[Interval, Placement]] = deque(maxlen=UNWRITTEN)
        #: By machine, its counters when they were read last; and what it used that the store has not got yet.
        self._machines: Mapping[str, MachineReading] = {}
        self._unwritten_uses: deque[tuple[str, float, MachineUse]] = deque(maxlen=UNWRITTEN)
        self._kept_house_at = since

    def redefine(self, definition: TopologyDefinition) -> None:
        """The same operators and streams, with other numbers of tasks."""
        self._definition = definition

    def published(self, report: BatchReport, known: DriverKnowledge | None, is_sink: bool = False) -> str:
        """An operator has published a batch. Where the driver knows nothing of the batch, or no sample can be made with
        what it knows, only rows are counted, and the batch is in no snapshot. Returns why no sample could be made."""
        sample, problem = None, ""
        if known is not None:
            try:
                sample = sample_of(report, known)
            except Exception as mistake:
                LOGGER.info("no sample could be made of a batch of %s", report.operator, exc_info=True)
                problem = f"{type(mistake).__name__}: {mistake}"
        self.take(sample or sample_of_rows(report, is_sink), for_decisions=sample is not None)
        return problem

    def take(self, sample: Sample, for_decisions: bool = True) -> None:
        """What an operator did in a batch; one that is not for decisions is in no snapshot."""
        self._counts.add(sample, for_decisions)

    def dropped(self, operator: str, late_rows: int, at: float) -> None:
        """Rows that came too late for the operator's watermark; known only after their batch."""
        self._counts.drop(operator, late_rows, at)

    def shuffled(self, operator: str, by_slot: Mapping[str, int], at: float) -> None:
        """Bytes that Spark's shuffle brought to an operator's tasks from other machines since the last call; known only
        some time after their batches."""
        self._counts.shuffle(operator, by_slot, at)

    def look(self, operator: str, levels: Levels) -> None:
        """What an operator looks like, with or without a batch."""
        self._counts.see(operator, levels)

    def waited(self, operator: str, waited: Mapping[str, Sequence[Waited]], at: float) -> None:
        """What the bundles of an operator have waited until then, by slot, as far as no report has told it."""
        self._counts.wait(operator, waited, at)

    def read(self, readings: Mapping[str, MachineReading]) -> None:
        """What the machines have used so far, once a sampling interval: what they used since the last time goes into
        the history."""
        self._uses.take(readings)
        with self._writing:
            earlier, self._machines = self._machines, readings
            if self.store is None:
                return
            for name, reading in readings.items():
                use = use_between(earlier[name], reading) if name in earlier else None
                if use is not None:
                    self._unwritten_uses.append((name, earlier[name].at, use))

    def snapshot(
        self,
        now: float,
        placement: Placement,
        cluster: Cluster,
        levels: Mapping[str, Levels] | None = None,
        readings: Mapping[str, MachineReading] | None = None,
    ) -> Snapshot:
        """`levels` is what operators look like now: one with a batch under way is then counted to the end of its last
        one. `readings` is what machines have used so far."""
        for operator, seen in (levels or {}).items():
            self.look(operator, seen)
        least = self._settings.window_least_samples
        found = snapshot_of(self._counts.window(now), self._definition, placement, cluster, least)
        return with_uses(found, self._uses.take(readings or {}))

    def restart(self, at: float) -> None:
        """After a reconfiguration: the window begins anew. The history goes on."""
        self._counts.restart(at)

    def write(self, now: float, placement: Placement, last: bool = False) -> None:
        """Write the intervals that are over, and events; at the end also the interval that goes on. What the store
        refuses is kept for the next time, and the error is the caller's."""
        self._counts.keep_up(now)
        if self.store is None:
            return
        with self._writing:
            # Before the intervals: what is older than these may be rolled up then.
            self.store.write_machines(self._unwritten_uses)
            self._unwritten_uses.clear()
            over = self._counts.unwritten(now, last)
            self._unwritten.extend((interval, placement) for interval in over)
            while self._unwritten:
                interval, placed = self._unwritten[0]
                self.store.write([interval], self._definition, placed)
                self._unwritten.popleft()
            self.events.flush()
            self.decisions.flush()
            if last or now >= self._kept_house_at + HOUSEKEEPING:
                self.store.keep_house(now)
                self._kept_house_at = now
