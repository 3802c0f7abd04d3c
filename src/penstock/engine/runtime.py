"""A topology that runs: its channels, its queries and their life from start to a stop that drains."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from penstock.channels.catalog import Catalog
from penstock.channels.log import Channels
from penstock.cluster.model import Placement
from penstock.engine import arrangement, repartition
from penstock.engine.arrangement import Arrangement
from penstock.engine.chaining import Chaining
from penstock.engine.feeds import Batch, RateFeed, Seats
from penstock.engine.host import SparkHost
from penstock.engine.keeping import KEPT_BATCHES, Keeper, Restarts
from penstock.engine.manifest import BatchReport, BundleReport
from penstock.engine.monitoring import Monitoring, Surroundings
from penstock.engine.observing import Seen, observe
from penstock.engine.opening import open_catalog, open_environment, open_monitor
from penstock.engine.operator_frames import Environment
from penstock.engine.operator_query import OperatorQuery
from penstock.engine.slots import to_nobody
from penstock.engine.spark_internals import repartition_state
from penstock.engine.splitting import Bundle, bundles_of
from penstock.engine.state_folder import StateFolder
from penstock.errors import PenstockError
from penstock.monitor.events import Event, EventKind, EventLog
from penstock.monitor.live import LiveStatistics
from penstock.monitor.monitor import Monitor
from penstock.monitor.sampling import place_of
from penstock.monitor.snapshot import Snapshot
from penstock.settings import Settings
from penstock.strategies.mapping.round_robin import round_robin
from penstock.topology.definition import Source, TopologyDefinition

POLL = 0.05


class Run:
    """One topology on one host. As a context manager: leaving it stops the queries, and drains unless it fails."""

    def __init__(
        self,
        definition: TopologyDefinition,
        host: SparkHost,
        state: StateFolder,
        settings: Settings,
        placement: Placement | None = None,
    ) -> None:
        #: As declared, but for the tasks of operators that were repartitioned.
        self.definition = definition
        self.host = host
        self.state = state
        self.settings = settings
        self.arrangement = Arrangement(placement or round_robin(definition, host.cluster), host.slots.usable)
        self._placement_given = placement is not None
        self.statistics = LiveStatistics()
        self.started_at = 0.0
        self._listeners: list[Callable[[BatchReport], None]] = []
        self._queries: dict[str, OperatorQuery] = {}
        self._held: Container[str] = ()
        #: Held while a query is replaced by another.
        self._replacing = threading.RLock()
        self._restarts = Restarts(settings.query_restarts)
        self.chaining = Chaining(self)
        self._keeper = Keeper(self._sweep, settings.retention_seconds, self._mend)
        #: Whether the sources are to emit nothing for the time being.
        self.paused = False
        self._stopped = False
        self._stopped_drained = False
        self._catalog: Catalog | None = None
        self._environment: Environment | None = None
        self._monitoring: Monitoring | None = None

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
    def placement(self) -> Placement:
        """What the plan says."""
        return self.arrangement.planned

    @property
    def replacing(self) -> threading.RLock:
        """Held while a query is replaced by another."""
        return self._replacing

    @property
    def monitor(self) -> Monitor:
        return self._measurements().monitor

    @property
    def events(self) -> EventLog:
        return self.monitor.events

    def _measurements(self) -> Monitoring:
        if self._monitoring is None:
            raise RuntimeError("the topology is not started")
        return self._monitoring

    def start(self, held: Container[str] = ()) -> Run:
        """Start all queries and let rows in, but into the operators that are `held`: their gates are opened by hand."""
        self._held = held
        try:
            self._open()
            self.host.slots.listen(self._slots_changed)
            self.host.slots.happened = self.happened
            self.chaining.begin()
            for operator in reversed(self.definition.operators):
                if self.chaining.first_of(operator.name) == operator.name:
                    self._start_query(operator.name)
            self.started_at = time.time()
            self.monitor.restart(self.started_at)
            for query in self.queries():
                self._let_in(query.operator.name)
            arrangement.record(self.catalog, self.definition, self.placement)
        except BaseException:
            self.stop(drain=False)
            raise
        self._keeper.start()
        if self.settings.monitoring == "on":
            self._measurements().start()
        self.happened(EventKind.STARTED, f"{len(self.definition.operators)} operators run", self.definition.name)
        return self

    def _open(self) -> None:
        catalog = self._catalog = open_catalog(self.definition, self.state, self.settings)
        declared = self.definition
        environment = open_environment(declared, self.host, self.state, self.settings, catalog, self._published)
        self._monitoring = self._open_monitoring(environment)
        if unfinished := repartition.under_way(catalog):
            operator, tasks = unfinished
            repartition_state(self.host.spark, environment.checkpoint(operator), tasks)
            repartition.record_tasks(catalog, operator, tasks)
            self.happened("recovery", f'the repartition of "{operator}" into {tasks} tasks was finished')
        self.definition = repartition.with_tasks(declared, repartition.recorded_tasks(catalog))
        self._environment = dataclasses.replace(environment, definition=self.definition)
        if not self._placement_given:
            again = arrangement.recorded(catalog, self.definition, self.host.cluster)
            self.arrangement.plan(again or round_robin(self.definition, self.host.cluster))
        if change := arrangement.unfinished_change(catalog):
            arrangement.note_change(catalog, "")
            self.happened("recovery", f"the driver had ended while it changed this, which is undone: {change}")

    def _open_monitoring(self, environment: Environment) -> Monitoring:
        around = Surroundings(
            definition=lambda: self.definition,
            queries=self._queries,
            channels=environment.channels,
            placement=lambda: self.arrangement.requested,
            cluster=lambda: self.host.cluster,
            executors=self.host.slots.by_executor,
            checkpoint=environment.checkpoint,
            happened=self.happened,
        )
        monitor = open_monitor(self.definition, self.state, self.settings)
        return Monitoring(monitor, around, self.settings.sample_seconds)

    def _start_query(self, name: str) -> None:
        chain = self.chaining.chain_of(name)
        operators = [self.definition.operator(one) for one in chain]
        query = OperatorQuery(operators, self.environment, self._seats(name))
        self._queries.update(dict.fromkeys(chain, query))
        query.intake.pause(self.paused and isinstance(query.operator, Source))
        query.start()
        query.check()

    def _let_in(self, name: str) -> None:
        if name not in self._held:
            self._queries[name].intake.open()

    def _seats(self, operator: str) -> Seats:
        def bundles() -> Sequence[Bundle]:
            # Asked once a micro-batch, before it is planned: this is where a new placement takes effect.
            placement = self.arrangement.requested
            query = self._queries[operator]
            if query.state is not None and query.query is not None:
                query.state.settle(query.query, placement.tasks[operator], self.host.slots.executor)
            return bundles_of(placement.of(operator))

        def ran_on(report: BundleReport) -> str:
            tasks = [slot.name for slot in self.arrangement.requested.tasks.get(operator, ())]
            return place_of(report, self.host.slots.by_executor(), tasks)

        return Seats(bundles, self.host.slots.executor, ran_on)

    def _published(self, report: BatchReport, taken: Sequence[Batch]) -> None:
        self.statistics.add(report)
        if self.settings.monitoring == "on":
            self._measurements().published(report, taken)
        for listener in self._listeners:
            listener(report)

    def listen(self, listener: Callable[[BatchReport], None]) -> None:
        """Have this called with the report of every batch that is published, on the thread of its query."""
        self._listeners.append(listener)

    def happened(
        self, kind: str, reason: str, subject: str = "", cause: str = "", fields: Mapping[str, Any] | None = None
    ) -> Event:
        """Enter an event: its kind is one of `EventKind`, its cause the id of another or a name."""
        return self.events.record(Event(time.time(), EventKind(kind), subject, reason, cause, fields or {}))

    def placed_anew(self, at: float) -> None:
        """What was measured before this time says nothing about the placement as it is now."""
        self.statistics.placement_changed(at)
        self.monitor.restart(at)

    def snapshot(self) -> Snapshot:
        """What strategies decide on: rates, utilisation, backlog and traffic over the sliding window."""
        return dataclasses.replace(self._measurements().snapshot(), chains=self.arrangement.chains)

    # Beside the queries

    def _slots_changed(self) -> None:
        before = self.arrangement.changed_at
        requested = self.arrangement.requested
        self.placed_anew(time.time())
        if self.arrangement.changed_at != before:
            whole = requested == self.placement
            self.happened(
                "recovery", "everything is placed as planned" if whole else "placed on the slots that are left"
            )

    def _sweep(self) -> None:
        self.channels.sweep()
        for operator in self.definition.operators:
            self.catalog.prune_batches(operator.name, KEPT_BATCHES)

    def _mend(self) -> None:
        """Start queries again that Spark gave up because executors were lost: their checkpoints are whole."""
        for query in self.queries():
            name = query.operator.name
            if not self._mendable(query) or self._stopped:
                continue
            self._restarts.count(name)
            self.happened("fault", f'the query of "{name}" ended: {query.failure}')
            with self._replacing:
                try:
                    query.stop()
                    self._start_query(name)
                    self._let_in(name)
                    self.happened("recovery", f'the query of "{name}" was started again')
                except PenstockError as error:
                    self._queries[name].fail(error)

    def _mendable(self, query: OperatorQuery) -> bool:
        query.notice_end()
        return query.lost_executors and self._restarts.allowed(query.operator.name)

    # While it runs

    def query(self, operator: str) -> OperatorQuery:
        """The query that runs an operator, alone or with others."""
        return self._queries[operator]

    def queries(self) -> list[OperatorQuery]:
        """All of them, each once."""
        return list(dict.fromkeys(self._queries.values()))

    def check(self) -> None:
        """Raise the first failure, if there is one that cannot be mended."""
        self._keeper.check()
        for query in self.queries():
            if not self._mendable(query):
                query.check()

    @property
    def finished(self) -> bool:
        """All sources have ended and everything they emitted has reached the sinks."""
        return all(query.drained for query in self.queries())

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has finished (True) or the time is over (False); raises when an operator fails."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while deadline is None or time.monotonic() < deadline:
            self.check()
            if self.finished:
                return True
            self._tell_who_is_the_last()
            time.sleep(POLL)
        return False

    def _tell_who_is_the_last(self) -> None:
        """Operators behind others that have ended need not wait for more before they end too."""
        ended: set[str] = set()
        for operator in self.definition.operators:
            query = self._queries[operator.name]
            before = [stream.producer for stream in self.definition.inputs_of(operator.name)]
            if query.operator is not operator and query.operator.name in ended:
                ended.add(operator.name)
            elif query.feeds and all(name in ended for name in before):
                if before or all(feed.drained for feed in query.feeds):
                    query.intake.expect_nothing_more()
                if query.drained:
                    ended.add(operator.name)

    def backlog(self, operator: str) -> int:
        """Rows that wait in front of an operator; in front of a rate source, those that are due and not emitted."""
        query = self._queries[operator]
        if query.operator.name != operator:
            return 0  # it gets its rows from the operator before it in the same bundle
        if isinstance(query.operator, Source):
            return sum(feed.unmet for feed in query.feeds if isinstance(feed, RateFeed))
        inputs = {channel for feed in query.feeds for channel in getattr(feed, "position", {})}
        return sum(self.channels.backlog(operator, channel).rows for channel in inputs)

    def observed(self, operator: str) -> Seen | None:
        """Where the newest finished batch of an operator ran, as Spark has it in its records."""
        return observe(self._queries[operator], self.host.slots)

    def state_locations(self, operator: str) -> list[str | None]:
        """Where Spark says each task's state is to be."""
        query = self._queries[operator]
        if query.state is None or query.query is None:
            return []
        return query.state.locations(query.query)

    @contextmanager
    def stopped(self, operator: str) -> Iterator[OperatorQuery]:
        """While one operator's query is stopped, between two of its batches if that is possible; the others go on. It
        is started again in the end, by the definition and in the chain as they are then."""
        with self._replacing:
            self._queries[operator].stop()
            try:
                yield self._queries[operator]
            finally:
                self._start_query(operator)
                self._let_in(operator)

    def start_parts(self, parts: Sequence[str]) -> None:
        """Start queries anew, each named by its first operator, the later ones first. One that does not start is a
        failure of the whole: rows would pile up before it for ever."""
        for name in reversed(parts):
            try:
                self._start_query(name)
                self._let_in(name)
            except PenstockError as error:
                self._queries[name].fail(error)
                raise

    def finish_batch(self, operator: str) -> None:
        """Of an operator that is stopped: let it finish a batch in the middle of which it was stopped, and no more."""
        self._start_query(operator)
        self._queries[operator].await_replay(self.settings.drain_seconds)
        self._queries[operator].stop()

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
        changes = paused != self.paused
        self.paused = paused
        for query in self._source_queries():
            query.intake.pause(paused)
        return changes

    def resume(self) -> bool:
        return self.pause(False)

    # Ending

    def stop(self, drain: bool = True) -> bool:
        """Stop all queries; True if everything that the sources emitted has reached the sinks. Once is enough: a run
        that is stopped stays as it was stopped."""
        if self._stopped:
            return self._stopped_drained
        drained = self._stopped_drained = drain and self._drain()
        self._stopped = True
        self._keeper.stop()
        self.host.slots.forget(self._slots_changed)
        self.host.slots.happened = to_nobody
        in_order = [self._queries[one.name] for one in self.definition.operators if one.name in self._queries]
        for query in dict.fromkeys(in_order):
            query.stop()
        if self._catalog is not None:
            if self._environment is not None:
                self._environment.channels.sweep()
            self._catalog.close()
            self._catalog = None
        if self._monitoring is not None:
            how = "everything had reached the sinks" if drained else "rows were still on their way, and are kept"
            self.happened(EventKind.STOPPED, how, self.definition.name)
            self._monitoring.close()
        return drained

    def begin_drain(self) -> None:
        """Let the sources emit nothing more; what they have emitted goes on to the sinks."""
        for query in self._source_queries():
            query.intake.close()
            if not query.feeds:
                query.stop()  # Spark asks nobody before it reads from a source of its own

    @property
    def drained(self) -> bool:
        """After `begin_drain`: everything that the sources emitted has reached the sinks."""
        sources = self._source_queries()
        others = [query for query in self.queries() if query not in sources]
        return not any(source.intake.in_batch for source in sources) and all(query.drained for query in others)

    def _source_queries(self) -> list[OperatorQuery]:
        return [self._queries[source.name] for source in self.definition.sources if source.name in self._queries]

    def _drain(self) -> bool:
        self.begin_drain()
        deadline = time.monotonic() + self.settings.drain_seconds
        while time.monotonic() < deadline:
            if self.drained:
                return True
            if any(query.failure is not None and not self._mendable(query) for query in self.queries()):
                return False
            time.sleep(POLL)
        return False

    def __enter__(self) -> Run:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(drain=error is None)
