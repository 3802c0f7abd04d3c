"""What one thread does to a run while another replaces a query: each test forces the one order of steps in which that
went wrong. Doubles for Spark; the gates are real."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from no_standing_room import NO_ROOM

from penstock import Settings, Topology, sinks, sources
from penstock.cluster.model import Cluster, Machine, Placement, Slot
from penstock.engine.change.changes import RunChanges, RunningEngine
from penstock.engine.query.intake import Intake
from penstock.engine.query.pacing import Pacer
from penstock.engine.query.query import OperatorQuery
from penstock.engine.query.state_account import StateAccount, StateAccounts
from penstock.engine.run import chaining, queries
from penstock.engine.run.ending import END_SECONDS
from penstock.engine.run.keeping import Keeper
from penstock.engine.spark.failures import FailureKind
from penstock.engine.topology import SparkTopology
from penstock.errors import PenstockError
from penstock.plans.enacting import Status
from penstock.plans.plan import Plan, SetInstances

LOST = "ExecutorLostFailure (executor 1 exited)"
FULL = "[Errno 28] No space left on device"
A, B = Slot("local", 0), Slot("local", 1)
CLUSTER = Cluster((Machine("local", (A, B)),))
#: How long a thread that another one holds up is given: it gets no further, and the test then goes on.
HELD_UP = 0.5


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


class Channels:
    """Nothing is ever full, and who waits is back at once."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def notify(self) -> None: ...

    def full(self, channel: str) -> bool:
        return False

    def pause(self, timeout: float) -> None: ...


class Rows:
    """A source that always has some."""

    drained = False

    def available(self) -> int:
        return 10

    def due_in(self) -> float | None:
        return None

    def look(self) -> None: ...


class HookedIntake(Intake):
    """Calls what it is told to before it is paused or opened."""

    before_pause: ClassVar[Callable[[], None] | None] = None
    before_open: ClassVar[Callable[[], None] | None] = None

    def pause(self, paused: bool = True) -> None:
        hook, HookedIntake.before_pause = HookedIntake.before_pause, None
        if hook is not None:
            hook()
        super().pause(paused)

    def open(self) -> None:
        hook, HookedIntake.before_open = HookedIntake.before_open, None
        if hook is not None:
            hook()
        super().open()


class FakeQuery(OperatorQuery):
    """A query without Spark: it has its feeds, and runs, from the middle of its start on."""

    while_starting: ClassVar[Callable[[FakeQuery], None] | None] = None

    def __init__(self, operators: list[Any], context: Any = None, seats: Any = None) -> None:
        self.chain = tuple(operators)
        self.operator = operators[0]
        self.failure = None
        self.kind = FailureKind.CERTAIN
        self.was_idle = False
        self.feeds = []
        self.query = None
        self.state = None
        self.accounts = None
        self.active = False
        self._failing = threading.Lock()
        self._runs = False
        self._stopping = False
        self.intake = HookedIntake(Channels(), [], Pacer(0.5, 1000), 0.0, self.fail)  # type: ignore[arg-type]

    def start(self) -> None:
        self._runs = True
        hook = type(self).while_starting
        if hook is not None:
            type(self).while_starting = None
            hook(self)
        if not self.emits_by_itself:
            feed: Any = Rows()
            self.intake.add(feed)
            self.feeds = [feed]
        self.active = True

    def notice_end(self) -> None: ...

    def stop(self) -> None:
        self.intake.close()
        self._stopping = True
        self._runs = self._runs and not self.active
        self.active = False

    @property
    def lets_rows_in(self) -> bool:
        if self.emits_by_itself:
            return self.active
        return self.intake.admits(self.feeds[0]) > 0


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SparkTopology]:
    monkeypatch.setattr(queries, "OperatorQuery", FakeQuery)
    monkeypatch.setattr(FakeQuery, "while_starting", None)
    monkeypatch.setattr(HookedIntake, "before_pause", None)
    monkeypatch.setattr(HookedIntake, "before_open", None)

    def run(source: Any = None, maps: Sequence[str] = (), chaining: str = "off") -> SparkTopology:
        topology = Topology("t")
        rows = topology.source("rows", source or sources.rate(1, sources.numbers()))
        for name in maps:
            rows = topology.map(name, same, inputs=rows, schema="id long, value double")
        topology.sink("out", sinks.noop(), inputs=rows)
        slots = SimpleNamespace(
            usable=lambda: frozenset(CLUSTER.slots), executor=lambda slot: None, forget=lambda listener: None
        )
        host: Any = SimpleNamespace(cluster=CLUSTER, slots=slots)
        made = SparkTopology(topology.definition(), host, SimpleNamespace(), Settings(chaining=chaining))  # type: ignore[arg-type]
        nothing_waits = SimpleNamespace(
            backlog=lambda operator, channel: SimpleNamespace(rows=0),
            last_batch=lambda operator: None,
            catch_up=lambda: None,
        )
        made._context = SimpleNamespace(channels=nothing_waits, room=NO_ROOM)  # type: ignore[assignment]
        made.happened = lambda *words, **more: None  # type: ignore[assignment, return-value]
        monitor = SimpleNamespace(restart=lambda at: None)
        made._watcher = SimpleNamespace(monitor=monitor, hear_waits=lambda: None, close=lambda: None)  # type: ignore[assignment]
        made.started_at = 1.0
        made.chaining.begin()
        made.queries.start_all()
        made.queries.let_all_in()
        return made

    return run


