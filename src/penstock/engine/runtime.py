"""A topology that runs: its channels, its queries and their life from start to a stop that drains."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Container, Sequence
from types import TracebackType

from penstock.channels.catalog import Catalog
from penstock.channels.layout import channels_of
from penstock.channels.log import Bound, Channels
from penstock.channels.segments import SegmentStore
from penstock.cluster.model import Placement
from penstock.cluster.plan import Action, check, diff
from penstock.engine.feeds import RateFeed, Seats
from penstock.engine.host import SparkHost
from penstock.engine.manifest import BatchReport, BundleReport
from penstock.engine.operator_frames import Environment
from penstock.engine.operator_query import OperatorQuery
from penstock.engine.sink_writers import finish_files
from penstock.engine.splitting import Bundle, bundles_of
from penstock.engine.state_folder import StateFolder, check_checkpoints, check_fit
from penstock.errors import PenstockError
from penstock.monitor.live import LiveStatistics
from penstock.settings import Settings
from penstock.strategies.mapping.round_robin import round_robin
from penstock.topology.definition import Source, TopologyDefinition

POLL = 0.05
#: Manifests of so many batches stay in the catalog for every operator.
KEPT_BATCHES = 200
#: Housekeeping may fail this often in a row before it ends the topology: without it the disk fills up.
PATIENT_ROUNDS = 15


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
        self.definition = definition
        self.host = host
        self.state = state
        self.settings = settings
        #: What the plan says. Bundles read it at every micro-batch.
        self.placement = placement or round_robin(definition, host.cluster)
        self.statistics = LiveStatistics()
        self.started_at = 0.0
        self._queries: dict[str, OperatorQuery] = {}
        self._housekeeper: threading.Thread | None = None
        self._ending = threading.Event()
        #: Rounds of housekeeping that failed one after the other, and why the last one did.
        self._failed_rounds = 0
        self._housekeeping_problem = ""
        self._stopped_drained = False
        self._catalog: Catalog | None = None
        self._channels: Channels | None = None

    @property
    def channels(self) -> Channels:
        if self._channels is None:
            raise RuntimeError("the topology is not started")
        return self._channels

    @property
    def catalog(self) -> Catalog:
        if self._catalog is None:
            raise RuntimeError("the topology is not running")
        return self._catalog

    def start(self, held: Container[str] = ()) -> Run:
        """Start all queries and let rows in, but into the operators that are `held`: their gates are opened by hand."""
        try:
            environment = self._environment()
            for operator in reversed(self.definition.operators):
                query = OperatorQuery(operator, environment, self._seats(operator.name))
                self._queries[operator.name] = query
                query.start()
                query.check()
            self.started_at = time.time()
            for name, query in self._queries.items():
                if name not in held:
                    query.intake.open()
        except BaseException:
            self.stop(drain=False)
            raise
        self._housekeeper = threading.Thread(target=self._keep_house, name="penstock-housekeeper", daemon=True)
        self._housekeeper.start()
        return self

    def _environment(self) -> Environment:
        settings = self.settings
        url = settings.catalog or f"sqlite:///{self.state.path / 'catalog.sqlite'}"
        durable = settings.catalog_durability == "power"
        catalog = Catalog.open(url, self.definition.name, synchronous="FULL" if durable else "NORMAL")
        self._catalog = catalog
        check_fit(self.definition, catalog)
        checkpoints = settings.checkpoints or self.state.sub("checkpoints")
        check_checkpoints(self.definition, catalog, checkpoints)
        layout = channels_of(self.definition)
        compression = None if settings.segment_compression == "none" else settings.segment_compression
        store = SegmentStore(settings.segments or self.state.sub("segments"), compression, sync=durable)
        readers = {name: channel.readers for name, channel in layout.items()}
        writers = {name: channel.producer for name, channel in layout.items()}
        bound = Bound(settings.backlog_rows, settings.backlog_bytes)
        channels = self._channels = Channels(catalog, store, readers, writers, bound)
        channels.sweep(startup=True)
        self._finish_sinks(catalog)
        return Environment(
            definition=self.definition,
            spark=self.host.spark,
            streams=self.host.streams,
            channels=channels,
            layout=layout,
            store=store,
            settings=settings,
            checkpoints=checkpoints,
            published=self.statistics.add,
        )

    def _finish_sinks(self, catalog: Catalog) -> None:
        """A driver that died after it published a batch may not have moved the files of that batch."""
        for sink in self.definition.sinks:
            last = catalog.last_batch(sink.name)
            for batch in catalog.manifests(sink.name, (last or 0) - 2):
                fields = json.loads(batch.manifest)
                bundles = tuple(BundleReport.parse(json.dumps(one).encode()) for one in fields["bundles"])
                finish_files(BatchReport(**{**fields, "bundles": bundles}))

    def _seats(self, operator: str) -> Seats:
        def bundles() -> Sequence[Bundle]:
            # Asked once a micro-batch, before it is planned: this is where a new placement takes effect.
            self._settle_tasks(operator)
            return bundles_of(self.placement.of(operator))

        return Seats(bundles, self.host.executor)

    def _settle_tasks(self, operator: str) -> None:
        query = self._queries[operator]
        if query.state is not None and query.query is not None:
            query.state.settle(query.query, self.placement.tasks[operator], self.host.executor)

    def _keep_house(self) -> None:
        while not self._ending.wait(self.settings.retention_seconds):
            try:
                self.channels.sweep()
                if self._catalog is not None:
                    for operator in self.definition.operators:
                        self._catalog.prune_batches(operator.name, KEPT_BATCHES)
                self.host.refresh()
                self._failed_rounds = 0
            except Exception as error:
                # The next round tries again what this one could not do; `check` speaks up when that does not help.
                self._failed_rounds += 1
                self._housekeeping_problem = f"{type(error).__name__}: {error}"

    # While it runs

    def query(self, operator: str) -> OperatorQuery:
        return self._queries[operator]

    def check(self) -> None:
        """Raise the first failure, if there is one."""
        if self._failed_rounds >= PATIENT_ROUNDS:
            raise PenstockError(
                "HOUSEKEEPING_FAILED",
                f"what has been read could not be deleted {self._failed_rounds} times: {self._housekeeping_problem}.",
                "Is the disk full, or the catalog's database away? With --state it goes on from where it was.",
            )
        for query in self._queries.values():
            query.check()

    @property
    def finished(self) -> bool:
        """All sources have ended and everything they emitted has reached the sinks."""
        return all(query.drained for query in self._queries.values())

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has finished (True) or the time is over (False); raises when an operator fails."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while deadline is None or time.monotonic() < deadline:
            self.check()
            if self.finished:
                return True
            time.sleep(POLL)
        return False

    def rearrange(self, placement: Placement) -> tuple[Action, ...]:
        """Take a new placement while it runs: every operator has it from its next micro-batch on. Returns what changes.

        Refused as a whole, with nothing changed, if it does not fit the topology or the cluster."""
        check(placement, self.definition, self.host.cluster)
        actions = diff(self.placement, placement)
        self.placement = placement
        return actions

    def backlog(self, operator: str) -> int:
        """Rows that wait in front of an operator; in front of a rate source, those that are due and not emitted."""
        query = self._queries[operator]
        if isinstance(query.operator, Source):
            return sum(feed.unmet for feed in query.feeds if isinstance(feed, RateFeed))
        inputs = {channel for feed in query.feeds for channel in getattr(feed, "position", {})}
        return sum(self.channels.backlog(operator, channel).rows for channel in inputs)

    def state_locations(self, operator: str) -> list[str | None]:
        """Where Spark says each task's state is."""
        query = self._queries[operator]
        if query.state is None or query.query is None:
            return []
        return query.state.locations(query.query)

    # Ending

    def stop(self, drain: bool = True) -> bool:
        """Stop all queries; True if everything that the sources emitted has reached the sinks. Once is enough: a run
        that is stopped stays as it was stopped."""
        if self._ending.is_set():
            return self._stopped_drained
        drained = self._stopped_drained = drain and self._drain()
        self._ending.set()
        for operator in self.definition.operators:
            if operator.name in self._queries:
                self._queries[operator.name].stop()
        if self._housekeeper is not None:
            self._housekeeper.join()
        if self._catalog is not None:
            if self._channels is not None:
                self._channels.sweep()
            self._catalog.close()
            self._catalog = None
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
        others = [query for query in self._queries.values() if query not in sources]
        return not any(source.intake.in_batch for source in sources) and all(query.drained for query in others)

    def _source_queries(self) -> list[OperatorQuery]:
        return [self._queries[source.name] for source in self.definition.sources if source.name in self._queries]

    def _drain(self) -> bool:
        self.begin_drain()
        deadline = time.monotonic() + self.settings.drain_seconds
        while time.monotonic() < deadline:
            if self.drained:
                return True
            if any(query.failure is not None for query in self._queries.values()):
                return False
            time.sleep(POLL)
        return False

    def __enter__(self) -> Run:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(drain=error is None)
