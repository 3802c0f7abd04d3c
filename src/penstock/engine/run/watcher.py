"""The watcher tells the monitor what the engine knows: a sample with every batch, a look at every operator once an
interval, and in the background what takes longer: sizes of state, Spark's own account of a batch. It also has the
monitor write to the statistics store."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.channels.log import Channels
from penstock.clock import run_time
from penstock.cluster.model import Cluster, Placement
from penstock.cluster.readings import MachineReading
from penstock.engine.query.feeds import Batch
from penstock.engine.run.any_query import AnyQuery
from penstock.engine.run.ending import END_SECONDS
from penstock.engine.state.sizes import state_sizes
from penstock.errors import PenstockError
from penstock.logs import LOGGER
from penstock.monitor.events import EventKind
from penstock.monitor.monitor import Monitor
from penstock.monitor.report import BatchReport, sums
from penstock.monitor.sample import UNKNOWN_SLOT, Levels, StateSize, Waited
from penstock.monitor.sampling import DriverKnowledge, streams_of, waiting
from penstock.monitor.snapshot import Snapshot
from penstock.topology.definition import Keyed, Sink, TopologyDefinition

#: See `_Known.rounds`.
ROUNDS_A_BATCH = 2
#: Spark's names for what a micro-batch costs beside its rows, and ours.
SPARK_PARTS = {
    "latestOffset": "ask",
    "getBatch": "get_batch",
    "queryPlanning": "planning",
    "walCommit": "offset_log",
    "commitOffsets": "commit_log",
}


@dataclass(frozen=True)
class Watched:
    """What the watcher has to see of a run, as it is at the moment it looks."""

    definition: Callable[[], TopologyDefinition]
    queries: Mapping[str, AnyQuery]
    channels: Channels
    placement: Callable[[], Placement]
    cluster: Callable[[], Cluster]
    #: Executor -> slot.
    executors: Callable[[], Mapping[str, str]]
    checkpoint: Callable[[str], str]
    #: What each machine has used so far, where that can be said.
    readings: Callable[[], Mapping[str, MachineReading]]
    #: (kind, text)
    happened: Callable[[str, str], object]
    #: By operator and executor: bytes that Spark's shuffle brought from other machines since the last call; None where
    #: Spark does not say it.
    shuffled: Callable[[], Mapping[str, Mapping[str, int]]] | None = None


@dataclass
class _Known:
    """What was found out about one operator, for its next sample."""

    finished: float
    state: Mapping[int, StateSize] | None = None
    overhead: Mapping[str, float] | None = None
    overhead_batch: int = -1
    #: Rounds in which it is still to be found out what its last batch did: Spark's account of a batch, and the files of
    #: its state, come a moment after it.
    rounds: int = 0
    #: Whether Spark SQL did the work of its last batch, so that Spark may have shuffled.
    by_spark_sql: bool = False
    streams: Mapping[str, str] = field(default_factory=dict)
    #: Rows of all its batches.
    rows: int = 0


class Watcher:
    """Of one run. The threads of the queries call `published`; any thread may call everything else."""

    def __init__(self, monitor: Monitor, around: Watched, sample_seconds: float, for_decisions: bool = True) -> None:
        """Without decisions a batch is only counted: nobody looks at what waits, and no snapshot has it."""
        self.monitor = monitor
        self.for_decisions = for_decisions
        self._around = around
        self._seconds = sample_seconds
        definition, now = around.definition(), run_time()
        self._known = {one.name: _Known(now, streams=streams_of(definition, one.name)) for one in definition.operators}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="penstock-monitor", daemon=True)
        #: Whether the store took what it was given the last time.
        self._writable = True
        self._complained = False
        #: What kept the last round from looking, if anything did.
        self._missed: type[Exception] | None = None

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Write what is left. A thread that waits for the store does not hold up the end of the run."""
        if self.monitor.store is not None:
            self.monitor.store.wait_at_most(END_SECONDS)
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._write(last=True)
        if self.monitor.store is not None:
            self.monitor.store.close()

    # On the way of every batch

    def published(self, report: BatchReport, taken: Sequence[Batch]) -> None:
        """A mistake in what is measured must not stop what is running, and costs no more than it must."""
        is_sink = isinstance(self._around.definition().operator(report.operator), Sink)
        known = None
        if self.for_decisions:
            try:
                known = self._knowledge(report, taken, is_sink)
            except Exception as problem:
                self._complain(f"a batch of {report.operator} does not count for decisions: {_named(problem)}")
        try:
            if why := self.monitor.published(report, known, is_sink):
                self._complain(f"a batch of {report.operator} does not count for decisions: {why}")
        except Exception as problem:
            self._complain(f"a batch of {report.operator} was not counted: {_named(problem)}")

    def _knowledge(self, report: BatchReport, taken: Sequence[Batch], is_sink: bool) -> DriverKnowledge:
        around, known = self._around, self._known[report.operator]
        known.rows += report.rows_in
        tasks = around.placement().tasks.get(report.operator, ())
        found = DriverKnowledge(
            streams=known.streams,
            is_sink=is_sink,
            executors=around.executors(),
            tasks=[slot.name for slot in tasks],
            rows_by_channel=sums(one.rows_by_channel for one in taken) if known.streams else None,
            traffic=_added([one.traffic for one in taken]),
            links=_added([one.links for one in taken]),
            previous_finished=known.finished,
            levels=self._levels(report.operator, report.finished, between_batches=True),
            state=known.state,
            overhead_parts=known.overhead,
        )
        known.finished, known.overhead, known.rounds = report.finished, None, ROUNDS_A_BATCH
        known.by_spark_sql = any(bundle.by_spark_sql for bundle in report.bundles)
        return found

    # What it looks like right now

    def snapshot(self) -> Snapshot:
        around = self._around
        self.hear_waits()
        levels = {name: self._levels(name, run_time()) for name in self._known}
        return self.monitor.snapshot(run_time(), around.placement(), around.cluster(), levels, around.readings())

    def look(self) -> None:
        self.hear_waits()
        for name in self._known:
            self.monitor.look(name, self._levels(name, run_time()))

    def hear_waits(self) -> None:
        """What bundles that stand have waited and no report has told: who has nothing to do reports nothing. Whoever
        has the window begin anew asks for it before that."""
        try:
            executors, now = self._around.executors(), run_time()
            for name, query in list(self._around.queries.items()):
                if query.operator.name == name:  # the query of a chain is there for each of its operators
                    by_slot: dict[str, list[Waited]] = {}
                    for one in query.waited():
                        by_slot.setdefault(executors.get(one.executor or "", one.slot), []).append(one)
                    for operator in query.chain:
                        self.monitor.waited(operator.name, by_slot, now)
        except Exception as problem:  # whoever changes the placement must not fail for that
            self._complain(f"it is not known what bundles have waited: {_named(problem)}")

    def _levels(self, name: str, at: float, between_batches: bool = False) -> Levels:
        around, query = self._around, self._around.queries[name]
        # Of several batches, those are under way that are not counted, whichever has just been published.
        began, cut = None if between_batches else query.batch_started, query.open_batches
        # Not from `at`, which may be a while ago: a batch was published then, or somebody began to wait for the lock.
        clock = run_time() - time.monotonic()
        backlog = {
            stream: waiting(held.rows, held.bytes, held.oldest_born, at)
            for channel, stream in self._known[name].streams.items()
            for held in [around.channels.backlog(name, channel)]
        }
        unmet = [rows for feed in query.feeds if (rows := feed.unmet) is not None]
        owes = query.operator.name == name and bool(unmet)
        # What was cut is neither owed nor published.
        in_work = query.rows_in_work if owes else None
        return Levels(
            at,
            backlog,
            unmet_rows=sum(unmet) if owes else None,
            throttled=query.intake.throttled or query.intake.held_back,
            batch_since=None if began is None else clock + began,
            open_batches=None if cut is None else {number: clock + started for number, started in cut.items()},
            emitted=None if in_work is None else self._known[name].rows + in_work,
        )

    # In the background

    def _go_on(self) -> None:
        while not self._ending.wait(self._seconds):
            self._look_around()
            self._write()

    def _look_around(self) -> None:
        try:
            # First: what keeps the others from looking keeps nobody from reading the counters of machines.
            self.monitor.read(self._around.readings())
            self.look()
            self._find_out_shuffled(self._find_out())
            self._missed = None
        except Exception as problem:
            # A query that is being replaced, a JVM that is about to end: the next round looks again. The same problem
            # in many rounds is written down once.
            level = logging.DEBUG if type(problem) is self._missed else logging.INFO
            LOGGER.log(level, "the monitor could not look at the queries in one round", exc_info=True)
            self._missed = type(problem)

    def _find_out(self) -> list[str]:
        """Returns the operators that Spark may have shuffled for since the last round."""
        may_have_shuffled = []
        for operator in self._around.definition().operators:
            known, query = self._known[operator.name], self._around.queries[operator.name].query
            if not known.rounds:
                continue  # nothing has happened: asking the JVM about every operator in every round adds up
            known.rounds -= 1
            if known.by_spark_sql:
                may_have_shuffled.append(operator.name)
            if isinstance(operator, Keyed):
                known.state = dict(enumerate(state_sizes(self._around.checkpoint(operator.name), operator.tasks)))
            progress = query.lastProgress if query is not None else None
            if progress is not None and progress["batchId"] != known.overhead_batch:
                known.overhead_batch = progress["batchId"]
                spent = progress["durationMs"]
                known.overhead = {ours: spent.get(theirs, 0) / 1000 for theirs, ours in SPARK_PARTS.items()}
        return may_have_shuffled

    def _find_out_shuffled(self, operators: Sequence[str]) -> None:
        """One look for all operators. On one machine nothing comes from another, and nobody asks."""
        if not operators:
            return
        around, now = self._around, run_time()
        if len({slot.machine for slot in around.cluster().slots}) < 2:
            for name in operators:
                self.monitor.shuffled(name, {}, now)
        elif around.shuffled is not None:
            slots = around.executors()
            for name, by_executor in around.shuffled().items():
                if name in self._known:
                    by_slot = sums({slots.get(one, UNKNOWN_SLOT): size} for one, size in by_executor.items())
                    self.monitor.shuffled(name, by_slot, now)

    def _complain(self, text: str) -> None:
        """Once: the same mistake comes with every batch."""
        if not self._complained:
            self._complained = True
            LOGGER.warning(text, exc_info=True)
            self._around.happened(EventKind.FAULT, text)

    def _write(self, last: bool = False) -> None:
        """A store that is away costs history, never the run."""
        try:
            self.monitor.write(run_time(), self._around.placement(), last)
            if not self._writable:
                self._writable = True
                self._around.happened(EventKind.RECOVERY, "statistics are written again")
        except Exception as problem:  # whatever it is
            if self._writable:
                self._writable = False
                LOGGER.warning("statistics cannot be written", exc_info=True)
                why = problem.message if isinstance(problem, PenstockError) else _named(problem)
                self._around.happened(EventKind.FAULT, f"statistics cannot be written: {why}")


def _named(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"


def _added(traffic: Sequence[Mapping[tuple[str, str], int]]) -> dict[tuple[str, str], int]:
    total: dict[tuple[str, str], int] = {}
    for one in traffic:
        for way, size in one.items():
            total[way] = total.get(way, 0) + size
    return total