def source_of(run: SparkTopology) -> FakeQuery:
    query = run.queries.by_operator["rows"]
    assert isinstance(query, FakeQuery)
    return query


def lose_executors(run: SparkTopology) -> None:
    source_of(run).fail(RuntimeError(LOST))


def beside(work: Callable[[], object]) -> tuple[Callable[[], None], threading.Thread]:
    """A hook that has this done by another thread, and goes on when it is done or held up."""
    thread = threading.Thread(target=work, daemon=True)

    def hook() -> None:
        thread.start()
        thread.join(HELD_UP)

    return hook, thread


def test_a_pause_beside_a_query_that_is_being_replaced_pauses_the_new_one_too(
    make: Callable[..., SparkTopology],
) -> None:
    run = make()
    lose_executors(run)
    # The new query has asked whether the sources are paused, and is about to do as it was told: they are not.
    HookedIntake.before_pause, pausing = beside(run.pause)
    run.queries.mend()
    pausing.join(5)
    assert run.paused
    assert source_of(run).intake.paused
    assert not source_of(run).lets_rows_in


def test_a_resume_beside_a_query_that_is_being_replaced_lets_the_new_one_go_on(
    make: Callable[..., SparkTopology],
) -> None:
    run = make()
    run.pause()
    lose_executors(run)
    HookedIntake.before_pause, resuming = beside(run.resume)
    run.queries.mend()
    resuming.join(5)
    assert not run.paused
    assert source_of(run).lets_rows_in


def test_a_drain_that_begins_while_a_source_is_let_in_again_keeps_it_shut(make: Callable[..., SparkTopology]) -> None:
    run = make()
    lose_executors(run)
    HookedIntake.before_open, ending = beside(run.begin_drain)
    run.queries.mend()
    ending.join(5)
    assert run.gates.draining
    assert not source_of(run).lets_rows_in


def test_a_source_that_is_started_again_while_the_run_drains_lets_nothing_in(
    make: Callable[..., SparkTopology],
) -> None:
    run = make()
    lose_executors(run)
    run.begin_drain()
    shut = source_of(run)
    run.queries.mend()
    assert source_of(run) is not shut
    assert not source_of(run).lets_rows_in


def test_a_gate_that_is_closed_for_good_cannot_be_opened(make: Callable[..., SparkTopology]) -> None:
    run = make()
    query = source_of(run)
    query.intake.close()
    query.intake.open()
    assert not query.lets_rows_in


