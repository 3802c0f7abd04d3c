"""The queries of a run without Spark: who is started again, who is let in, and what happens if that fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from no_standing_room import NO_ROOM

from penstock import Topology, sinks, sources
from penstock.engine.run import queries
from penstock.engine.run.gates import Gates
from penstock.engine.run.queries import Queries, StaysStopped
from penstock.engine.run.restarts import FIRST_WAIT, Restarts
from penstock.engine.spark.failures import FailureKind
from penstock.errors import PenstockError
from penstock.monitor.publications import Publications
from penstock.monitor.report import BatchReport
from penstock.settings import Settings

LOST = "ExecutorLostFailure (executor 1 exited)"
FULL = "[Errno 28] No space left on device"
UNKNOWN = "the stars are wrong"


class FakeQuery:
    """As much of an OperatorQuery as Queries asks for. What is in `problems` happens to those that are started."""

    problems: ClassVar[list[Exception]] = []

    def __init__(self, operators: list[Any], context: Any = None, seats: Any = None) -> None:
        self.operator = operators[0]
        self.failure: PenstockError | None = None
        self.kind = FailureKind.CERTAIN
        self.was_idle = False
        self.stopped = False
        self.is_open = False
        self.emits_by_itself = False

        def nothing() -> None: ...

        gate = {"pause": lambda paused: None, "open": self._open, "close": nothing, "expect_nothing_more": nothing}
        self.intake = SimpleNamespace(**gate)

    def _open(self) -> None:
        self.is_open = True

    def start(self) -> None:
        if self.problems:
            raise self.problems.pop(0)

    def fail(self, error: Exception) -> None:
        kinds = {LOST: FailureKind.LOST, FULL: FailureKind.FULL, UNKNOWN: FailureKind.PASSING}
        self.kind = kinds.get(str(error), FailureKind.CERTAIN)
        self.failure = PenstockError("OPERATOR_FAILED", str(error), "")

    def check(self) -> None:
        if self.failure:
            raise self.failure

    def notice_end(self) -> None:
        pass

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(queries, "OperatorQuery", FakeQuery)
    FakeQuery.problems = []
    topology = Topology("t")
    rows = topology.source("rows", sources.rate(1))
    topology.sink("out", sinks.noop(), inputs=rows)
    #: By operator, what the catalog knows of earlier runs.
    batches: dict[str, int] = {}
    made = SimpleNamespace(
        definition=topology.definition(),
        settings=Settings(query_restarts=1),
        batches=batches,
        now=0.0,
        context=SimpleNamespace(room=NO_ROOM, channels=SimpleNamespace(last_batch=batches.get, catch_up=lambda: None)),
        arrangement=None,
        host=SimpleNamespace(slots=SimpleNamespace(executor=None)),
        chaining=SimpleNamespace(chain_of=lambda name: (name,), first_of=lambda name: name),
        publications=Publications(),
        has_stopped=False,
        told=[],
    )
    made.happened = lambda kind, reason, *more: made.told.append(kind)
    made.queries = Queries(made)
    made.allow = lambda most: setattr(
        made.queries, "_restarts", Restarts(most, made.queries._last_batch, lambda: made.now)
    )
    made.allow(1)
    made.gates = Gates(made.queries)
    made.query = lambda name: made.queries.by_operator[name]
    made.queries.start_all()
    made.queries.let_all_in()
    return made


def lose_executors(run: Any, operator: str) -> FakeQuery:
    query: FakeQuery = run.queries.by_operator[operator]
    query.fail(RuntimeError(LOST))
    return query


def test_a_query_that_lost_its_executors_is_started_again_and_let_in(run: Any) -> None:
    lost = lose_executors(run, "out")
    run.queries.mend()
    again = run.queries.by_operator["out"]
    assert again is not lost
    assert lost.stopped
    assert again.is_open
    assert run.told == ["fault", "recovery"]


def publish(run: Any, operator: str) -> None:
    run.publications.note(BatchReport(operator, 0, 1.0, 2.0, 1, {}, ()))


def test_what_may_pass_is_tried_again_where_the_operator_has_worked(run: Any) -> None:
    query = run.queries.by_operator["out"]
    query.fail(RuntimeError(UNKNOWN))
    assert not run.queries.mendable(query), "what fails from the beginning is a mistake"
    publish(run, "out")
    run.queries.mend()
    assert run.queries.by_operator["out"] is not query
    assert run.told == ["fault", "recovery"]
    run.queries.by_operator["out"].fail(RuntimeError(UNKNOWN))
    assert not run.queries.mendable(run.queries.by_operator["out"]), "only so often"


def test_a_mistake_is_told_at_once(run: Any) -> None:
    publish(run, "out")
    query = run.queries.by_operator["out"]
    query.fail(RuntimeError("a function's own"))
    assert not run.queries.mendable(query)


def test_what_may_pass_in_the_first_batch_on_an_old_state_is_tried_again_too(run: Any) -> None:
    """A driver that is started again has published nothing, but its operators have worked before."""
    run.batches["out"] = 7
    query = run.queries.by_operator["out"]
    query.fail(RuntimeError(UNKNOWN))
    run.queries.mend()
    assert run.queries.by_operator["out"] is not query


def test_a_mistake_on_an_old_state_is_told_at_once(run: Any) -> None:
    run.batches["out"] = 7
    query = run.queries.by_operator["out"]
    query.fail(RuntimeError("a function's own"))
    assert not run.queries.mendable(query)


@pytest.mark.parametrize("problem", [UNKNOWN, LOST, FULL])
def test_a_query_is_started_again_at_once_and_then_less_and_less_often(run: Any, problem: str) -> None:
    """Spark itself waits for executors, so the first restart need not. If restarts did not wait later either, executors
    that are lost one after the other would use them up in a moment."""
    run.allow(3)
    publish(run, "out")
    for seconds in (0.0, FIRST_WAIT, 2 * FIRST_WAIT):
        query = run.queries.by_operator["out"]
        query.fail(RuntimeError(problem))
        if seconds:
            run.now += seconds - 0.01
            run.queries.mend()
            assert run.queries.by_operator["out"] is query
            assert run.queries.mendable(query)
            run.now += 0.02
        run.queries.mend()
        assert run.queries.by_operator["out"] is not query


def lose_again_and_again(run: Any) -> int:
    """Lose executors for half a minute, or until the query is given up; how often it was started again."""
    restarts = 0
    while run.now < 30 and run.queries.mendable(lost := lose_executors(run, "out")):
        run.queries.mend()
        restarts += run.queries.by_operator["out"] is not lost
        run.now += 0.2
    return restarts


def test_executors_that_are_lost_within_seconds_do_not_end_the_topology(run: Any) -> None:
    run.allow(5)
    run.batches["out"] = 7
    assert 5 < lose_again_and_again(run) < 12
    assert run.now >= 30


def test_an_operator_that_has_worked_in_a_chain_is_waited_for_as_long(run: Any) -> None:
    """Its chain was taken apart. By itself the operator has published nothing yet."""
    run.allow(5)
    publish(run, "out")
    assert 5 < lose_again_and_again(run) < 12
    assert run.now >= 30


def test_an_operator_that_has_never_worked_has_its_restarts_and_no_more_time(run: Any) -> None:
    run.allow(5)
    assert lose_again_and_again(run) == 5
    assert run.now < 10


def test_executors_that_are_lost_every_few_minutes_do_not_end_a_topology_without_rows(run: Any) -> None:
    run.batches["out"] = 7
    for _ in range(5):
        lost = lose_executors(run, "out")
        lost.was_idle = True
        run.queries.mend()
        assert run.queries.by_operator["out"] is not lost
        run.now += 180
    busy = lose_executors(run, "out")
    assert not run.queries.mendable(busy), "rows waited for this one, and it has published nothing"


def test_only_so_often(run: Any) -> None:
    lose_executors(run, "out")
    run.queries.mend()
    run.now = 61.0
    lost = lose_executors(run, "out")
    assert not run.queries.mendable(lost)
    run.queries.mend()
    assert run.queries.by_operator["out"] is lost


def test_while_it_is_being_started_again_it_counts_as_mendable(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = lose_executors(run, "out")
    seen = []
    monkeypatch.setattr(FakeQuery, "start", lambda query: seen.append(run.queries.mendable(lost)))
    run.queries.mend()
    assert seen == [True]


def test_one_that_another_thread_has_replaced_meanwhile_is_left_alone(run: Any) -> None:
    lost = lose_executors(run, "out")
    run.queries.start_again("out")
    healthy = run.queries.by_operator["out"]
    run.queries._mend(lost)
    assert run.queries.by_operator["out"] is healthy
    assert run.told == []


def test_a_query_that_does_not_start_is_known_to_have_failed(run: Any) -> None:
    FakeQuery.problems = [RuntimeError("the storage is away")]
    with pytest.raises(PenstockError, match="the storage is away"):
        run.queries.start_parts(["out"])
    assert run.queries.by_operator["out"].failure is not None


def test_a_query_keeps_its_place_until_the_channels_have_caught_up(run: Any) -> None:
    """That may take minutes, and a query of micro-batches that was never started says that it has read everything."""
    lost, found = lose_executors(run, "out"), []
    run.context.channels.catch_up = lambda: found.append(run.queries.by_operator["out"])
    run.queries.mend()
    assert found == [lost]
    assert run.queries.by_operator["out"] is not lost


def test_a_query_is_not_started_if_the_channels_cannot_catch_up(run: Any) -> None:
    def fail() -> None:
        raise RuntimeError("no answer")

    run.context.channels.catch_up = fail
    FakeQuery.problems = [RuntimeError("it was started")]
    lost = lose_executors(run, "out")
    run.queries.mend()
    query = run.queries.by_operator["out"]
    assert query is not lost
    assert "no answer" in query.failure.message
    assert FakeQuery.problems, "it was not started"


def test_a_run_that_has_stopped_does_not_wait_for_the_catalog(run: Any) -> None:
    caught_up: list[str] = []
    run.context.channels.catch_up = lambda: caught_up.append("a wait")
    run.has_stopped = True
    with pytest.raises(PenstockError, match="STOPPING"):
        run.queries.start_parts(["rows", "out"])
    assert not caught_up


def test_a_part_that_does_not_start_keeps_no_other_from_being_started(run: Any) -> None:
    before = dict(run.queries.by_operator)
    FakeQuery.problems = [OSError(FULL), RuntimeError("and this one too")]
    with pytest.raises(PenstockError, match="No space left"):
        run.queries.start_parts(["rows", "out"])
    for name in ("rows", "out"):
        assert run.queries.by_operator[name] is not before[name]
        assert run.queries.by_operator[name].failure is not None


def test_who_does_not_start_again_either_is_not_forgotten(run: Any) -> None:
    lose_executors(run, "out")
    FakeQuery.problems = [RuntimeError(LOST)]
    run.queries.mend()
    assert run.queries.by_operator["out"].failure is not None
    assert run.told == ["fault"]


def test_a_source_that_is_started_again_while_all_ends_emits_nothing(run: Any) -> None:
    run.gates.draining = True
    for operator in ("rows", "out"):
        run.queries.start_again(operator)
    assert not run.queries.by_operator["rows"].is_open
    assert run.queries.by_operator["out"].is_open


def test_one_that_is_held_gets_nothing_until_it_is_released(run: Any) -> None:
    run.gates.held = {"out"}
    run.queries.start_again("out")
    assert not run.queries.by_operator["out"].is_open
    run.gates.release("out")
    assert run.queries.by_operator["out"].is_open
    run.queries.start_again("out")
    assert run.queries.by_operator["out"].is_open, "nobody closes it again behind its back"


def test_a_query_whose_disk_was_full_is_started_again_as_often_as_it_takes(run: Any) -> None:
    for _ in range(10):  # far more often than `query_restarts` allows
        full: FakeQuery = run.queries.by_operator["out"]
        full.fail(OSError(FULL))
        assert run.queries.mendable(full), "the topology does not end over it"
        run.queries.mend()
        assert run.queries.by_operator["out"] is not full
        run.now += 10


def test_a_query_that_was_stopped_for_a_block_is_started_again_whatever_fails_there(run: Any) -> None:
    before = run.queries.by_operator["out"]
    with pytest.raises(OSError, match="no"), run.queries.stopped("out"):
        raise OSError("no")
    assert before.stopped
    assert run.queries.by_operator["out"] is not before
    assert run.queries.by_operator["out"].is_open


def test_a_query_that_is_to_stay_stopped_has_failed_and_is_not_started(run: Any) -> None:
    FakeQuery.problems = [RuntimeError("it was started")]
    error = StaysStopped("REPARTITION_FAILED", "its state is ahead of the catalog.", "Start the topology again.")
    with pytest.raises(StaysStopped), run.queries.stopped("out"):
        raise error
    failed = run.queries.by_operator["out"]
    assert FakeQuery.problems, "it was not started"
    assert not failed.is_open
    assert "ahead of the catalog" in str(failed.failure)
    assert not run.queries.mendable(failed)
    run.queries.mend()
    assert run.queries.by_operator["out"] is failed


def test_a_query_that_fails_while_it_finishes_its_batch_is_stopped(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever cuts its state starts another query on its checkpoint next; nobody else would stop this one."""

    def fails(query: FakeQuery, seconds: float) -> None:
        query.fail(RuntimeError(LOST))
        query.check()

    monkeypatch.setattr(FakeQuery, "await_replay", fails, raising=False)
    with pytest.raises(PenstockError, match="ExecutorLost"):
        run.queries.finish_batch("out")
    assert run.queries.by_operator["out"].stopped


def test_who_reads_from_a_source_that_spark_drives_is_told_that_nothing_more_comes(run: Any) -> None:
    """Such a source has no feeds. A sink behind it would keep its last file open for as long as the setting says."""
    source, sink = run.query("rows"), run.query("out")
    told: list[str] = []
    source.feeds, source.quiet = [], False
    sink.feeds, sink.drained, sink.quiet = [SimpleNamespace(drained=False)], False, False
    sink.intake.expect_nothing_more = lambda: told.append("out")
    run.gates.draining = True
    run.queries.tell_who_is_the_last()
    assert told == [], "it may still run a batch"
    source.quiet = True
    run.queries.tell_who_is_the_last()
    assert told == ["out"]
