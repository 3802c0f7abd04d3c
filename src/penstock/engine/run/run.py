"""The life of a topology that runs: it is started, looked after, redefined, drained and stopped."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from penstock.channels.catalog import Catalog
from penstock.channels.log import Channels
from penstock.clock import run_time, wall_time
from penstock.cluster.model import Placement
from penstock.engine.query.context import RunContext
from penstock.engine.query.feeds import Batch
from penstock.engine.query.rehearsal import rehearse
from penstock.engine.query.state_account import StateAccount
from penstock.engine.run import arrangement, notices, rewriting
from penstock.engine.run.any_query import AnyQuery
from penstock.engine.run.arrangement import Arrangement
from penstock.engine.run.chaining import Chaining
from penstock.engine.run.chores import Chores, staging_of
from penstock.engine.run.ending import END_SECONDS, ended_in_words, unwritten_in_words
from penstock.engine.run.function_plans import plans_of
from penstock.engine.run.gates import Gates
from penstock.engine.run.keeping import Keeper
from penstock.engine.run.opening import finish_sinks, open_catalog, open_context, open_monitor
from penstock.engine.run.places import RunPlacements
from penstock.engine.run.queries import Queries
from penstock.engine.run.starting_placement import StartingPlacement
from penstock.engine.run.watcher import Watched, Watcher
from penstock.engine.spark.host import SparkHost
from penstock.engine.spark.slots import to_nobody
from penstock.engine.state.folder import StateFolder
from penstock.engine.state.kept_record import KeptRecord
from penstock.engine.state.published_record import PublishedRecord
from penstock.engine.state.tasks import recorded_tasks
from penstock.errors import PenstockError
from penstock.logs import traced
from penstock.monitor.decisions import DecisionLog
from penstock.monitor.events import Event, EventKind, EventLog
from penstock.monitor.kept_book import KeptBook
from penstock.monitor.kept_state import KeptState, KeptStates, gives_all_at_once, left_inside, may_give_more
from penstock.monitor.monitor import Monitor
from penstock.monitor.observed_places import ObservedPlaces
from penstock.monitor.publications import Publications
from penstock.monitor.report import BatchReport
from penstock.monitor.snapshot import Snapshot
from penstock.monitor.statistics import Statistics
from penstock.plans.repartition import with_tasks
from penstock.settings import Settings
from penstock.topology.definition import Keyed, TopologyDefinition


class Run:
    """One topology on one host, from its start to its end. `penstock.engine.topology` makes a `RunningTopology` of it.
    As a context manager, a run is stopped when the block is left, and drained first unless the block has failed."""

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
        """`forget` names operators: when the run starts, it gives up what they hold of an earlier run. Without a
        `placement` the run starts where an earlier run was, or where the mapping of the settings says."""
        #: The topology as declared, except for the tasks of operators that were repartitioned.
        self.definition = definition
        self.host = host
        self.state = state
        self.settings = settings
        self.arrangement = Arrangement(placement or self._starting().dealt(), host.slots.usable)
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
        self.gates = Gates(self.queries)
        self._keeper = Keeper(self._sweep, settings.retention_seconds, self.queries.mend)
        self.has_stopped = False
        self._drained_at_stop = False
        #: How the run ended, in words; empty until it has stopped.
        self.how_it_ended = ""
        #: Why the end could not be written to the catalog; empty if it could.
        self.unwritten_because = ""
        self._catalog: Catalog | None = None
        self._context: RunContext | None = None
        self._chores: Chores | None = None
        self._kept_record: KeptRecord | None = None
        self._published_record: PublishedRecord | None = None
        self._watcher: Watcher | None = None
        self._complete()

    def _complete(self) -> None:
        """The end of the constructor. A subclass makes here what it adds to a run, and needs no constructor."""

    def _starting(self) -> StartingPlacement:
        return StartingPlacement(self.definition, self.host.cluster, self.settings)

    @property
    def context(self) -> RunContext:
        if self._context is None:
            raise RuntimeError("the topology is not started")
        return self._context

    @property
    def channels(self) -> Channels:
        return self.context.channels

    @property
    def catalog(self) -> Catalog:
        if self._catalog is None:
            raise RuntimeError("the topology is not running")
        return self._catalog

    @property
    def placement(self) -> Placement:
        """The planned placement."""
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

    @property
    def decisions(self) -> DecisionLog:
        return self.monitor.decisions

    @property
    def kept_book(self) -> KeptBook:
        return self.monitor.kept_book

    def _watching(self) -> Watcher:
        if self._watcher is None:
            raise RuntimeError("the topology is not started")
        return self._watcher

    def start(self, held: Collection[str] = ()) -> Self:
        """Start all queries and let rows in. Operators that are `held` get no rows until they are released."""
        self.gates.held = set(held)
        try:
            self._open()
            self.host.slots.listen(self._slots_changed)
            self.host.slots.happened = self.happened
            self.chaining.begin()
            self.queries.start_all()
            self.started_at = run_time()
            self.measure_anew(self.started_at)
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
        plans = plans_of(self.definition, rehearse(self.definition, self.host.spark, self.settings.state_store))
        catalog = self._catalog = open_catalog(self.definition, self.state, self.settings)
        declared = self.definition
        opened = open_context(
            declared, self.host, self.state, self.settings, catalog, self._published, plans, self._forget
        )
        context = opened.context
        self._watcher = self._open_watcher(context)
        for what in opened.told:
            self.happened("notice", what)
        noticed = [*notices.not_replayable(declared), *notices.not_standing(context.room)]
        if self.settings.shuffle == "none":
            noticed += notices.shuffled(context.splits)
        for name, what in noticed:
            self.happened("notice", what, name)
        if what := rewriting.finish(self.host.spark, context, catalog):
            self.happened("recovery", what)
        self.definition = with_tasks(declared, recorded_tasks(catalog))
        self._watching().monitor.redefine(self.definition)  # policies decide on the tasks that there are
        self._context = dataclasses.replace(context, definition=self.definition)
        operators = [operator.name for operator in self.definition.operators]
        self._chores = Chores(
            context.channels, catalog, operators, lambda: staging_of(self.context, self.queries.by_operator)
        )
        if not self._placement_given:
            starting = self._starting()
            self.arrangement.plan(starting.recorded(catalog) or starting.dealt())
        self._kept_record = KeptRecord(catalog, context.channels.last_batch)
        self._published_record = PublishedRecord(self.state.path)
        for operator, kept in self._kept_record.known.items():
            self._kept_states.note(operator, kept.states)
        if change := arrangement.unfinished_change(catalog):
            arrangement.note_change(catalog, "")
            told = (
                "the last driver ended before it noted how this change had ended. The change holds if Spark was seen "
                f"to run it, and is undone otherwise: {change}"
            )
            self.happened("recovery", told)

    def _open_watcher(self, context: RunContext) -> Watcher:
        internals = self.host.streams.internals
        shuffle_reads = internals.shuffle_reads() if internals is not None else None
        around = Watched(
            definition=lambda: self.definition,
            queries=self.queries.by_operator,
            channels=context.channels,
            placement=lambda: self.arrangement.requested,
            cluster=lambda: self.host.cluster,
            executors=self.host.slots.by_executor,
            readings=self.host.provider.readings,
            checkpoint=context.checkpoint,
            happened=self.happened,
            shuffled=shuffle_reads.look if shuffle_reads is not None else None,
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
        """Take in what Spark tells of the state of a keyed operator after a batch. The thread of its query calls."""
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
        """By operator: how many results of windows wait for their watermark, and so are not emitted yet."""
        return left_inside({one.name: self.kept(one.name) for one in self.definition.operators})

    def kept(self, operator: str) -> tuple[KeptState, ...]:
        return self._kept_states.of(operator)

    def unknown_inside(self) -> list[str]:
        """The operators of which it is not known whether they hold such results. They ran in an earlier run that was
        ended before it wrote that down, and they have had no batch since."""
        if self._kept_record is None:
            return []
        operators = [one for one in self.definition.operators if isinstance(one, Keyed)]
        return self._kept_record.unknown(
            one.name for one in operators if one.output_mode == "append" and not gives_all_at_once(one)
        )

    def listen(self, listener: Callable[[BatchReport], None]) -> None:
        """Have this function called with the report of every batch that is published, on the thread of its query."""
        self._listeners.append(listener)

    def happened(
        self, kind: str, reason: str, subject: str = "", cause: str = "", fields: Mapping[str, Any] | None = None
    ) -> Event:
        """Enter an event: its kind is one of `EventKind`, its cause the id of another event or a name."""
        return self.events.record(Event(wall_time(), EventKind(kind), subject, reason, cause, fields or {}))

    def placed_anew(self, at: float) -> None:
        """Forget what was measured before this time: it says nothing about the placement as it is now."""
        self.observed_places.placement_changed(at)
        self.measure_anew(at)
        self.queries.placed_anew()

    def measure_anew(self, at: float) -> None:
        """Begin the window anew. What bundles have waited until now is heard before: it belongs to the old one."""
        self._watching().hear_waits()
        self.monitor.restart(at)

    def snapshot(self) -> Snapshot:
        """What strategies decide on: rates, utilisation, backlog and traffic over the sliding window."""
        longest = self.settings.longest_batch
        measured, coming = self._watching().snapshot(), self.host.provider.coming()
        return dataclasses.replace(measured, chains=self.arrangement.chains, coming=coming, longest_batch=longest)

    # Beside the queries

    def _slots_changed(self) -> None:
        before = self.arrangement.changed_at
        requested = self.arrangement.requested
        self.placed_anew(run_time())
        if self.arrangement.changed_at != before:
            whole = requested == self.placement
            reason = (
                "all bundles are placed as planned" if whole else "all bundles are placed on the slots that are left"
            )
            self.happened("recovery", reason)

    def _sweep(self) -> None:
        if self._chores is not None:
            self._chores()
        self._note_published()
        if self._kept_record is not None:
            self._kept_record.settle()
        if self.host.streams.internals is not None:  # last: nothing waits for it should the JVM not answer
            self.host.streams.internals.tidy()

    def _note_published(self) -> None:
        if self._published_record is not None:
            self._published_record.write(self.channels.last_batches)

    # While it runs

    def query(self, operator: str) -> AnyQuery:
        """The query that runs an operator, alone or as part of a chain."""
        return self.queries.by_operator[operator]

    def check(self) -> None:
        """Raise the failure of the first query that has failed and cannot be mended, if there is one."""
        self._keeper.check()
        for query in self.queries.all():
            query.notice_end()
            # The failure is read once: the query may fail at any time, also between two questions.
            if (failure := query.failure) is not None and not self.queries.mendable(query):
                raise failure

    def redefine(self, definition: TopologyDefinition, placement: Placement) -> None:
        """Go on with another definition, in which operators that are stopped now have other numbers of tasks."""
        self.definition = definition
        self._context = dataclasses.replace(self.context, definition=definition)
        self.monitor.redefine(definition)
        self.arrangement.plan(placement)
        arrangement.record(self.catalog, definition, placement)

    # Ending

    def stop(self, drain: bool = True) -> bool:
        """Stop all queries; True if all rows that the sources emitted have reached the sinks. A second call changes
        nothing and returns the same."""
        if self.has_stopped:
            return self._drained_at_stop
        seconds = self.settings.drain_seconds
        if drain:
            self.expect_end()
        drained = self._drained_at_stop = self.gates.drain(seconds) if drain else self._has_arrived()
        self.has_stopped = True
        # What is entered last is done first. Each is done whatever becomes of the others.
        with ExitStack() as ending:
            ending.callback(self._end_watcher, drained)
            ending.callback(self._end_catalog)
            ending.callback(self._end_queries)
            self._wait_for_catalog(END_SECONDS)  # before anything that may wait for a thread which writes
            self._keeper.stop()  # before the queries: the keeper might start one again
            self.host.slots.forget(self._slots_changed)
            self.host.slots.happened = to_nobody
        return drained

    def expect_end(self) -> None:
        """The end is asked for. Nobody waits for the catalog for longer than a drain may take: it has failed then."""
        self._wait_for_catalog(max(self.settings.drain_seconds, END_SECONDS))

    def _wait_for_catalog(self, seconds: float) -> None:
        if (catalog := self._catalog) is not None:  # another thread may be stopping the run
            catalog.wait_at_most(seconds)

    def _has_arrived(self) -> bool:
        was_started = self._context is not None and bool(self.started_at)
        return was_started and self.gates.has_arrived()

    def _end_queries(self) -> None:
        with self.queries.replacing:  # whoever is replacing a query finishes that first; nobody begins after it
            for query in self.queries.all():
                query.stop()
            self.queries.close()

    def _end_catalog(self) -> None:
        if self._catalog is None:
            return
        # The next start sweeps what is left.
        with traced("the catalog could not be tidied up at the end of the run", PenstockError, OSError):
            try:
                self._tidy_up(self._catalog)
            except PenstockError as error:
                if error.name == "CATALOG_UNREACHABLE":
                    self.unwritten_because = unwritten_in_words(error)
                raise
        self._catalog.close()
        self._catalog = None

    def _tidy_up(self, catalog: Catalog) -> None:
        # Where the catalog lacks batches, or is away and may come back without some, the next start must know of them.
        # Only a driver that has taken over tidies up by itself, and the folder may be its own by now.
        is_ours = True
        try:
            catalog.keep_hold()
        except PenstockError as error:
            is_ours = error.name != "STATE_TAKEN_OVER"
            raise
        finally:
            if is_ours:
                with traced("how far operators had published could not be noted", OSError):
                    self._note_published()
        if self._kept_record is not None:
            self._kept_record.write()
        if self._chores is not None:
            names = [operator.name for operator in self.definition.operators]
            self._chores.end(lambda: finish_sinks(names, catalog, durable=self.settings.durable))

    def _end_watcher(self, drained: bool) -> None:
        if self._watcher is None:
            return
        left, unknown = self.left_inside(), self.unknown_inside()
        more = [one.name for one in self.definition.operators if may_give_more(one, self.kept(one.name))]
        self.how_it_ended = how = ended_in_words(drained, left, unknown, more, self.unwritten_because)
        if self.unwritten_because:
            self.happened(EventKind.FAULT, self.unwritten_because, self.definition.name)
        fields = {"left_inside": left, "left_inside_unknown": unknown}
        self.happened(EventKind.STOPPED, how, self.definition.name, fields=fields)
        self._watcher.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(drain=error is None)