def test_a_source_that_is_being_started_again_is_not_drained(make: Callable[..., SparkTopology]) -> None:
    """It has a batch to replay: what that emits is still to come."""
    run = make()
    lose_executors(run)
    run.begin_drain()
    run.queries.by_operator["out"].intake.progress.empty_polls = 2
    run.queries.by_operator["out"].feeds = []
    seen = []
    FakeQuery.while_starting = lambda query: seen.append(run.drained)
    run.queries.mend()
    assert seen == [False]
    assert not run.drained
    source_of(run).intake.progress.empty_polls = 2
    assert run.drained


def test_a_source_that_spark_drives_is_not_started_again_while_all_ends(make: Callable[..., SparkTopology]) -> None:
    run = make(sources.dataframe(lambda spark: spark, schema="id long"))
    lose_executors(run)
    run.begin_drain()
    run.queries.mend()
    assert not source_of(run).lets_rows_in


def test_a_drain_that_begins_while_a_source_that_spark_drives_is_started_stops_it(
    make: Callable[..., SparkTopology],
) -> None:
    run = make(sources.dataframe(lambda spark: spark, schema="id long"))
    lose_executors(run)
    hook, ending = beside(run.begin_drain)
    FakeQuery.while_starting = lambda query: (hook(), seen.append(query.quiet))
    seen: list[bool] = []
    run.queries.mend()
    ending.join(5)
    assert seen == [False], "it may publish a batch before it is stopped"
    assert not source_of(run).lets_rows_in
    assert source_of(run).quiet


