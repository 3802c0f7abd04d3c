"""A query takes the place of one whose last commit was never answered: on SQLite and on PostgreSQL."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from catalog_samples import QUICK, Open, lose_commits, new

from penstock import Settings, Topology, sinks, sources
from penstock.channels import log
from penstock.channels.catalog import Catalog
from penstock.channels.database import Retries
from penstock.channels.layout import Channel, channels_of
from penstock.channels.log import Bound, Channels
from penstock.channels.records import NewSegment
from penstock.channels.segments import SegmentStore, segment_name
from penstock.cluster.model import Slot
from penstock.engine.message.shares import Bundle
from penstock.engine.query.context import RunContext
from penstock.engine.query.publisher import Publisher
from penstock.engine.run.gates import Gates
from penstock.engine.run.queries import Queries
from penstock.engine.standing.batches import Dealt, Standing
from penstock.engine.standing.query import StandingQuery
from penstock.errors import PenstockError
from penstock.monitor.report import BatchReport, BundleReport
from penstock.topology.definition import TopologyDefinition

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.float64())])
BUNDLES = (Bundle(Slot("a", 0), 1), Bundle(Slot("b", 0), 1))


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def declared(folder: Path) -> TopologyDefinition:
    topology = Topology("words")
    rows = topology.source("rows", sources.rate(2000, sources.numbers()))
    kept = topology.map("kept", same, inputs=rows, schema="id long, value double")
    topology.sink("out", sinks.parquet(str(folder)), inputs=kept)
    return topology.definition()


class World:
    """A run whose bundles are worked by hand. Its queries, its channels and its catalog are real."""

    def __init__(self, open_catalog: Open, folder: Path) -> None:
        self.catalog = open_catalog(retries=QUICK)
        self.catalog.hold()
        self.definition = declared(folder / "out")
        self.layout = channels_of(self.definition)
        self.store = SegmentStore(str(folder / "segments"))
        readers = {name: channel.readers for name, channel in self.layout.items()}
        writers = {name: channel.producer for name, channel in self.layout.items()}
        self.channels = Channels(self.catalog, self.store, readers, writers, Bound(1 << 20, 1 << 30))
        #: By operator, the batches that the run was told of.
        self.told: dict[str, list[int]] = {"rows": [], "kept": [], "out": []}
        self.context = RunContext(
            definition=self.definition,
            spark=None,  # type: ignore[arg-type]
            streams=None,  # type: ignore[arg-type]
            channels=self.channels,
            layout=self.layout,
            store=self.store,
            settings=Settings(file_seconds=0.01),
            checkpoints="",
            published=self._published,
        )
        nobody: Any = SimpleNamespace(requested=SimpleNamespace(of=lambda operator: {}, tasks={}))
        self.run: Any = SimpleNamespace(
            definition=self.definition,
            settings=self.context.settings,
            host=SimpleNamespace(slots=SimpleNamespace(executor=lambda slot: None)),
            context=self.context,
            arrangement=nobody,
            chaining=SimpleNamespace(chain_of=lambda name: (name,), first_of=lambda name: name),
            publications=SimpleNamespace(newest=lambda operator: None),
            has_stopped=False,
            happened=lambda *told: None,
        )
        self.queries = self.run.queries = Queries(self.run)
        self.queries._server = SimpleNamespace(add=lambda query: "", remove=lambda name: None)  # type: ignore[assignment]
        self.run.gates = Gates(self.queries)

    def _published(self, report: BatchReport, taken: object) -> None:
        self.told[report.operator].append(report.batch)

    def start(self, operator: str) -> StandingQuery:
        self.queries.start_again(operator)
        query = self.queries.by_operator[operator]
        assert isinstance(query, StandingQuery)
        return query

    def end(self) -> None:
        for query in self.queries.all():
            query.stop()

    def channel_of(self, operator: str) -> Channel:
        [found] = [one for one in self.layout.values() if one.producer == operator]
        return found

    def fill(self, operator: str) -> None:
        """Rows for an operator to read. A source has its own."""
        for stream in self.definition.inputs_of(operator):
            last = self.channels.last_batch(stream.producer)
            number, channel = 0 if last is None else last + 1, self.channel_of(stream.producer).name
            segment = NewSegment(channel, f"{channel}-{number}", 300, 900, "a/0", 1.0, 2.0)
            assert self.channels.publish(stream.producer, number, [segment], "{}", {})

    def bundles(self, query: StandingQuery) -> list[Standing]:
        stands = [query.dealer.stand(1, index, bundle) for index, bundle in enumerate(BUNDLES)]
        query.dealer.serve(1, BUNDLES)
        return [one for one in stands if one is not None]

    def work_off(self, query: StandingQuery, standing: Standing, dealt: Dealt) -> NewSegment:
        """What a bundle writes and reports."""
        name, rows = self.channel_of(query.operator.name).name, dealt.batch.cut.read.rows
        file = segment_name(dealt.batch.number, dealt.part)
        column = [pa.array(range(rows), pa.int64()), pa.array([0.5] * rows, pa.float64())]
        written = self.store.write(name, file, [pa.record_batch(column, schema=SCHEMA)], SCHEMA)
        segment = NewSegment(name, written.path, written.rows, written.bytes, "a/0", 1.0, 2.0)
        assert query.dealer.done(standing, (reported(query, rows, segment),))
        return segment

    def one_batch(self, query: StandingQuery) -> NewSegment:
        standing, _ = self.bundles(query)
        dealt = query.dealer.take(standing)
        assert dealt is not None
        return self.work_off(query, standing, dealt)

    def two_cut(self, query: StandingQuery) -> list[tuple[Standing, Dealt]]:
        cut = []
        for standing in self.bundles(query):
            self.fill(query.operator.name)
            dealt = query.dealer.take(standing)
            assert dealt is not None
            cut.append((standing, dealt))
        return cut

    def files(self, operator: str) -> set[str]:
        return set(self.store.list(self.channel_of(operator).name))


def reported(query: StandingQuery, rows: int, *segments: NewSegment, staged: tuple[Path, Path] | None = None) -> Any:
    fields: dict[str, Any] = {"slot": "a/0", "instances": 1, "executor": None, "host": "", "pid": 0, "bytes_in": 0}
    times = {"busy": 0.01, "busy_total": 0.01, "cpu": 0.0, "seconds": 0.01, "born_from": 1.0, "born_to": 2.0}
    files = () if staged is None else ((f"|{staged[0]}", str(staged[1])),)
    written = {"segments": tuple(segments), "staged": files}
    return BundleReport(
        **fields, **times, **written, operator=query.operator.name, partition=0, rows_in=rows, rows_out={"out": rows}
    )


@pytest.fixture
def world(open_catalog: Open, tmp_path: Path) -> Iterator[World]:
    world = World(open_catalog, tmp_path)
    yield world
    world.end()


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def unanswered(
    world: World, operator: str, monkeypatch: pytest.MonkeyPatch, why: str = "connection lost"
) -> list[NewSegment]:
    """A query publishes batch 0. Its batches 1 and 2 are in the catalog, but no attempt at their commit is answered."""
    world.fill(operator)
    query = world.start(operator)
    kept = [world.one_batch(query)]
    until(lambda: world.told[operator] == [0])
    first, second = world.two_cut(query)
    with monkeypatch.context() as broken:
        lose_commits(world.catalog, broken, QUICK.times + 1, why)
        later = world.work_off(query, *second)  # it waits for the one before it: both share a transaction
        kept += [world.work_off(query, *first), later]
        until(lambda: query.failure is not None)
    assert query.failure is not None and query.failure.name == "CATALOG_UNREACHABLE"
    assert (world.catalog.last_batch(operator), world.channels.last_batch(operator)) == (2, 0)
    return kept


def rebuilt(world: World, query: Any) -> StandingQuery:
    query.stop()
    return world.start(query.operator.name)


@pytest.mark.parametrize("operator", ["rows", "kept"])
def test_a_query_goes_on_behind_batches_whose_commit_was_not_answered(
    world: World, operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = unanswered(world, operator, monkeypatch)
    query = rebuilt(world, world.queries.by_operator[operator])
    world.fill(operator)
    kept.append(world.one_batch(query))
    until(lambda: query.failure is not None or world.told[operator] == [0, 3])
    assert query.failure is None
    world.channels.sweep(thorough=True)
    state, channel = world.catalog.load(), world.channel_of(operator).name
    named = [one for one in state.segments if one.channel == channel]
    assert [one.path for one in named] == [one.path for one in kept], "each batch once, in order, with its files"
    assert world.files(operator) == {one.path for one in kept}
    assert world.channels.end(channel) == state.ends[channel] == sum(one.rows for one in kept)


def test_the_run_starts_a_query_again_whose_server_had_no_room_for_an_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a catalog that is only away, the run ends. Over a full disk, it starts the query again."""
    unanswered(world, "rows", monkeypatch, "No space left on device")
    failed = world.queries.by_operator["rows"]
    world.queries.mend()
    query: Any = world.queries.by_operator["rows"]
    assert query is not failed and query.failure is None
    world.one_batch(query)
    until(lambda: world.told["rows"] == [0, 3])


