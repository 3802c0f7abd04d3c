"""What every statistics store promises, on SQLite and on PostgreSQL."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from penstock import PenstockError, Settings, Topology, sinks, sources
from penstock.channels import database as database_module
from penstock.channels.database import Database, Retries
from penstock.cluster.model import Cluster, Placement, Slot
from penstock.cluster.readings import MachineUse
from penstock.monitor import statistics_tables as tables
from penstock.monitor import store as module
from penstock.monitor.counts import Counts
from penstock.monitor.decisions import DecisionLog, KeptDecision
from penstock.monitor.events import Event, EventKind, EventLog
from penstock.monitor.history import WITH_HISTORY, HistoryQuery, SeriesHistory
from penstock.monitor.kept_book import KeptBook
from penstock.monitor.latency import LatencySketch
from penstock.monitor.sample import Levels, Sample, SlotWork, StateSize, Waited, Waiting
from penstock.monitor.store import StatisticsStore
from penstock.strategies.mapping.round_robin import round_robin

QUICK = Retries(times=3, first_pause=0.01)
#: A multiple of ten minutes.
T0 = 1_200_000_000.0
MINUTE, HOUR = 60, 3600
CLUSTER = Cluster.of(["a", "b"], 1)
Open = Callable[..., StatisticsStore]


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def topology():
    declared = Topology("words")
    rows = declared.source("read", sources.rate(1, sources.numbers()))
    mapped = declared.map("split", same, inputs=[rows], schema="id long, value double", instances=2)
    declared.sink("out", sinks.noop(), inputs=[mapped])
    return declared.definition()


DEFINITION = topology()
PLACEMENT = round_robin(DEFINITION, CLUSTER)


@pytest.fixture
def open_store(url: str) -> Iterator[Open]:
    opened: list[StatisticsStore] = []

    def open_(topology: str = "words", **settings: object) -> StatisticsStore:
        opened.append(StatisticsStore.open(url, topology, Settings.of(settings), retries=QUICK))
        return opened[-1]

    yield open_
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Open) -> StatisticsStore:
    return open_store()


def sample(operator: str, finished: float, rows: int = 10, cpu: float | None = 0.25, **more: object) -> Sample:
    where = [slot.name for slot in PLACEMENT.of(operator)]
    slots = tuple(
        SlotWork(
            slot,
            1,
            rows=rows // len(where),
            rows_out={"out": rows},
            bytes_in=80,
            bytes_out=160,
            busy=0.5,
            cpu=cpu,
            memory=1000,
        )
        for slot in where
    )
    fields = {"rows_in": {"read->split": rows} if operator == "split" else {}, "traffic": {("a/0", "b/0"): 7}}
    return Sample(
        operator, 0, finished - 1, finished, rows, rows_out={"out": rows}, slots=slots, waiting=0.5, **(fields | more)
    )


def fill(store: StatisticsStore, seconds: int, since: float = T0, every: int = 10, house: int = 60) -> None:
    """A batch a second of 10 rows of `split`, written every ten seconds, with housekeeping."""
    counts = Counts(every, 20, since, unwritten=1000)
    for second in range(seconds):
        now = since + second + 0.5
        latency = LatencySketch()
        latency.add(1.0, 10)
        counts.add(sample("split", now, levels=Levels(now, {"read->split": Waiting(second, 8 * second, 2.0)})))
        counts.add(sample("out", now, latency=latency))
        if (second + 1) % every == 0:
            store.write(counts.unwritten(since + second + 1), DEFINITION, PLACEMENT)
        if (second + 1) % house == 0:
            store.keep_house(since + second + 1)


def ask(
    store: StatisticsStore, *metrics: str, since: float = T0, until: float = T0 + HOUR, **more
) -> list[SeriesHistory]:
    return store.history(HistoryQuery(metrics, since, until, **more))


# Statistics


def test_what_is_written_can_be_read(store: StatisticsStore) -> None:
    fill(store, 30)
    [history] = ask(store, "rows", "rate", "utilisation", "capacity", "backlog_rows", operator="split")
    assert (history.key.operator, history.key.slot, history.key.stream) == ("split", "", "")
    assert history.times == [T0, T0 + 10, T0 + 20]
    assert history.seconds == [10, 10, 10]
    assert history.values["rows"] == [100, 100, 100]
    assert history.values["rate"] == [10, 10, 10]
    assert history.values["utilisation"] == [0.5, 0.5, 0.5]
    assert history.values["capacity"] == [10, 10, 10]
    assert history.values["backlog_rows"] == [9, 19, 29]


def test_what_instances_wait_for_has_a_history(store: StatisticsStore) -> None:
    counts = Counts(10, 20, T0, unwritten=1000)
    split = PLACEMENT.of("split")
    for second in range(0, 120, 10):
        at = T0 + second + 9
        for name in ("split", "out"):
            counts.see(name, Levels(at))
        counts.wait("split", {slot.name: [Waited(slot.name, None, 1, 6.0, 3.0)] for slot in split}, at)
    store.write(counts.unwritten(T0 + 120), DEFINITION, PLACEMENT)
    store.keep_house(T0 + 120)
    asked = ("waiting_input_seconds", "waiting_input", "waiting_room")
    for points, seconds in ((500, 12.0), (2, 72.0)):
        [history] = ask(store, *asked, operator="split", until=T0 + 120, points=points)
        assert {*history.values["waiting_input_seconds"]} == {seconds}
        assert history.values["waiting_input"] == pytest.approx([0.6] * len(history.times))
        assert history.values["waiting_room"] == pytest.approx([0.3] * len(history.times))
    on_slots = ask(store, "waiting_input", operator="split", by="slot", until=T0 + 120)
    assert [one.key.slot for one in on_slots] == sorted(slot.name for slot in split)
    assert all(value == pytest.approx(0.6) for one in on_slots for value in one.values["waiting_input"])
    for by in ("operator", "slot"):
        [history] = ask(store, *asked, operator="out", by=by, until=T0 + 120)
        assert all({*values} == {None} for values in history.values.values()), "nobody has measured that"


def test_every_metric_that_has_a_history_can_be_asked_for(store: StatisticsStore) -> None:
    fill(store, 20)
    histories = ask(store, *WITH_HISTORY)
    assert [history.key.operator for history in histories] == ["out", "split"]
    for history in histories:
        assert history.values.keys() == set(WITH_HISTORY)
        assert all(len(values) == len(history.times) == 2 for values in history.values.values())
    out, split = histories
    assert out.values["latency_p99"] == [pytest.approx(1.0, rel=0.01)] * 2
    assert split.values["latency_p99"] == [None, None]
    assert split.values["traffic_other_machine"] == [70, 70]
    assert split.values["state_rows"] == [None, None]
    assert split.as_json()["values"]["rows"] == [100, 100]


def test_history_of_slots_and_of_streams(store: StatisticsStore) -> None:
    fill(store, 10)
    slots = ask(store, "rows", "bytes_in", "traffic_other_machine", by="slot", operator="split")
    assert [(one.key.slot, one.values["rows"], one.values["bytes_in"]) for one in slots] == [
        ("a/0", [50], [800]),
        ("b/0", [50], [800]),
    ]
    assert [one.values["traffic_other_machine"] for one in slots] == [[0], [70]]
    streams = ask(store, "rate", "emit_rate", "backlog_age", by="stream")
    assert [(one.key.stream, one.values["rate"], one.values["emit_rate"]) for one in streams] == [
        ("split->out", [0], [10]),
        # Nothing was heard of its producer.
        ("read->split", [10], [None]),
    ]
    assert streams[1].values["backlog_age"] == [2.0]


def used(store: StatisticsStore, since: float, seconds: float = 10.0, cpu: float = 0.2, name: str = "a") -> None:
    use = MachineUse(
        seconds=seconds,
        cpu_cores=cpu,
        throttled=0.5,
        memory_bytes=300 << 20,
        received_per_second=1e6,
        sent_per_second=5e6,
        cores=0.25,
        memory_limit=600 << 20,
        link_bytes_per_second=12.5e6,
    )
    store.write_machines([(name, since, use)])


def test_history_of_machines(store: StatisticsStore) -> None:
    fill(store, 10)
    for index, cpu in enumerate((0.2, 0.1)):
        used(store, T0 + 10 + 10 * index, cpu=cpu)
    used(store, T0 + 10, name="b")
    shares = ("machine_cpu", "machine_memory", "machine_link", "machine_throttled")
    a, b = ask(store, *shares, "machine_cpu_seconds", "rows", by="machine")
    assert (a.key.by, a.as_json()["machine"], a.as_json()["operator"], a.as_json()["slot"]) == (
        "machine",
        "a",
        None,
        None,
    )
    assert a.times == [T0 + 10, T0 + 20]
    assert a.values["machine_cpu"] == pytest.approx([0.8, 0.4])
    assert a.values["machine_cpu_seconds"] == pytest.approx([2.0, 1.0])
    assert [b.values[name] for name in shares] == [pytest.approx([one]) for one in (0.8, 0.5, 0.4, 0.5)]
    assert b.values["rows"] == [None]
    # Operators and slots are asked for as before, and have no figures of machines.
    assert [one.values["machine_cpu"] for one in ask(store, "machine_cpu", operator="split")] == [[None]]


def test_figures_of_machines_are_rolled_up_and_none_of_them_is_missed(store: StatisticsStore) -> None:
    counts = Counts(10, 20, T0, unwritten=1000)
    for index in range(24):
        # A machine was read last a moment before the end of the interval that was written then.
        used(store, max(T0, T0 + 10 * index - 0.5), cpu=0.25 if index % 2 else 0.0)
        counts.see("split", Levels(T0 + 10 * index + 1))
        store.write(counts.unwritten(T0 + 10 * index + 10), DEFINITION, PLACEMENT)
        store.keep_house(T0 + 10 * index + 10)
    [minutes] = ask(store, "machine_cpu", "machine_throttled_seconds", by="machine", until=T0 + 240, points=5)
    assert len(minutes.times) <= 5
    assert sum(minutes.seconds) == 240
    assert sum(minutes.values["machine_throttled_seconds"]) == pytest.approx(120)
    assert minutes.values["machine_cpu"][1:3] == pytest.approx([0.5, 0.5])


def test_a_slot_that_is_placed_and_idle_did_nothing(store: StatisticsStore) -> None:
    counts = Counts(10, 20, T0, unwritten=1000)
    counts.see("split", Levels(T0 + 1))
    store.write(counts.unwritten(T0 + 10, last=True), DEFINITION, PLACEMENT)
    assert [one.values["rows"] for one in ask(store, "rows", by="slot")] == [[0], [0]]
    # Where work ran that nobody can place, nobody can say that a slot did nothing.
    nowhere = SlotWork("", 0, rows=5, busy=1.0)
    counts = Counts(10, 20, T0 + 10, unwritten=1000)
    counts.add(Sample("split", 0, T0 + 11, T0 + 12, 5, {}, {}, (nowhere,)))
    store.write(counts.unwritten(T0 + 20, last=True), DEFINITION, PLACEMENT)
    assert [one.times for one in ask(store, "rows", by="slot")] == [[T0], [T0]]
    assert ask(store, "rows")[0].values["rows"] == [0, 5]


def test_writing_an_interval_again_changes_nothing(store: StatisticsStore, open_store: Open) -> None:
    fill(store, 10)
    fill(open_store(), 10)
    assert ask(store, "rows", operator="split")[0].values["rows"] == [100]


def test_what_was_not_measured_is_none_and_stays_so_in_longer_intervals(store: StatisticsStore) -> None:
    counts = Counts(10, 20, T0, unwritten=1000)
    for second in range(0, 120, 10):
        counts.add(sample("split", T0 + second + 5, cpu=None if second == 20 else 0.25))
    store.write(counts.unwritten(T0 + 120, last=True), DEFINITION, PLACEMENT)
    store.keep_house(T0 + 120)
    [history] = ask(store, "cpu_seconds", "cpu_utilisation", "rows", operator="split", points=2)
    assert history.times == [T0, T0 + 60]
    assert history.values["cpu_seconds"] == [None, 3.0]
    assert history.values["cpu_utilisation"] == [None, 3.0 / 120]
    assert history.values["rows"] == [60, 60]


def test_time_that_nobody_observed_is_not_time_without_rows(store: StatisticsStore) -> None:
    counts = Counts(10, 20, T0, unwritten=1000)
    counts.add(sample("split", T0 + 5, rows=100))
    store.write(counts.unwritten(T0 + 60, last=True), DEFINITION, PLACEMENT)
    store.keep_house(T0 + 60)
    [history] = ask(store, "rate", operator="split", points=1)
    assert (history.times, history.seconds, history.values["rate"]) == ([T0], [10], [10])


# Roll-ups


def test_longer_intervals_are_the_sum_the_largest_and_the_merge_of_short_ones(store: StatisticsStore) -> None:
    fill(store, 20 * MINUTE)
    for points, width in ((120, 10), (20, MINUTE), (2, 10 * MINUTE)):
        out, split = ask(
            store, "rows", "backlog_rows", "instance_seconds", "latency_mean", until=T0 + 20 * MINUTE, points=points
        )
        assert split.times == [T0 + start for start in range(0, 20 * MINUTE, width)]
        assert split.seconds == [width] * (20 * MINUTE // width)
        assert split.values["rows"] == [10 * width] * len(split.times)
        assert split.values["instance_seconds"] == [2 * width] * len(split.times)
        assert split.values["backlog_rows"] == [start + width - 1 for start in range(0, 20 * MINUTE, width)]
        assert out.values["latency_mean"] == [pytest.approx(1.0)] * len(split.times)


def test_what_is_too_young_to_be_rolled_up_comes_in_finer_intervals(store: StatisticsStore) -> None:
    fill(store, 13 * MINUTE + 20)
    [history] = ask(store, "rows", operator="split", points=1)
    minutes = [T0 + minute * MINUTE for minute in (10, 11, 12)]
    assert history.times == [T0, *minutes, T0 + 13 * MINUTE, T0 + 13 * MINUTE + 10]
    assert sum(value or 0 for value in history.values["rows"]) == 10 * (13 * MINUTE + 20)


def test_an_interval_of_which_some_is_asked_for_is_in_the_answer(store: StatisticsStore) -> None:
    fill(store, 13 * MINUTE + 20)
    [inside] = ask(store, "rows", operator="split", since=T0 + 5 * MINUTE, points=1)
    assert inside.times[0] == T0
    [behind] = ask(store, "rows", operator="split", since=T0 + 11 * MINUTE + 5, points=1)
    assert behind.times[:2] == [T0 + 11 * MINUTE, T0 + 12 * MINUTE]


def test_old_intervals_go_and_longer_ones_stay(open_store: Open) -> None:
    store = open_store(statistics_samples_hours=0.1, statistics_minutes_hours=1)
    fill(store, 2 * HOUR, every=30, house=300)
    end = T0 + 2 * HOUR
    everything = ask(store, "rows", operator="split", until=end, points=10_000)[0]
    # The finest that are kept for all of this time.
    assert everything.times == [T0 + start for start in range(0, 2 * HOUR, 10 * MINUTE)]
    assert sum(value or 0 for value in everything.values["rows"]) == 10 * 2 * HOUR
    lately = ask(store, "rows", operator="split", since=end - 300, until=end, points=10_000)[0]
    assert lately.times == [end - 300 + start for start in range(0, 300, 30)]
    hour = ask(store, "rows", operator="split", since=end - 1800, until=end, points=10_000)[0]
    assert len(hour.times) == 30


def test_nothing_goes_before_it_is_rolled_up(open_store: Open) -> None:
    first = open_store(statistics_samples_hours=0.1)
    fill(first, 90, house=1000)
    # Long afterwards, and nothing was written since: the second minute is not known to be complete.
    later = open_store(statistics_samples_hours=0.1)
    later.keep_house(T0 + 20 * HOUR)
    assert len(ask(later, "rows", operator="split")[0].times) == 9
    fill(later, 60, since=T0 + 20 * HOUR)
    history = ask(later, "rows", operator="split", points=1, until=T0 + 21 * HOUR)[0]
    assert sum(value or 0 for value in history.values["rows"]) == 1500


def test_slots_that_are_gone_for_longer_than_anything_is_kept_leave_nothing(open_store: Open) -> None:
    settings = {"statistics_samples_hours": 0.1, "statistics_minutes_hours": 1, "statistics_days": 0.1}
    store = open_store(**settings)
    names = sa.select(sa.func.count()).select_from(tables.series)

    def known() -> int:
        return store._database.run(lambda connection: connection.scalar(names)) or 0

    for number in range(50):  # of machines that each came once
        gone = Placement({"split": {Slot(f"m{number}", 0): 1}})
        counts = Counts(10, 20, T0, unwritten=1000)
        counts.add(replace(sample("split", T0 + number * 10 + 5), slots=(SlotWork(f"m{number}/0", 1),)))
        store.write(counts.unwritten(T0 + number * 10 + 10), DEFINITION, gone)
    store.keep_house(T0 + 500)
    assert known() >= 50, "their figures are still kept"
    fill(store, 2 * HOUR, since=T0 + 11 * HOUR, every=30, house=300)
    assert known() < 10, "those of this topology as it is now"
    # What is still there can be read, and written on.
    fill(store, MINUTE, since=T0 + 13 * HOUR)
    assert ask(store, "rows", by="slot", since=T0 + 13 * HOUR, until=T0 + 14 * HOUR)


def test_a_restarted_store_goes_on(open_store: Open) -> None:
    fill(open_store(), 5 * MINUTE)
    fill(open_store(), 5 * MINUTE, since=T0 + 5 * MINUTE)
    [history] = ask(open_store(), "rows", operator="split", points=1)
    assert (history.times, history.values["rows"]) == ([T0], [6000])


def test_topologies_are_apart(store: StatisticsStore, open_store: Open) -> None:
    other = open_store("others", statistics_samples_hours=0.1)
    fill(store, 20)
    fill(other, 10)
    other.keep_house(T0 + HOUR)
    assert ask(store, "rows", operator="split")[0].values["rows"] == [100, 100]
    assert ask(other, "rows", operator="split")[0].values["rows"] == [100]
    assert ask(open_store("nobody"), "rows") == []


def test_a_metric_without_history_is_named() -> None:
    for name in ("latency", "nonsense"):
        with pytest.raises(PenstockError) as caught:
            HistoryQuery((name,), 0, 1)
        assert caught.value.name == "UNKNOWN_METRIC"


def test_state_is_that_of_all_tasks(store: StatisticsStore) -> None:
    counts = Counts(10, 20, T0, unwritten=1000)
    counts.add(sample("split", T0 + 5, state={0: StateSize(1, 10), 1: StateSize(2, None)}))
    store.write(counts.unwritten(T0 + 10, last=True), DEFINITION, PLACEMENT)
    [history] = ask(store, "state_rows", "state_bytes", operator="split")
    assert history.values == {"state_rows": [3], "state_bytes": [10]}


# Events


def event(time: float, kind: EventKind = EventKind.DECISION, **more) -> Event:
    return Event(time, kind, "split", "it is congested", **more)


def test_events_are_kept_in_order_with_their_fields(store: StatisticsStore, open_store: Open) -> None:
    assert store.last_event() == 0
    written = [
        event(T0, cause="stela", fields={"ratio": 1.5, "slots": ["a/0"]}, id=1),
        event(T0 + 1, EventKind.VETO, id=2),
    ]
    store.write_events(written)
    store.write_events([event(T0 + 2, id=2, cause="again"), event(T0 + 3, EventKind.ACTION, id=3)])
    found = open_store().events()
    assert found[:2] == written
    assert [one.id for one in store.events(after=1)] == [2, 3]
    assert [one.id for one in store.events(limit=1)] == [1]
    assert open_store().last_event() == 3
    assert open_store("others").events() == []


def test_old_events_go_but_the_newest_stays(open_store: Open) -> None:
    store = open_store(statistics_days=1)
    store.write_events([event(T0 + index, id=index + 1) for index in range(3)])
    store.keep_house(T0 + 1 + 24 * HOUR)
    assert [one.id for one in store.events()] == [2, 3]
    store.keep_house(T0 + 48 * HOUR)
    assert [one.id for one in store.events()] == [3]
    assert store.last_event() == 3


def test_a_log_goes_on_where_the_one_before_ended(store: StatisticsStore) -> None:
    first = EventLog(store)
    first.record(event(T0))
    first.record(event(T0 + 1))
    assert first.flush() == 2
    assert first.flush() == 0
    second = EventLog(store, kept=2)
    for index in range(2, 5):
        second.record(event(T0 + index))
        second.flush()
    # The oldest are only in the store, the newest only in memory.
    second.record(event(T0 + 5))
    assert [one.id for one in second.since(0)] == [1, 2, 3, 4, 5, 6]
    assert [one.id for one in second.since(5)] == [6]
    assert [one.id for one in second.since(1, limit=2)] == [2, 3]


# Opening


def test_a_newer_store_is_left_alone(store: StatisticsStore, url: str, open_store: Open) -> None:
    database = Database.open(url, retries=QUICK)
    table = tables.meta
    newer = sa.update(table).where(table.c.topology == "").values(value=str(tables.SCHEMA_VERSION + 1))
    database.run(lambda connection: connection.execute(newer))
    database.close()
    with pytest.raises(PenstockError) as caught:
        open_store()
    assert caught.value.name == "STATE_DOES_NOT_FIT"
    assert "statistics store" in caught.value.message


def test_a_store_of_an_older_penstock_gets_the_metrics_that_have_come_since(url: str, open_store: Open) -> None:
    open_store().close()
    database = Database.open(url, retries=QUICK)
    older = sa.update(tables.meta).where(tables.meta.c.topology == "").values(value="1")
    database.run(lambda connection: connection.execute(older))
    database.run(
        lambda connection: connection.execute(sa.text("ALTER TABLE penstock_statistics DROP COLUMN late_rows"))
    )
    store = open_store()
    counts = Counts(10, 20, T0, unwritten=1000)
    counts.drop("split", 3, T0 + 1)
    store.write(counts.unwritten(T0 + 10, last=True), DEFINITION, PLACEMENT)
    [series] = store.history(HistoryQuery(("late_rows",), T0, T0 + 10, operator="split"))
    assert series.values["late_rows"] == [3]
    version = sa.select(tables.meta.c.value).where(tables.meta.c.topology == "")
    assert database.run(lambda connection: connection.scalar(version)) == str(tables.SCHEMA_VERSION)
    database.close()


def test_a_store_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    for url in (f"sqlite:///{tmp_path}/nowhere/x.db", "postgresql://u:secret@127.0.0.1:1/x", "mysql://x"):
        with pytest.raises(PenstockError) as caught:
            StatisticsStore.open(url, "words", retries=Retries(times=0))
        assert caught.value.name == "STATISTICS_UNREACHABLE"
        assert "secret" not in str(caught.value)


def test_the_file_is_for_its_user_only(tmp_path: Path) -> None:
    StatisticsStore.open(f"sqlite:///{tmp_path}/s.db", "words").close()
    assert (tmp_path / "s.db").stat().st_mode & 0o077 == 0


def test_placement_may_name_what_did_not_run(store: StatisticsStore) -> None:
    counts = Counts(10, 20, T0, unwritten=1000)
    counts.add(sample("split", T0 + 1))
    store.write(counts.unwritten(T0 + 10, last=True), DEFINITION, Placement({}))
    assert ask(store, "instances", operator="split")[0].values["instances"] == [0]


def test_an_event_whose_text_is_no_unicode_does_not_stop_those_behind_it(store: StatisticsStore) -> None:
    for reason in ("cut \ud83d", "fine"):
        store.write_events([Event(T0, EventKind.FAULT, "words", reason, id=store.last_event() + 1)])
    assert [event.reason for event in store.events()] == ["cut \\ud83d", "fine"]


# Decisions


def decision(second: float, verdict: str = "pending", number: int = 0, **record: object) -> KeptDecision:
    return KeptDecision(T0 + second, verdict, {"strategy": "stela", **record}, number)


def test_decisions_are_kept_and_get_their_verdict_later(store: StatisticsStore, open_store: Open) -> None:
    log = DecisionLog(store)
    first, second = log.enter(decision(1, why="\0")), log.enter(decision(2))
    assert (first.id, second.id) == (1, 2)
    assert log.flush() == 2
    assert store.decisions() == [KeptDecision(first.time, "pending", {"strategy": "stela", "why": "\0"}, 1), second]
    better = log.enter(decision(1, "as expected", first.id, why="it helped"))
    assert log.flush() == 1
    assert log.flush() == 0
    assert open_store().decisions() == [better, second]
    assert store.decisions(after=1) == [second]
    assert store.decisions(limit=1) == [better]


def test_decisions_go_on_where_an_earlier_run_ended(store: StatisticsStore, open_store: Open) -> None:
    DecisionLog(store).enter(decision(1))
    log = DecisionLog(store)
    log.enter(decision(1, "none"))
    log.flush()
    later = DecisionLog(open_store())
    assert later.enter(decision(2)).id == 2
    assert [one.id for one in later.since(0)] == [1, 2]
    assert [one.id for one in later.since(1)] == [2]


def test_few_decisions_stay_in_memory_and_a_late_verdict_hides_none(store: StatisticsStore) -> None:
    log = DecisionLog(store, kept=3)
    for second in range(1, 9):
        log.enter(decision(second))
    assert [one.id for one in log.since(0)] == list(range(1, 9)), "nothing is written yet"
    log.flush()
    late = log.enter(decision(2, "as expected", 2))
    assert [one.id for one in log.since(0)] == list(range(1, 9))
    assert [one.id for one in log.since(1)] == list(range(2, 9))
    assert log.since(1)[0] == late
    assert len(log._recent) == 3


def test_decisions_of_other_topologies_are_others_business(store: StatisticsStore, open_store: Open) -> None:
    for one in (store, open_store("other")):
        log = DecisionLog(one)
        log.enter(decision(1))
        log.flush()
    assert [one.id for one in open_store("other").decisions()] == [1]


def test_old_decisions_go_and_the_newest_stays(open_store: Open) -> None:
    store = open_store(statistics_days=1)
    log = DecisionLog(store)
    for second in (0, 1, 2):
        log.enter(decision(second))
    log.flush()
    store.keep_house(T0 + 2 * 24 * HOUR)
    assert [one.id for one in store.decisions()] == [3]
    assert DecisionLog(store).enter(decision(5)).id == 4


def test_a_store_that_is_away_loses_no_decision(store: StatisticsStore) -> None:
    class Away:
        def __init__(self) -> None:
            self.away = True

        def last_decision(self) -> int:
            return 0

        def write_decisions(self, decisions: object) -> None:
            if self.away:
                raise ConnectionError("nobody there")
            store.write_decisions(decisions)  # type: ignore[arg-type]

        def decisions(self, after: int = 0, limit: int = 1000) -> list[KeptDecision]:
            return store.decisions(after, limit)

    there = Away()
    log = DecisionLog(there)
    log.enter(decision(1))
    with pytest.raises(ConnectionError):
        log.flush()
    there.away = False
    assert log.flush() == 1
    assert len(store.decisions()) == 1


def test_what_a_controller_remembers_is_there_for_the_next_driver(store: StatisticsStore, open_store: Open) -> None:
    assert KeptBook(store).read() is None
    KeptBook(store).write('{"version": 1}')
    KeptBook(store).write('{"version": 1, "longer": true}')
    store.keep_house(T0)
    assert KeptBook(open_store()).read() == '{"version": 1, "longer": true}'
    assert KeptBook(open_store("other")).read() is None


def test_only_the_owner_reads_what_a_controller_remembers(store: StatisticsStore, url: str, tmp_path: Path) -> None:
    KeptBook(store).write("{}")
    if url.startswith("postgresql"):
        pytest.skip("who may read a database is for the server to say")
    files = list(tmp_path.glob("penstock.db*"))
    assert files
    assert {oct(file.stat().st_mode & 0o777) for file in files} == {"0o600"}


def test_a_controller_waits_little_for_a_store_that_is_away(
    store: StatisticsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks again in its next round; until then it must be able to undo, and a driver to end."""
    tried = list[str]()

    def away(*_: object) -> None:
        tried.append("")
        raise sa.exc.OperationalError("", {}, ConnectionError("nobody there"), connection_invalidated=True)

    monkeypatch.setattr(Database, "upsert_value", away)
    monkeypatch.setattr(StatisticsStore, "_meta", away)
    for work in (lambda: store.write_book("{}"), store.book):
        with pytest.raises(PenstockError, match="STATISTICS_UNREACHABLE"):
            work()
        assert len(tried) == 2
        tried.clear()


