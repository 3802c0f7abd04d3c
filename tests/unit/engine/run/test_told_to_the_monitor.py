"""What the engine tells the monitor, with everything around it handed in."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY, Mock, call

import pytest
from monitor_fakes import A0, CLUSTER, DEFINITION, PLACEMENT

from penstock.channels.log import ChannelBacklog
from penstock.clock import run_time
from penstock.cluster.model import Cluster
from penstock.cluster.readings import MachineReading
from penstock.engine.query.feeds import Batch
from penstock.engine.run.watcher import Watched, Watcher
from penstock.monitor.monitor import Monitor
from penstock.monitor.report import BatchReport, BundleReport
from penstock.monitor.sample import Levels, Sample, Waited
from penstock.settings import Settings

WAITING = ChannelBacklog(40, 320, 90.0)


class Recorder(Monitor):
    """Keeps what it was told."""

    def __init__(self, since: float = 100.0) -> None:
        super().__init__(DEFINITION, Settings(), since)
        self.samples: list[Sample] = []
        self.looks: dict[str, Levels] = {}
        self.waits: list[tuple[str, dict[str, Sequence[Waited]]]] = []

    def take(self, sample: Sample, for_decisions: bool = True) -> None:
        self.samples.append(sample)
        super().take(sample, for_decisions)

    def waited(self, operator: str, waited: Mapping[str, Sequence[Waited]], at: float) -> None:
        if waited:
            self.waits.append((operator, dict(waited)))
        super().waited(operator, waited, at)

    def look(self, operator: str, levels: Levels) -> None:
        self.looks[operator] = levels
        super().look(operator, levels)


def query(name: str) -> Any:
    intake = SimpleNamespace(throttled=name == "rows", held_back=False)
    operator = DEFINITION.operator(name)
    fields: dict[str, Any] = {
        "feeds": [],
        "query": None,
        "waited": lambda: [],
        "batch_started": None,
        "open_batches": None,
    }
    return SimpleNamespace(operator=operator, chain=(operator,), intake=intake, **fields)


@pytest.fixture
def happened() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def around(happened: list[tuple[str, str]]) -> Watched:
    return Watched(
        definition=lambda: DEFINITION,
        queries={one.name: query(one.name) for one in DEFINITION.operators},
        channels=SimpleNamespace(backlog=lambda operator, channel: WAITING),  # type: ignore[arg-type]
        placement=lambda: PLACEMENT,
        cluster=lambda: CLUSTER,
        executors=lambda: {"7": A0.name},
        checkpoint=lambda operator: "/nowhere",
        readings=lambda: {},
        happened=lambda kind, text: happened.append((kind, text)),
    )


def report(batch: int = 0, finished: float = 200.0) -> BatchReport:
    fields: dict[str, Any] = {"slot": "b/0", "instances": 2, "partition": 0, "executor": "7", "host": "a", "pid": 1}
    counts: dict[str, Any] = {"rows_in": 10, "bytes_in": 80, "rows_out": {"out": 10}, "busy": 0.2, "busy_total": 0.4}
    times = {"cpu": 0.1, "seconds": 0.5, "born_from": 198.0, "born_to": 199.0}
    bundle = BundleReport(**fields, **counts, **times, traffic={"a/0": 80})
    return BatchReport("work", batch, finished - 1, finished, 10, {"out": 10}, (bundle,))


def test_a_sample_has_what_only_the_driver_knows(around: Watched) -> None:
    monitor = Recorder()
    watcher = Watcher(monitor, around, 10.0)
    channel = next(iter(watcher._known["work"].streams))
    taken = Batch({}, 10, rows_by_channel={channel: 10})
    watcher.published(report(0, 200.0), [taken])
    watcher.published(report(1, 203.0), [taken])
    first, second = monitor.samples
    assert [work.slot for work in first.slots] == ["a/0"], "where it ran, and not where it was to run"
    assert first.rows_in == {"rows->work": 10}
    assert first.traffic == {("a/0", "a/0"): 80}
    assert second.waiting == pytest.approx(2.0)
    assert second.levels is not None
    assert second.levels.backlog["rows->work"].rows == 40
    assert second.levels.backlog["rows->work"].age == pytest.approx(113.0)


def test_what_a_source_has_emitted_counts_with_what_is_in_work(around: Watched) -> None:
    """Rows that were cut are neither owed nor published; without them, what was ever due would dip."""
    monitor = Recorder()
    watcher = Watcher(monitor, around, 10.0)
    source = around.queries["rows"]
    source.feeds, source.rows_in_work = [SimpleNamespace(unmet=500)], 70  # type: ignore[misc, list-item]
    watcher.published(replace(report(), operator="rows"), [])
    [sample] = monitor.samples
    assert sample.levels is not None
    assert (sample.levels.unmet_rows, sample.levels.emitted) == (500, 80)
    source.rows_in_work = None  # type: ignore[misc]
    assert watcher._levels("rows", 1.0).emitted is None, "nobody has looked yet, or the gate is closed"
    assert watcher._levels("work", 1.0).emitted is None


def test_a_look_has_all_open_batches_of_bundles_that_stand_also_the_one_that_comes_with_a_report(
    around: Watched,
) -> None:
    monitor = Recorder()
    watcher = Watcher(monitor, around, 10.0)
    now = time.monotonic()
    around.queries["work"].open_batches = {4: now - 2, 5: now - 1}  # type: ignore[misc, assignment]
    watcher.published(report(4, 200.0), [])
    [sample] = monitor.samples
    assert sample.batch == 4
    assert sample.levels is not None
    for seen in (sample.levels, watcher._levels("work", 200.0)):
        assert seen.batch_since is None
        assert seen.open_batches is not None
        assert list(seen.open_batches) == [4, 5]


def test_when_batches_were_cut_does_not_shift_if_somebody_looks_late(around: Watched) -> None:
    """Reports of one transaction are told one by one, and whoever looks may wait for the lock."""
    watcher = Watcher(Recorder(), around, 10.0)
    work, late = around.queries["work"], run_time() - 5
    work.open_batches = {4: time.monotonic() - 2}  # type: ignore[misc, assignment]
    assert watcher._levels("work", late).open_batches == {4: pytest.approx(run_time() - 2, abs=0.5)}
    work.batch_started = time.monotonic() - 3  # type: ignore[misc, assignment]
    assert watcher._levels("work", late).batch_since == pytest.approx(run_time() - 3, abs=0.5)


def test_a_look_at_micro_batches_has_the_one_that_is_under_way(around: Watched) -> None:
    watcher = Watcher(Recorder(), around, 10.0)
    around.queries["work"].batch_started = time.monotonic() - 3  # type: ignore[misc, assignment]
    seen = watcher._levels("work", 200.0)
    assert (seen.batch_since, seen.open_batches) == (pytest.approx(run_time() - 3, abs=0.5), None)
    assert watcher._levels("work", 200.0, between_batches=True).batch_since is None


def test_every_operator_is_looked_at_before_a_snapshot(around: Watched) -> None:
    monitor = Recorder(since=time.time() - 1)
    watcher = Watcher(monitor, around, 10.0)
    snapshot = watcher.snapshot()
    assert set(monitor.looks) == {"rows", "work", "out"}
    assert snapshot.placement is PLACEMENT
    assert snapshot.operators["rows"].throttled is True
    assert snapshot.operators["work"].throttled is False


def test_what_the_bundles_of_a_chain_have_waited_is_told_of_each_of_its_operators(around: Watched) -> None:
    """Where they really run, and each second once: the query is there for both."""
    monitor = Recorder()
    told = [Waited("b/0", "7", 2, 4.0, 1.0), Waited("b/0", None, 1, 2.0, 0.0)]
    chain = query("rows")
    chain.chain = DEFINITION.operator("rows"), DEFINITION.operator("work")
    chain.waited = lambda: [told.pop(0), told.pop(0)] if told else []
    around.queries.update(rows=chain, work=chain)  # type: ignore[attr-defined]
    first, second = told
    watcher = Watcher(monitor, around, 10.0)
    watcher.look()
    watcher.snapshot()
    by_slot = {A0.name: [first], "b/0": [second]}
    assert monitor.waits == [("rows", by_slot), ("work", by_slot)]


def test_a_query_that_cannot_say_what_its_bundles_waited_stops_nobody(
    around: Watched, happened: list[tuple[str, str]]
) -> None:
    around.queries["work"].waited = lambda: 1 / 0  # type: ignore[method-assign]
    Watcher(Recorder(), around, 10.0).hear_waits()
    assert happened == [("fault", "it is not known what bundles have waited: ZeroDivisionError: division by zero")]


def test_a_mistake_in_what_is_measured_is_told_once_and_stops_nothing(
    around: Watched, happened: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor = Recorder()
    watcher = Watcher(monitor, around, 10.0)
    monkeypatch.setattr(monitor, "take", lambda sample, for_decisions: 1 / 0)
    watcher.published(report(0), [])
    watcher.published(report(1), [])
    assert happened == [("fault", "a batch of work was not counted: ZeroDivisionError: division by zero")]


def test_a_batch_of_which_the_driver_knows_nothing_is_counted_but_not_for_decisions(
    around: Watched, happened: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor = Recorder()
    watcher = Watcher(monitor, around, 10.0)
    with monkeypatch.context() as being_replaced:
        being_replaced.delitem(around.queries, "work")  # type: ignore[arg-type]
        watcher.published(report(0), [])
    assert happened == [("fault", "a batch of work does not count for decisions: KeyError: 'work'")]
    assert monitor.statistics.totals("work") == (10, 10)
    assert monitor.snapshot(201.0, PLACEMENT, CLUSTER).operators["work"].rate is None


def test_without_monitoring_batches_are_counted_and_nobody_looks_at_what_waits(around: Watched) -> None:
    monitor = Recorder()
    watcher = Watcher(monitor, around, 10.0, for_decisions=False)
    watcher.published(report(0), [])
    assert monitor.statistics.totals("work") == (10, 10)
    assert monitor.samples[0].levels is None
    assert monitor.snapshot(201.0, PLACEMENT, CLUSTER).operators["work"].rate is None


def test_it_is_over_when_it_is_closed(around: Watched) -> None:
    watcher = Watcher(Recorder(), around, 0.01)
    watcher.start()
    watcher.close()
    assert not watcher._thread.is_alive()


def test_what_keeps_a_round_from_looking_is_written_down_once_in_a_row(
    around: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = Recorder()
    watcher = Watcher(monitor, around, 10.0)
    kept = dict(around.queries)
    with caplog.at_level(logging.INFO, logger="penstock"):
        around.queries.clear()  # type: ignore[attr-defined]
        watcher._look_around()
        watcher._look_around()
        assert [record.exc_info is not None for record in caplog.records] == [True]
        around.queries.update(kept)  # type: ignore[attr-defined]
        watcher._look_around()
        assert set(monitor.looks) == set(kept), "the next round looks again"
        around.queries.clear()  # type: ignore[attr-defined]
        watcher._look_around()
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO"]


def test_only_operators_that_had_a_batch_are_asked_what_it_cost(around: Watched) -> None:
    """Every question is several calls of the JVM: 100 operators that do nothing must not cost any."""
    asked: list[str] = []

    class Query:
        @property
        def lastProgress(self) -> dict[str, Any]:
            asked.append("work")
            return {"batchId": len(asked), "durationMs": {"latestOffset": 20}}

    around.queries["work"].query = Query()  # type: ignore[assignment]
    monitor = Recorder()
    watcher = Watcher(monitor, around, 10.0)
    for _ in range(5):
        watcher._find_out()
    assert asked == []
    watcher.published(report(0, 200.0), [])
    for _ in range(5):
        watcher._find_out()
    # Once in the round after the batch, and once more: Spark's account of it comes a moment later.
    assert asked == ["work", "work"]
    watcher.published(report(1, 203.0), [])
    assert monitor.samples[-1].overhead_parts == {
        "ask": 0.02, "get_batch": 0.0, "planning": 0.0, "offset_log": 0.0, "commit_log": 0.0
    }  # fmt: skip


def by_spark_sql(batch: int = 0) -> BatchReport:
    done = report(batch)
    return replace(done, bundles=tuple(replace(bundle, by_spark_sql=True) for bundle in done.bundles))


def test_spark_is_asked_once_for_all_what_its_shuffle_brought(around: Watched) -> None:
    asked: list[object] = []

    def shuffled() -> dict[str, dict[str, int]]:
        asked.append(1)
        return {"work": {"7": 30, "left long ago": 5}, "a query of another run": {"7": 1}}

    monitor = Recorder()
    watcher = Watcher(monitor, replace(around, shuffled=shuffled), 10.0)
    told = monitor.shuffled = Mock()  # type: ignore[method-assign]
    watcher._look_around()
    watcher.published(report(), [])
    watcher._look_around()
    assert asked == [], "no operator had a batch for which Spark may have shuffled"
    watcher.published(by_spark_sql(), [])
    for _ in range(4):
        watcher._look_around()
    assert len(asked) == 2, "in the round after the batch, and once more for what ended late"
    assert told.call_args_list == [call("work", {A0.name: 30, "": 5}, ANY)] * 2


def test_on_one_machine_nobody_asks_spark_and_nothing_was_shuffled(around: Watched) -> None:
    asked = Mock()
    monitor = Recorder()
    watcher = Watcher(monitor, replace(around, shuffled=asked, cluster=lambda: Cluster.of(["a"], 2)), 10.0)
    told = monitor.shuffled = Mock()  # type: ignore[method-assign]
    watcher.published(by_spark_sql(), [])
    watcher._look_around()
    assert not asked.called
    assert told.call_args_list == [call("work", {}, ANY)]


def test_where_spark_does_not_say_what_it_shuffled_nothing_is_told(around: Watched) -> None:
    monitor = Recorder()
    watcher = Watcher(monitor, around, 10.0)
    told = monitor.shuffled = Mock()  # type: ignore[method-assign]
    watcher.published(by_spark_sql(), [])
    watcher._look_around()
    assert not told.called


def test_a_snapshot_has_what_machines_use_where_they_are_apart(around: Watched) -> None:
    machine = CLUSTER.machines[0].name
    seconds = iter((0.0, 10.0))

    def readings() -> dict[str, MachineReading]:
        at = next(seconds)
        return {machine: MachineReading(at, at / 10, at / 5, 50, int(at) * 30, 0, 0.25, 100, 60.0)}

    watcher = Watcher(Monitor(DEFINITION, Settings(), 0.0), replace(around, readings=readings), 10.0)
    assert watcher.snapshot().machine_uses == {}
    snapshot = watcher.snapshot()
    used = snapshot.machine_uses[machine]
    assert (used.cpu, used.memory, used.link, used.throttled) == pytest.approx((0.4, 0.5, 0.5, 0.2))
    assert snapshot.machines[machine].cpu_utilisation == pytest.approx(0.4), "what its group used"
    [first, *_] = snapshot.as_json()["machines"]
    assert first["used"]["cpu"] == pytest.approx(0.4)


def test_counters_of_machines_are_told_to_the_monitor_in_every_round(around: Watched) -> None:
    told: list[object] = []

    class Told(Recorder):
        def read(self, readings: Any) -> None:
            told.append(readings)

    reading = {"a": MachineReading(0.0, 1.0, 0.0, 50, 0, 0, 0.25, 100, 60.0)}
    watcher = Watcher(Told(), replace(around, readings=lambda: reading), 10.0)
    around.queries.clear()  # type: ignore[attr-defined]
    watcher._look_around()
    assert told == [reading], "also where the queries cannot be looked at"