def test_a_catalog_that_is_away_for_a_moment_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    unanswered(world, "rows", monkeypatch)
    with monkeypatch.context() as broken:
        lost = lose_commits(world.catalog, broken, QUICK.times)
        query = rebuilt(world, world.queries.by_operator["rows"])
    assert len(lost) == QUICK.times
    world.one_batch(query)
    until(lambda: world.told["rows"] == [0, 3])


def test_a_query_does_not_start_on_a_catalog_that_stays_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would begin at what was known before. Whoever tries again begins at what is published."""
    unanswered(world, "rows", monkeypatch)
    with monkeypatch.context() as broken, pytest.raises(PenstockError, match="CATALOG_UNREACHABLE"):
        lose_commits(world.catalog, broken, QUICK.times + 1)
        rebuilt(world, world.queries.by_operator["rows"])
    failed: Any = world.queries.by_operator["rows"]
    assert failed.failure is not None and failed.supply is None
    assert world.channels.last_batch("rows") == 0
    query = rebuilt(world, failed)
    world.one_batch(query)
    until(lambda: world.told["rows"] == [0, 3])


def test_the_publish_of_another_query_brings_what_was_not_answered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    unanswered(world, "kept", monkeypatch)
    world.fill("kept")
    state = world.catalog.load()
    assert world.channels.last_batches == state.last_batches
    channel = world.channel_of("kept").name
    assert world.channels.end(channel) == state.ends[channel]


def test_files_of_batches_that_were_not_answered_stay(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the query is started again, and when another one, with higher numbers, writes the channel from then on: a
    chain was taken apart."""
    channel = world.channel_of("rows").name
    for number in range(9):
        assert world.channels.publish("kept", number, [], "{}", {})
    kept = unanswered(world, "rows", monkeypatch)
    world.channels.sweep(thorough=True)
    assert world.files("rows") == {one.path for one in kept}
    world.queries.by_operator["rows"].stop()
    world.channels.catch_up()
    world.channels.written_by(channel, "kept")
    world.channels.sweep(thorough=True)
    assert world.files("rows") == {one.path for one in kept}
    assert world.channels.publish("kept", 9, [new("next", channel=channel)], "{}", {})
    assert world.catalog.load().ends[channel] == sum(one.rows for one in kept) + 10


