"""A topology that runs: its channels, its queries and their life from start to a stop that drains."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any, Self

from penstock.channels.catalog import Catalog
from penstock.channels.log import Channels
from penstock.clock import run_time, wall_time
from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.engine.query.feeds import Batch
from penstock.engine.query.frames import Environment
from penstock.engine.query.query import OperatorQuery
from penstock.engine.query.rehearsal import rehearse
from penstock.engine.query.state_account import StateAccount
from penstock.engine.run import arrangement, rewriting
from penstock.engine.run.arrangement import Arrangement
from penstock.engine.run.chaining import Chaining
from penstock.engine.run.chores import Chores, Staging
from penstock.engine.run.function_plans import plans_of
from penstock.engine.run.keeping import Keeper
from penstock.engine.run.opening import finish_sinks, open_catalog, open_environment, open_monitor
from penstock.engine.run.places import RunPlacements
from penstock.engine.run.queries import Queries
from penstock.engine.run.watcher import Watched, Watcher
from penstock.engine.spark.host import SparkHost
from penstock.engine.spark.slots import to_nobody
from penstock.engine.state.folder import StateFolder
from penstock.engine.state.kept_record import KeptRecord
from penstock.engine.state.tasks import recorded_tasks
from penstock.errors import PenstockError
from penstock.monitor.events import Event, EventKind, EventLog
from penstock.monitor.history import HistoryQuery, SeriesHistory
from penstock.monitor.kept_state import KeptState, KeptStates, left_in_words, left_inside, unknown_in_words
from penstock.monitor.monitor import Monitor
from penstock.monitor.observed_places import ObservedPlaces
from penstock.monitor.publications import Publications
from penstock.monitor.report import BatchReport
from penstock.monitor.snapshot import Snapshot
from penstock.monitor.statistics import Statistics
from penstock.plans.repartition import with_tasks
from penstock.privacy import for_owner_only
from penstock.settings import Settings
from penstock.strategies import mapping
from penstock.topology.definition import Keyed, Source, TopologyDefinition

POLL = 0.05


class Run:
    """One topology on one host: a `RunningTopology` but for the changes, which `penstock.engine.topology` adds. As a
    context manager: leaving it stops the queries, and drains unless it fails."""

    def __init__(
        self,
        definition: TopologyDefinition,
        host: SparkHost,
        state: StateFolder,
        settings: Settings,
        placement: Placement | None = None,
        *,
        forget: Collection[str] = (),
    ) -> None:
        """What operators in `forget` hold of an earlier run is given up when it starts."""
        #: As declared, but for the tasks of operators that were repartitioned.
        self.definition = definition
        self.host = host
        self.state = state
        self.settings = settings
        self.arrangement = Arrangement(placement or self._dealt(), host.slots.usable)
        self.placements = RunPlacements(self)
        self._placement_given = placement is not None
        self._forget = tuple(forget)
        self.publications = Publications()
        self.observed_places = ObservedPlaces()
        self._kept_states = KeptStates()
        self.started_at = 0.0
        self._listeners: list[Callable[[BatchReport], None]] = []
        self.chaining = Chaining(self)
        self.queries = Queries(self)
        self._keeper = Keeper(self._sweep, settings.retention_seconds, self.queries.mend)
        #: Whether the sources are to emit nothing for the time being.
        self.paused = False
        #: Whether they are to emit nothing more at all.
        self.draining = False
        self.has_stopped = False
        self._drained_at_stop = False
        #: In words, once it has stopped.
        self.how_it_ended = ""
        self._catalog: Catalog | None = None
        self._environment: Environment | None = None
        self._chores: Chores | None = None
        self._kept_record: KeptRecord | None = None
        self._watcher: Watcher | None = None

    def _dealt(self) -> Placement:
        """Where everything starts when nobody said where, now or in an earlier run."""
        return self._mapped(self.settings.chaining == "on")

    def _mapped(self, chains: bool) -> Placement:
        wanted = mapping.Wanted.at_start(self.definition, self.host.cluster, self.settings.slot_instances, chains)
        return mapping.start(self.settings.mapping, wanted)

    def _recorded_placement(self, catalog: Catalog) -> Placement | None:
        """Of an earlier run; None if it is where that one started, and chains are on now that were off or off now."""
        again = arrangement.recorded(catalog, self.definition, self.host.cluster)
        if again is None:
            return None
        try:
            otherwise = self._mapped(self.settings.chaining != "on")
        except PenstockError:  # that run cannot have started where this mapping finds no place
            return again
        return None if again == otherwise else again

    @property
    def environment(self) -> Environment:
        if self._environment is None:
            raise RuntimeError("the topology is not started")
        return self._environment

    @property
    def channels(self) -> Channels:
        return self.environment.channels

    @property
    def catalog(self) -> Catalog:
        if self._catalog is None:
            raise RuntimeError("the topology is not running")
        return self._catalog

    @property
    def cluster(self) -> Cluster:
        return self.host.cluster

    @property
    def usable_slots(self) -> frozenset[Slot]:
        return self.host.slots.usable()

    @property
    def unplaced_because(self) -> str:
        return self.host.unplaced_because

    def upcoming(self, count: int) -> tuple[Machine, ...]:
        return self.host.provider.upcoming(count)

    def idle(self, unused: Collection[Slot]) -> Sequence[Slot]:
        return self.host.provider.idle(unused)

    @property
    def placement(self) -> Placement:
        """What the plan says."""
        return self.arrangement.planned

    @property
    def monitor(self) -> Monitor:
        return self._watching().monitor

    @property
    def statistics(self) -> Statistics:
        return self.monitor.statistics

    @property
    def events(self) -> EventLog:
        return self.monitor.events

    def _watching(self) -> Watcher:
        if self._watcher is None:
            raise RuntimeError("the topology is not started")
        return self._watcher

    def start(self, held: Collection[str] = ()) -> Self:
        """Start all queries and let rows in, but into the operators that are `held` until they are released."""
        self.queries.held = set(held)
        try:
            self._open()
            self.host.slots.listen(self._slots_changed)
            self.host.slots.happened = self.happened
            self.chaining.begin()
            self.queries.start_all()
            self.started_at = run_time()
            self.monitor.restart(self.started_at)
            self.queries.let_all_in()
            arrangement.record(self.catalog, self.definition, self.placement)
        except BaseException:
            self.stop(drain=False)
            raise
        self._keeper.start()
        if self.settings.monitoring == "on":
            self._watching().start()
        self.happened(EventKind.STARTED, f"{len(self.definition.operators)} operators run", self.definition.name)
        return self

    def _open(self) -> None:
        plans = plans_of(self.definition, rehearse(self.definition, self.host.spark))
        catalog = self._catalog = open_catalog(self.definition, self.state, self.settings)
        declared = self.definition
        opened = open_environment(
            declared, self.host, self.state, self.settings, catalog, self._published, plans, self._forget
        )
        environment = opened.environment
        for location in (environment.checkpoints, environment.store.root):
            for_owner_only(location)
        self._watcher = self._open_watcher(environment)
        for what in opened.told:
            self.happened("notice", what)
        if what := rewriting.finish(self.host.spark, environment, catalog):
            self.happened("recovery", what)
        self.definition = with_tasks(declared, recorded_tasks(catalog))
        self._environment = dataclasses.replace(environment, definition=self.definition)
        operators = [operator.name for operator in self.definition.operators]
        self._chores = Chores(environment.channels, catalog, operators, self._staging)
        if not self._placement_given:
            self.arrangement.plan(self._recorded_placement(catalog) or self._dealt())
        self._kept_record = KeptRecord(catalog, environment.channels.last_batch)
        for operator, kept in self._kept_record.known.items():
            self._kept_states.note(operator, kept.states)
        if change := arrangement.unfinished_change(catalog):
            arrangement.note_change(catalog, "")
            told = f"the driver had not noted the end of this change, which counts only if it was observed: {change}"
            self.happened("recovery", told)

    def _open_watcher(self, environment: Environment) -> Watcher:
        around = Watched(
            definition=lambda: self.definition,
            queries=self.queries.by_operator,
            channels=environment.channels,
            placement=lambda: self.arrangement.requested,
            cluster=lambda: self.host.cluster,
            executors=self.host.slots.by_executor,
            checkpoint=environment.checkpoint,
            happened=self.happened,
        )
        monitor = open_monitor(self.definition, self.state, self.settings)
        return Watcher(monitor, around, self.settings.sample_seconds, self.settings.monitoring == "on")

    def _published(self, report: BatchReport, taken: Sequence[Batch]) -> None:
        self._watching().published(report, taken)
        self.observed_places.note(report)
        # Whoever waits for a batch finds it counted.
        self.publications.note(report)
        for listener in self._listeners:
            listener(report)

    def accounted(self, operator: str, account: StateAccount) -> None:
        """What Spark tells of the state of a keyed operator after a batch; on the thread of its query."""
        if account.late_rows and not self.statistics.late_rows(operator):
            self.happened(
                EventKind.NOTICE,
                f"{account.late_rows:,} rows came too late for its watermark and were dropped; those that follow are "
                "counted as late rows",
                operator,
            )
        self._kept_states.note(operator, account.kept)
        if self._kept_record is not None:
            self._kept_record.note(operator, account.batch, account.kept)
        if account.late_rows:
            self.monitor.dropped(operator, account.late_rows, run_time())

    def left_inside(self) -> dict[str, int]:
        """By operator, results that are not emitted yet: those of windows that wait for their watermark."""
        return left_inside({one.name: self.kept(one.name) for one in self.definition.operators})

    def kept(self, operator: str) -> tuple[KeptState, ...]:
        return self._kept_states.of(operator)

    def unknown_inside(self) -> list[str]:
        """Operators of which it is not known whether they hold such results: they ran in an earlier run that was ended
        before it wrote that down, and have had no batch since."""
        if self._kept_record is None:
            return []
        operators = [one for one in self.definition.operators if isinstance(one, Keyed)]
        return self._kept_record.unknown(one.name for one in operators if one.output_mode == "append")

    def listen(self, listener: Callable[[BatchReport], None]) -> None:
        """Have this called with the report of every batch that is published, on the thread of its query."""
        self._listeners.append(listener)

    def happened(
        self, kind: str, reason: str, subject: str = "", cause: str = "", fields: Mapping[str, Any] | None = None
    ) -> Event:
        """Enter an event: its kind is one of `EventKind`, its cause the id of another or a name."""
        return self.events.record(Event(wall_time(), EventKind(kind), subject, reason, cause, fields or {}))

    def placed_anew(self, at: float) -> None:
        """What was measured before this time says nothing about the placement as it is now."""
        self.observed_places.placement_changed(at)
        self.monitor.restart(at)

    def snapshot(self) -> Snapshot:
        """What strategies decide on: rates, utilisation, backlog and traffic over the sliding window."""
        longest = max(self.settings.batch_interval, self.settings.batch_interval_most)
        measured = self._watching().snapshot()
        return dataclasses.replace(measured, chains=self.arrangement.chains, longest_batch=longest)

    def history(self, query: HistoryQuery) -> list[SeriesHistory] | None:
        store = self.monitor.store
        return None if store is None else store.history(query)

    # Beside the queries

    def _slots_changed(self) -> None:
        before = self.arrangement.changed_at
        requested = self.arrangement.requested
        self.placed_anew(run_time())
        if self.arrangement.changed_at != before:
            whole = requested == self.placement
            self.happened(
                "recovery", "everything is placed as planned" if whole else "placed on the slots that are left"
            )

    def _sweep(self) -> None:
        if self._chores is not None:
            self._chores()
        if self._kept_record is not None:
            self._kept_record.settle()

    def _staging(self) -> list[Staging]:
        running = [(sink, self.queries.by_operator.get(sink.name)) for sink in self.definition.sinks]
        found = [(query, self.environment.file_writer(sink, query.operator)) for sink, query in running if query]
        return [Staging(writer, query.operator.name) for query, writer in found if writer is not None]

    # While it runs

    def query(self, operator: str) -> OperatorQuery:
        """The query that runs an operator, alone or with others."""
        return self.queries.by_operator[operator]

    def check(self) -> None:
        """Raise the first failure, if there is one that cannot be mended."""
        self._keeper.check()
        for query in self.queries.all():
            query.notice_end()
            # Looked at once: it may fail at any time, also between two questions.
            if (failure := query.failure) is not None and not self.queries.mendable(query):
                raise failure

    @property
    def finished(self) -> bool:
        """All sources have ended and everything they emitted has reached the sinks. Whoever asks again and again makes
        it end sooner: operators behind others that have ended are told so."""
        if all(query.drained for query in self.queries.all()):
            return True
        self.queries.tell_who_is_the_last()
        return False

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has finished (True) or the time is over (False); raises when an operator fails."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while deadline is None or time.monotonic() < deadline:
            self.check()
            if self.finished:
                return True
            time.sleep(POLL)
        return False

    def backlog(self, operator: str) -> int:
        """Rows that wait in front of an operator; in front of a source, those that are there and not emitted, where
        it can count them."""
        query = self.query(operator)
        if query.operator.name != operator:
            return 0  # it gets its rows from the operator before it in the same bundle
        if isinstance(query.operator, Source):
            return sum(feed.unmet or 0 for feed in query.feeds)
        inputs = {channel for feed in query.feeds for channel in getattr(feed, "position", {})}
        return sum(self.channels.backlog(operator, channel).rows for channel in inputs)

    def throttled(self, operator: str) -> bool:
        return self.query(operator).intake.throttled

    def redefine(self, definition: TopologyDefinition, placement: Placement) -> None:
        """Go on with other numbers of tasks; for operators that are stopped."""
        self.definition = definition
        self._environment = dataclasses.replace(self.environment, definition=definition)
        self.monitor.redefine(definition)
        self.arrangement.plan(placement)
        arrangement.record(self.catalog, definition, placement)

    def pause(self, paused: bool = True) -> bool:
        """Let the sources emit nothing until `resume`; what they have emitted goes on. Rows of a rate source stay due.
        False if nothing changes."""
        with self.queries.gates:
            changes = paused != self.paused
            self.paused = paused
            for query in self.queries.of_sources():
                query.intake.pause(paused)
        if changes and not paused:
            self.monitor.restart(run_time())  # what was measured meanwhile says nothing
        return changes

    def resume(self) -> bool:
        return self.pause(False)

    # Ending

    def stop(self, drain: bool = True) -> bool:
        """Stop all queries; True if everything that the sources emitted has reached the sinks. Once is enough: a run
        that is stopped stays as it was stopped."""
        if self.has_stopped:
            return self._drained_at_stop
        drained = self._drained_at_stop = self._drain() if drain else self._has_arrived()
        self.has_stopped = True
        # The last first; each is done whatever becomes of the others.
        with ExitStack() as ending:
            ending.callback(self._end_watcher, drained)
            ending.callback(self._end_catalog)
            ending.callback(self._end_queries)
            self._keeper.stop()  # before the queries: it might start one again
            self.host.slots.forget(self._slots_changed)
            self.host.slots.happened = to_nobody
        return drained

    def _has_arrived(self) -> bool:
        """Whether everything is where it was to go, without waiting for it."""
        if self._environment is None or not self.started_at:
            return False
        with suppress(PenstockError, OSError):  # the catalog may be what went wrong
            return self.drained if self.draining else all(query.drained for query in self.queries.all())
        return False

    def _end_queries(self) -> None:
        with self.queries.replacing:  # whoever is replacing one finishes that first; nobody begins after it
            for query in self.queries.all():
                query.stop()

    def _end_catalog(self) -> None:
        if self._catalog is None:
            return
        with suppress(PenstockError, OSError):  # what is left is swept at the next start
            if self._kept_record is not None:
                self._kept_record.write()
            if self._chores is not None:
                finish_sinks([operator.name for operator in self.definition.operators], self._catalog)
                self._chores.end()
        self._catalog.close()
        self._catalog = None

    def _end_watcher(self, drained: bool) -> None:
        if self._watcher is None:
            return
        left, unknown = self.left_inside(), self.unknown_inside()
        arrived = "no row was on its way any more" if unknown else "everything had reached the sinks"
        how = arrived if drained else "rows were still on their way, and are kept"
        if left:
            how = f"{how}; left inside, in windows that are still open: {left_in_words(left)}"
        if unknown:
            how = f"{how}; {unknown_in_words(unknown)}"
        self.how_it_ended = how
        fields = {"left_inside": left, "left_inside_unknown": unknown}
        self.happened(EventKind.STOPPED, how, self.definition.name, fields=fields)
        self._watcher.close()

    def begin_drain(self) -> None:
        """Let the sources emit nothing more; what they have emitted goes on to the sinks."""
        with self.queries.gates:
            self.draining = True
            sources = self.queries.of_sources()
            for query in sources:
                self.queries.shut(query)
        for query in sources:
            if query.emits_by_itself:
                query.stop()  # Spark asks nobody before it reads from a source of its own

    @property
    def drained(self) -> bool:
        """After `begin_drain`: everything that the sources emitted has reached the sinks."""
        sources = self.queries.of_sources()
        others = [query for query in self.queries.all() if query not in sources]
        return all(source.quiet for source in sources) and all(query.drained for query in others)

    def _drain(self) -> bool:
        self.begin_drain()
        deadline = time.monotonic() + self.settings.drain_seconds
        while time.monotonic() < deadline:
            if self.drained:
                return True
            if any(query.failure is not None and not self.queries.mendable(query) for query in self.queries.all()):
                return False
            time.sleep(POLL)
        return False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(drain=error is None)
