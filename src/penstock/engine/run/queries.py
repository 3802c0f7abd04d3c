"""The queries of a run: they are started, replaced by others, and started again after failures that may pass."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from penstock.engine.message.shares import Bundle, bundles_of
from penstock.engine.query.context import RunContext
from penstock.engine.query.query import OperatorQuery
from penstock.engine.query.seats import Seats
from penstock.engine.query.state_account import StateAccount, StateAccounts
from penstock.engine.run.any_query import AnyQuery
from penstock.engine.run.arrangement import Arrangement
from penstock.engine.run.chaining import Chaining
from penstock.engine.run.gates import Gates
from penstock.engine.run.restarts import Restarts
from penstock.engine.spark.failures import FailureKind
from penstock.engine.spark.host import SparkHost
from penstock.engine.standing.linger import Linger
from penstock.engine.standing.query import StandingQuery
from penstock.engine.standing.server import BundleServer
from penstock.errors import PenstockError
from penstock.logs import LOGGER, traced
from penstock.monitor.publications import Publications
from penstock.monitor.report import BundleReport
from penstock.monitor.sampling import place_of
from penstock.settings import Settings
from penstock.topology.definition import Keyed, Operator, TopologyDefinition


class StaysStopped(PenstockError):
    """Why a query must not be started again on its checkpoint as it is now: the run ends with this error."""


class QueriedRun(Protocol):
    """A run, as its queries see it. Some of it is made after them, so they ask for it when they need it."""

    @property
    def definition(self) -> TopologyDefinition: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def host(self) -> SparkHost: ...
    @property
    def context(self) -> RunContext: ...
    @property
    def arrangement(self) -> Arrangement: ...
    @property
    def chaining(self) -> Chaining: ...
    @property
    def gates(self) -> Gates: ...
    @property
    def publications(self) -> Publications: ...
    @property
    def has_stopped(self) -> bool: ...

    def happened(self, kind: str, reason: str, subject: str = "") -> object: ...
    def accounted(self, operator: str, account: StateAccount) -> None: ...


class Queries:
    """The queries of one run: one for every operator that runs alone, and one for every chain."""

    def __init__(self, run: QueriedRun) -> None:
        self._run = run
        #: The query that runs an operator, alone or as part of a chain.
        self.by_operator: dict[str, AnyQuery] = {}
        #: Held while a query is replaced by another.
        self.replacing = threading.RLock()
        #: By keyed operator: what Spark tells of its state. An account outlives the query, which may be replaced.
        self._accounts: dict[str, StateAccounts] = {}
        self._restarts = Restarts(run.settings.query_restarts, self._last_batch)
        #: What bundles that stand connect to.
        self._server: BundleServer | None = None

    def all(self) -> list[AnyQuery]:
        """Every query once, in the order of the operators."""
        operators = self._run.definition.operators
        return list(dict.fromkeys(self.by_operator[one.name] for one in operators if one.name in self.by_operator))

    def of_sources(self) -> list[AnyQuery]:
        sources = self._run.definition.sources
        return [self.by_operator[source.name] for source in sources if source.name in self.by_operator]

    def start_all(self) -> None:
        """Start every query, the last operators first, so that rows find their readers. No row is let in yet."""
        chaining = self._run.chaining
        for operator in reversed(self._run.definition.operators):
            if chaining.first_of(operator.name) == operator.name:
                self._start(operator.name)

    def let_all_in(self) -> None:
        for query in self.all():
            self._run.gates.let_in(query.operator.name)

    def start_again(self, operator: str) -> None:
        """Start the query of an operator that is stopped, by the definition and the chains as they are now."""
        self._start(operator)
        self._run.gates.let_in(operator)

    def start_parts(self, parts: Sequence[str]) -> None:
        """Start queries again, each named by its first operator, the later operators first. If a query does not start,
        its error is raised: rows would pile up in front of it for ever. The other queries are started all the same: the
        failure may pass, and then only queries that have failed are started again, not those that were never tried."""
        problems: list[Exception] = []
        for name in reversed(parts):
            try:
                self.start_again(name)
            except Exception as problem:
                LOGGER.warning('the query of "%s" did not start: %s', name, problem)
                problems.append(problem)
        if problems:
            raise problems[0]

    def finish_batch(self, operator: str) -> None:
        """Let an operator that was stopped in the middle of a batch finish this batch, and no more."""
        try:
            self._start(operator)
            self.by_operator[operator].await_replay(self._run.settings.drain_seconds)
        finally:
            self.by_operator[operator].stop()

    @contextmanager
    def stopped(self, operator: str) -> Iterator[AnyQuery]:
        """Stop the query of an operator for a block, between two of its batches if that is possible, and start it again
        when the block is left, unless it is left with `StaysStopped`. All other queries go on."""
        with self.replacing:
            self.by_operator[operator].stop()
            try:
                yield self.by_operator[operator]
            except StaysStopped as error:
                self._keep_stopped(operator, error)
                raise
            except BaseException:
                self.start_again(operator)
                raise
            self.start_again(operator)

    def _keep_stopped(self, name: str, error: StaysStopped) -> None:
        """Put a query that has failed, and was never started, in the place of one that is stopped: nobody would hear of
        the failure of that one."""
        chain = self._run.chaining.chain_of(name)
        query = self._made([self._run.definition.operator(one) for one in chain])
        query.fail(error)
        with self._run.gates.lock:
            self.by_operator.update(dict.fromkeys(chain, query))

    def mend(self) -> None:
        """Start queries again that ended over lost executors, a full disk, or something else that may pass: their
        checkpoints are whole."""
        for query in self.all():
            if self.mendable(query) and self._restarts.due(query.operator.name, query.kind, query.was_idle):
                with self.replacing:
                    self._mend(query)

    def _mend(self, query: AnyQuery) -> None:
        name = query.operator.name
        if self.by_operator.get(name) is not query or self._run.has_stopped:
            return  # another thread has replaced the query meanwhile, or has ended the run
        self._run.happened("fault", f'the query of "{name}" ended: {query.failure}')
        try:
            query.stop()
            # The new query keeps its failure, and counts as one more query that ended.
            with traced(f'the query of "{name}" could not be started again', PenstockError):
                self.start_again(name)
                self._run.happened("recovery", f'the query of "{name}" was started again')
        finally:
            # This is not counted before, so that everybody finds the query mendable until then.
            self._restarts.count(name, query.kind, query.was_idle)

    def mendable(self, query: AnyQuery) -> bool:
        """Whether a query has failed and is to be started again: restarts.py has the table. Over what is only not known
        to come again, the query is started again if its operator has worked before."""
        query.notice_end()
        name = query.operator.name
        if query.failure is None:
            return False  # or its failure is about to be known
        if query.kind is FailureKind.PASSING and not self._has_worked(name):
            return False
        return self._restarts.allowed(name, query.kind, query.was_idle)

    def _has_worked(self, operator: str) -> bool:
        """Whether an operator has published a batch. What fails from the very beginning is most often a mistake, and
        its user should hear of it at once."""
        return self._last_batch(operator) is not None

    def _last_batch(self, operator: str) -> int | None:
        """The last batch that an operator has published, in this run or in an earlier run on the same state. If its
        chain was taken apart and it has published nothing by itself since, this is the last batch of the chain."""
        last = self._run.context.channels.last_batch(operator)
        newest = self._run.publications.newest(operator) if last is None else None
        return last if newest is None else newest.batch

    def tell_who_is_the_last(self) -> None:
        """Tell an operator when all operators before it have ended: it need not wait for more rows then. When the run
        drains, a source that is quiet has ended."""
        ended: set[str] = set()
        draining = self._run.gates.draining
        for operator in self._run.definition.operators:
            query = self.by_operator[operator.name]
            before = [stream.producer for stream in self._run.definition.inputs_of(operator.name)]
            if query.operator is not operator and query.operator.name in ended:
                ended.add(operator.name)
            elif query.feeds and all(name in ended for name in before):
                if before or all(feed.drained for feed in query.feeds):
                    query.intake.expect_nothing_more()
                if query.drained or (draining and not before and query.quiet):
                    ended.add(operator.name)
            elif draining and not before and query.quiet:
                ended.add(operator.name)  # a source that Spark reads has no feeds

    def _start(self, name: str) -> None:
        run = self._run
        chain = run.chaining.chain_of(name)
        operators = [run.definition.operator(one) for one in chain]
        query = self._made(operators)
        # The query before this one keeps its place meanwhile: one that was never started looks as if it had nothing to
        # do. Whoever ends the run waits for no further query.
        try:
            if not run.has_stopped:
                run.context.channels.catch_up()
        except Exception as error:
            query.fail(error)
        with run.gates.lock:
            if run.has_stopped:
                raise PenstockError(
                    "STOPPING", f'the topology has stopped: "{name}" is not started again.', "Run it again."
                )
            if isinstance(query, OperatorQuery):
                query.accounts = self._accounts_of(query.operator)
            self.by_operator.update(dict.fromkeys(chain, query))
            if not run.gates.prepare(query):
                return
        try:
            if query.failure is None:
                query.start()
        except Exception as error:
            query.fail(error)  # otherwise nobody would ever hear that this query does not run
        query.check()

    def _made(self, operators: Sequence[Operator]) -> AnyQuery:
        seats = self._seats(operators[0].name)
        if self._run.context.room.stands(operators[0]):
            return StandingQuery(operators, self._run.context, seats, self._bundle_server(), self._linger)
        return OperatorQuery(operators, self._run.context, seats)

    def placed_anew(self) -> None:
        """Bundles that stand may have to stand elsewhere."""
        for query in self.all():
            if isinstance(query, StandingQuery):
                query.placed_anew()

    def close(self) -> None:
        """All queries have stopped."""
        if self._server is not None:
            self._server.close()
            self._server = None

    @functools.cached_property
    def _linger(self) -> Linger:
        """How long rows wait for more rows before bundles that stand take them."""
        settings = self._run.settings
        return Linger(settings.latency, settings.latency_cores, settings.latency_under_load / 2)

    def _bundle_server(self) -> BundleServer:
        if self._server is None:
            conf = self._run.host.spark.conf
            host = conf.get("spark.driver.host") or "127.0.0.1"
            self._server = BundleServer(host, conf.get("spark.driver.bindAddress", "") or "")
        return self._server

    def _accounts_of(self, operator: Operator) -> StateAccounts | None:
        if not isinstance(operator, Keyed):
            return None
        if operator.name not in self._accounts:
            tell = functools.partial(self._run.accounted, operator.name)
            complain = functools.partial(self._run.happened, "fault", subject=operator.name)
            self._accounts[operator.name] = StateAccounts(operator.output_mode, tell, complain)
        return self._accounts[operator.name]

    def _seats(self, operator: str) -> Seats:
        arrangement, slots = self._run.arrangement, self._run.host.slots

        def bundles() -> Sequence[Bundle]:
            # Seats ask this once for every micro-batch, before its rows are split: a new placement takes effect here.
            placement = arrangement.requested
            query = self.by_operator[operator]
            if query.state is not None and query.query is not None:
                query.state.settle(query.query, placement.tasks[operator], slots.executor)
            return bundles_of(placement.of(operator))

        def ran_on(report: BundleReport) -> str:
            tasks = [slot.name for slot in arrangement.requested.tasks.get(operator, ())]
            return place_of(report, slots.by_executor(), tasks)

        return Seats(bundles, slots.executor, ran_on, lambda: arrangement.requested.tasks.get(operator, ()))