def test_files_of_a_sink_get_their_names_though_their_batch_was_not_answered(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged, final = tmp_path / "staged", tmp_path / "final"
    staged.write_text("rows")
    world.fill("out")
    query = world.start("out")
    standing, _ = world.bundles(query)
    dealt = query.dealer.take(standing)
    assert dealt is not None
    with monkeypatch.context() as broken:
        lose_commits(world.catalog, broken, QUICK.times + 1)
        assert query.dealer.done(standing, (reported(query, 300, staged=(staged, final)),))
        until(lambda: query.failure is not None)
    assert staged.exists()
    again = rebuilt(world, query)
    assert final.read_text() == "rows" and not staged.exists()
    assert again.drained, "its rows are read"


def test_a_micro_batch_that_was_not_answered_does_not_run_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark plans the same batch again, with the same end. A sink that is a function is not called once more."""
    unanswered(world, "kept", monkeypatch)
    world.queries.by_operator["kept"].stop()
    world.channels.catch_up()
    compared: list[int] = []
    monkeypatch.setattr(RunContext, "checkpoint_log", lambda context, operator: None)
    monkeypatch.setattr(
        "penstock.engine.query.publisher.check_batch",
        lambda operator, log, catalog, batch, last: compared.append(batch),
    )
    publisher = Publisher([world.definition.operator("kept")], world.context)
    assert publisher.has(2) and compared == [2]
    assert not publisher.has(3)


def test_a_query_of_a_driver_that_was_replaced_does_not_start(
    world: World, open_catalog: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    unanswered(world, "rows", monkeypatch)
    world.catalog._database._hold.release()
    second = open_catalog()
    second.hold()
    assert second.publish("rows", 3, [], "{}", {}) is not None
    with pytest.raises(PenstockError, match="STATE_TAKEN_OVER"):
        rebuilt(world, world.queries.by_operator["rows"])
    assert world.channels.last_batch("rows") == 0, "what another driver has published is not adopted"


def test_what_the_query_before_it_is_still_publishing_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, begun, may_go_on = world.catalog.publish_all, threading.Event(), threading.Event()

    def held_up(batches: Any) -> Any:
        begun.set()
        assert may_go_on.wait(30)
        return publish(batches)

    report = BatchReport("rows", 0, 1.0, 2.0, 7, {}, (), ends={"0": 7}).as_json()
    with monkeypatch.context() as slow:
        slow.setattr(world.catalog, "publish_all", held_up)
        late = threading.Thread(target=lambda: world.channels.publish("rows", 0, [], report, {}))
        late.start()
        assert begun.wait(30)
        starting = threading.Thread(target=lambda: world.start("rows"))
        starting.start()
        starting.join(0.3)
        assert starting.is_alive()
        may_go_on.set()
        late.join(30)
        starting.join(30)
    query: Any = world.queries.by_operator["rows"]
    assert query.supply.position == 7
    world.one_batch(query)
    until(lambda: world.told["rows"] == [1])


def test_a_publish_that_never_ends_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "CATCH_UP_SECONDS", 0.05)
    with world.channels._publishing.held(1.0), pytest.raises(PenstockError, match="CATALOG_UNREACHABLE"):
        world.start("rows")


# A server that is still at the commit when nobody listens any more


WAITING = sa.text("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")


class Replica:
    """The server waits at every commit for a replica that is not there."""

    def __init__(self, url: str) -> None:
        self._catalog = Catalog.open(url, "bystander")
        self._engine = self._catalog._database._engine.execution_options(isolation_level="AUTOCOMMIT")

    def lack(self, lacks: bool = True) -> None:
        name = "nobody" if lacks else ""
        with self._engine.connect() as connection:
            connection.execute(sa.text(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'"))
            connection.execute(sa.text("SELECT pg_reload_conf()"))
            until(lambda: connection.execute(sa.text("SHOW synchronous_standby_names")).scalar() == name)
            # The process that makes checkpoints tells all others, also of what it has just read.
            connection.execute(sa.text("CHECKPOINT"))

    def await_commit(self) -> None:
        """Until the server waits at a commit."""
        with self._engine.connect() as connection:
            until(lambda: connection.execute(WAITING).scalar())

    def close(self) -> None:
        self.lack(False)
        self._catalog.close()


@pytest.fixture
def replica(postgresql_url: str) -> Iterator[Replica]:
    replica = Replica(postgresql_url)
    yield replica
    replica.close()


@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_commit_that_the_server_is_still_at_is_waited_for(
    postgresql_url: str,
    tmp_path: Path,
    replica: Replica,
    at_the_end: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = Catalog.open(postgresql_url, "words", retries=Retries(times=0))
    catalog.hold()
    store = SegmentStore(str(tmp_path / "segments"))
    channels = Channels(catalog, store, {"lines": ["count"]}, {"lines": "read"}, Bound(100, 1 << 20))
    batches = [pa.record_batch([[1], [0.5]], schema=SCHEMA)]
    written = store.write("lines", segment_name(0, 0), batches, SCHEMA)
    segment = NewSegment("lines", written.path, written.rows, written.bytes, "a/0", 1.0, 2.0)
    commit, connected = catalog._database._engine.dialect.do_commit, list[Any]()

    def noted(connection: Any) -> None:
        connected.append(connection)
        commit(connection)

    errors: list[str] = []

    def publish() -> None:
        try:
            channels.publish("read", 0, [segment], "{}", {})
        except PenstockError as error:
            errors.append(error.name)

    with monkeypatch.context() as patch:
        patch.setattr(catalog._database._engine.dialect, "do_commit", noted)
        replica.lack()
        publishing = threading.Thread(target=publish)
        publishing.start()
        replica.await_commit()
        with socket.socket(fileno=os.dup(connected[0].pgconn.socket)) as line:
            line.shutdown(socket.SHUT_RDWR)
        publishing.join(30)
    assert errors == ["CATALOG_UNREACHABLE"]
    assert catalog.load().last_batches == {}, "whoever only reads does not see it yet"
    catching_up = threading.Thread(target=channels.sweep_at_the_end if at_the_end else channels.catch_up)
    catching_up.start()
    catching_up.join(0.3)
    assert catching_up.is_alive()
    replica.lack(False)
    catching_up.join(30)
    assert channels.last_batch("read") == 0 and channels.end("lines") == 1
    assert store.list("lines") == [segment.path]
    catalog.close()