def test_one_that_fails_between_two_looks_is_mended_and_not_reported(
    make: Callable[..., SparkTopology], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was well when somebody asked whether it can be mended, and had lost its executors a moment later."""
    run = make()
    query = source_of(run)
    looks: list[None] = []

    def notice_end() -> None:
        looks.append(None)
        if len(looks) == 2:
            query.fail(RuntimeError(LOST))

    monkeypatch.setattr(query, "notice_end", notice_end)
    run.check()
    run.check()
    assert query.kind is FailureKind.LOST


def test_a_failure_is_never_seen_without_its_kind(
    make: Callable[..., SparkTopology], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sees that a query has failed also sees whether executors were lost: else it would be taken for its own
    fault, and end the topology."""
    run = make()
    query = source_of(run)
    seen = []

    class Watched(FakeQuery):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name in ("failure", "kind") and self.failure is not None:
                seen.append(self.kind is FailureKind.LOST)

    query.__class__ = Watched
    query.fail(RuntimeError(LOST))
    assert seen
    assert all(seen)


def test_failures_after_the_first_are_only_logged(
    make: Callable[..., SparkTopology], caplog: pytest.LogCaptureFixture
) -> None:
    query = source_of(make())
    with caplog.at_level("INFO", "penstock"):
        query.fail(RuntimeError(LOST))
        first = query.failure
        query.fail(RuntimeError("its consequence"))
    assert query.failure is first
    assert ["its consequence" in record.message for record in caplog.records] == [True]


def test_nothing_is_started_again_once_the_run_has_stopped(make: Callable[..., SparkTopology]) -> None:
    run = make()
    run.has_stopped = True
    with pytest.raises(PenstockError) as error:
        run.queries.start_again("rows")
    assert error.value.name == "STOPPING"


def test_a_run_that_was_drained_before_it_is_stopped_has_delivered_everything(
    make: Callable[..., SparkTopology],
) -> None:
    """`penstock run` waits by itself, and then stops at once: the event said that rows were still on their way."""
    run = make()
    run.begin_drain()
    for query in run.queries.all():
        query.intake.progress.empty_polls = 2
        query.feeds = []
    assert run.stop(drain=False)
    assert run.how_it_ended == "everything had reached the sinks"


def test_a_run_that_is_stopped_at_once_has_not(make: Callable[..., SparkTopology]) -> None:
    run = make()
    assert not run.stop(drain=False)
    assert run.how_it_ended == "rows were still on their way, and are kept"


def test_a_drain_looks_once_also_if_the_sources_take_all_its_time_to_end(
    make: Callable[..., SparkTopology], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query of a source that Spark drives ends after its batch, which can take longer than a short drain."""
    run = make()
    for query in run.queries.all():
        query.intake.progress.empty_polls = 2
        query.feeds = []
    begin = run.gates.begin_drain

    def slowly() -> None:
        begin()
        time.sleep(0.05)

    monkeypatch.setattr(run.gates, "begin_drain", slowly)
    assert run.gates.drain(0.01)


class HungCatalog:
    """The catalog of a server that never answers: whoever asks waits until somebody says how long at most."""

    def __init__(self) -> None:
        self.limits: list[float] = []
        self._is_limited = threading.Event()
        self.closed = False

    def wait_at_most(self, seconds: float) -> None:
        self.limits.append(seconds)
        if seconds == END_SECONDS:
            self._is_limited.set()

    def keep_hold(self) -> None:
        assert self._is_limited.wait(30)
        raise PenstockError("CATALOG_UNREACHABLE", "The catalog cannot be reached: it has not answered.", "")

    def close(self) -> None:
        self.closed = True


def test_a_run_whose_catalog_never_answers_ends_and_says_so(make: Callable[..., SparkTopology]) -> None:
    run = make()
    catalog: Any = HungCatalog()
    run._catalog = catalog
    events: list[tuple[str, str]] = []
    run.happened = lambda kind, reason, *words, **more: events.append((kind, reason))  # type: ignore[assignment, return-value]
    run._keeper = Keeper(catalog.keep_hold, 0.001, lambda: None)
    run._keeper.start()
    run.expect_end()
    thread = threading.Thread(target=run.stop, args=(False,), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "the stop hangs"
    assert catalog.limits == [run.settings.drain_seconds, END_SECONDS]
    assert catalog.closed
    assert [kind for kind, _ in events] == ["fault", "stopped"]
    for told in (events[0][1], run.how_it_ended, run.unwritten_because):
        assert "CATALOG_UNREACHABLE: The catalog cannot be reached: it has not answered)" in told
        assert told.endswith("with --state, the next run looks which, and goes on from there")


def test_a_run_that_another_driver_has_replaced_does_not_say_that_its_catalog_is_away(
    make: Callable[..., SparkTopology], monkeypatch: pytest.MonkeyPatch
) -> None:
    def replaced(_: object) -> None:
        raise PenstockError("STATE_TAKEN_OVER", "Another process has taken over.", "")

    run = make()
    run._catalog = HungCatalog()  # type: ignore[assignment]
    monkeypatch.setattr(HungCatalog, "keep_hold", replaced)
    run.stop(drain=False)
    assert run.unwritten_because == ""


def test_a_run_of_which_nobody_knows_what_is_inside_does_not_claim_that_everything_arrived(
    make: Callable[..., SparkTopology], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make()
    monkeypatch.setattr(run, "unknown_inside", lambda: ["windows"])
    run.begin_drain()
    for query in run.queries.all():
        query.intake.progress.empty_polls = 2
        query.feeds = []
    assert run.stop(drain=False)
    assert run.how_it_ended.startswith("no row was on its way any more; it is not known whether")
    assert '"windows"' in run.how_it_ended


class Ended:
    """A query of Spark's that has just finished a batch in which rows were dropped."""

    isActive = True

    def __init__(self) -> None:
        step = {"operatorName": "stateStoreSave", "numRowsTotal": 1, "numRowsDroppedByWatermark": 5}
        self.lastProgress = {"batchId": 7, "stateOperators": [step]}

    def stop(self) -> None:
        self.isActive = False


def test_what_the_last_batch_of_a_query_dropped_is_counted_when_it_is_stopped(
    make: Callable[..., SparkTopology],
) -> None:
    """It was read of when Spark asked for the next batch, which the next query has."""
    query = source_of(make())
    told: list[StateAccount] = []
    query.context = SimpleNamespace(settings=Settings())  # type: ignore[assignment]
    query.query = Ended()  # type: ignore[assignment]
    query.accounts = StateAccounts("append", told.append)
    query.accounts.published(7, None, 0, is_new=True)
    OperatorQuery.stop(query)
    assert [one.late_rows for one in told] == [5]


class Meta:
    """A catalog's small values; those in `full` find no room."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.full: set[str] = set()

    def set_meta(self, key: str, value: str) -> None:
        if key in self.full:
            raise PenstockError("CATALOG_UNREACHABLE", "database or disk is full.", "")
        self.values[key] = value


def split_on_a_full_disk(
    run: SparkTopology, apart: str, monkeypatch: pytest.MonkeyPatch, full: Sequence[str] = ()
) -> tuple[Status, list[str]]:
    """Have an operator placed apart from the chain that it is in. The query of "out" finds no room when it is started,
    nor do the named values of the catalog. Then there is room again, and whoever looks after queries looks."""
    catalog: Any = Meta()
    catalog.full = set(full)
    told: list[str] = []
    run._catalog = catalog
    run.happened = lambda kind, reason, *more: told.append(reason)  # type: ignore[assignment, return-value]
    monkeypatch.setattr(chaining, "JOIN_SECONDS", 0.1)
    [other] = {A, B} - run.placement.slots

    def no_room(query: FakeQuery) -> None:
        assert query.operator.name == "out"
        raise OSError(FULL)

    FakeQuery.while_starting = no_room
    outcome = RunChanges(run).carry_out(Plan((SetInstances(apart, {other: 1}),)))
    run.check()
    run.queries.mend()
    return outcome.status, told


def those_that_run(run: SparkTopology) -> set[str]:
    queries = {name: query for name, query in run.queries.by_operator.items() if isinstance(query, FakeQuery)}
    return {name for name, query in queries.items() if query.active and query.lets_rows_in}


def test_all_parts_of_a_chain_that_is_split_on_a_full_disk_run_in_the_end(
    make: Callable[..., SparkTopology], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last part did not start, and those before it were not tried: nobody knew of them."""
    run = make(maps=["m"], chaining="on")
    assert run.chaining.chains == (("rows", "m", "out"),)
    before = run.placement
    status, _ = split_on_a_full_disk(run, "m", monkeypatch)
    assert status is Status.ROLLED_BACK
    assert run.placement == before
    assert those_that_run(run) == {"rows", "m", "out"}


def test_a_roll_back_that_cannot_be_recorded_leaves_no_operator_behind(
    make: Callable[..., SparkTopology], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make(chaining="on")
    assert run.chaining.chains == (("rows", "out"),)
    before = run.placement
    status, told = split_on_a_full_disk(run, "out", monkeypatch, full=["placement"])
    assert status is Status.ROLLED_BACK
    assert run.placement == before
    assert those_that_run(run) == {"rows", "out"}
    assert any("could not be recorded" in one and "disk is full" in one for one in told)


def test_a_roll_back_asks_for_what_ran_before_even_if_a_chain_cannot_be_split_for_it(
    make: Callable[..., SparkTopology], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make(chaining="on")
    run._catalog = Meta()  # type: ignore[assignment]
    [other] = {A, B} - run.placement.slots
    apart = Placement({"rows": run.placement.instances["rows"], "out": {other: 1}}, {})
    monkeypatch.setattr(chaining, "JOIN_SECONDS", 0.1)

    def no_room(query: FakeQuery) -> None:
        raise OSError(FULL)

    FakeQuery.while_starting = no_room
    RunningEngine(run).restore(apart)
    assert run.placement == apart
    run.queries.mend()
    assert those_that_run(run) == {"rows", "out"}