#: What keeps the book from being read and from being written, on a server that still accepts connections.
LOCKS = (
    "LOCK TABLE penstock_statistics_meta IN ACCESS EXCLUSIVE MODE",
    "SELECT * FROM penstock_statistics_meta FOR UPDATE",
)


def test_a_controller_does_not_wait_without_end_for_a_server_that_does_not_answer(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = sa.create_engine(postgresql_url.replace("postgresql:", "postgresql+psycopg:"))
    with closing(StatisticsStore.open(postgresql_url, "words", retries=QUICK)) as store:
        store.write_book("{}")
        with server.begin() as other:
            other.exec_driver_sql(LOCKS[1])
            assert store.book() == "{}", "a row that is locked can be read"
            problem = refused(lambda: store.write_book("[]"), monkeypatch)
        assert "canceling statement due to statement timeout" in problem.message
        with server.begin() as other:
            other.exec_driver_sql(LOCKS[0])
            refused(store.book, monkeypatch)
        assert store.book() == "{}", "what was cut off has changed nothing"
        store.write_book("[]")
        assert store.book() == "[]"
    server.dispose()


def refused(work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> PenstockError:
    """The named error, which comes soon, and is not tried again: a server that hangs would be waited for twice. Only
    what is refused is in a hurry: on a busy computer, what succeeds may take longer."""
    with monkeypatch.context() as hurry:
        hurry.setattr(module, "BOOK_SECONDS", 0.3)
        began = time.monotonic()
        with pytest.raises(PenstockError) as caught:
            work()
    assert caught.value.name == "STATISTICS_UNREACHABLE"
    assert 0.2 < time.monotonic() - began < 5
    return caught.value


def test_the_limit_for_the_book_is_not_one_for_statistics(postgresql_url: str) -> None:
    database = Database.open(postgresql_url, retries=QUICK)
    shown = sa.text("SHOW statement_timeout")
    with closing(database):
        assert database.run(lambda connection: connection.scalar(shown), within=0.3) == "300ms"
        assert database.run(lambda connection: connection.scalar(shown)) == "0", "the session goes back to the pool"


def test_a_controller_does_not_wait_without_end_for_a_server_that_hangs(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process does nothing, so it gives up no statement either; the computer still takes what it is sent."""
    monkeypatch.setattr(database_module, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(module, "_IMPATIENT", Retries(times=0))
    sessions = list[int]()

    def noted(connection: sa.Connection) -> None:
        sessions.append(connection.scalar(sa.text("SELECT pg_backend_pid()")))

    with closing(StatisticsStore.open(postgresql_url, "words", retries=QUICK)) as store:
        store.write_book("{}")
        store._database.run(noted)
        for work in (store.book, lambda: store.write_book("[]")):
            os.kill(sessions[-1], signal.SIGSTOP)
            try:
                problem = refused(work, monkeypatch)
            finally:
                os.kill(sessions[-1], signal.SIGCONT)
            assert "it has not answered for 0.5 s, so Penstock has cut off the connection" in problem.message
            assert store.book() == "{}", "another connection is made"
            store._database.run(noted)
        assert len(set(sessions)) == 3


class Timers:
    """Timers that are due when a test says so, also when they were cancelled: their threads may have begun already."""

    def __init__(self) -> None:
        self.due = list[Callable[[], None]]()

    def __call__(self, _seconds: float, work: Callable[[], None]) -> SimpleNamespace:
        self.due.append(work)
        return SimpleNamespace(start=lambda: None, cancel=lambda: None)


NO_RETRY = Retries(times=0)
ONE = sa.text("SELECT 1")


def test_a_connection_that_is_back_in_the_pool_is_not_cut_off(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers = Timers()
    monkeypatch.setattr(threading, "Timer", timers)
    with closing(Database.open(postgresql_url, retries=NO_RETRY)) as database:
        lines = list[socket.socket]()

        def not_yet(line: socket.socket) -> None:
            lines.append(line)

        with monkeypatch.context() as late:  # the timer's thread has the descriptor in hand before it is closed
            late.setattr(socket.socket, "close", not_yet)
            assert database.run(lambda connection: connection.scalar(ONE), within=5) == 1

        def somebody_else(connection: sa.Connection) -> object:
            timers.due[0]()
            return connection.scalar(ONE)

        assert database.run(somebody_else) == 1
        [line] = lines
        line.close()


def test_a_connection_that_is_cut_off_when_all_is_done_goes_back_to_nobody(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers = Timers()
    monkeypatch.setattr(threading, "Timer", timers)
    with closing(Database.open(postgresql_url, retries=NO_RETRY)) as database:
        commit = database._engine.dialect.do_commit

        def just_in_time(connection: Any) -> None:
            commit(connection)
            for cut_off in timers.due:
                cut_off()

        with monkeypatch.context() as late:
            late.setattr(database._engine.dialect, "do_commit", just_in_time)
            assert database.run(lambda connection: connection.scalar(ONE), within=5) == 1
        assert len(timers.due) == 1
        assert database.run(lambda connection: connection.scalar(ONE)) == 1


def test_a_controller_that_gets_no_descriptor_asks_again_and_does_not_begin_anew(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_: int) -> int:
        raise OSError(24, "Too many open files")

    with closing(StatisticsStore.open(postgresql_url, "words", retries=QUICK)) as store:
        store.write_book("{}")
        with monkeypatch.context() as crowded:
            crowded.setattr(os, "dup", none_left)
            with pytest.raises(PenstockError, match=r"STATISTICS_UNREACHABLE.*Too many open files"):
                store.book()
        assert store.book() == "{}"


def test_without_a_store_the_text_lives_as_long_as_the_process() -> None:
    kept = KeptBook()
    assert kept.read() is None
    kept.write("{}")
    assert kept.read() == "{}"
    assert KeptBook().read() is None
