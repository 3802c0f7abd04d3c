"""The monitor: one sample, seen by the snapshot and by the history."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from monitor_fakes import CLUSTER, DEFINITION, PLACEMENT, levels, sample, work

from penstock import PenstockError, Settings
from penstock.cluster.readings import MachineReading
from penstock.monitor.events import Event, EventKind
from penstock.monitor.history import HistoryQuery
from penstock.monitor.monitor import Monitor
from penstock.monitor.store import StatisticsStore
from penstock.monitor.totals import OperatorTotals

SETTINGS = Settings(sample_seconds=1.0, window_samples=5, window_least_samples=2)
NAMES = ("rows", "work", "out")


@pytest.fixture
def store(tmp_path: Path):
    opened = StatisticsStore.open(f"sqlite:///{tmp_path}/statistics.db", "small", SETTINGS)
    yield opened
    opened.close()


def feed(monitor: Monitor, seconds: int) -> None:
    for second in range(seconds):
        for name in NAMES:
            monitor.take(sample(name, second + 0.5, rows=100, seconds=0.25))
            monitor.look(name, levels(second + 0.75, {"x": 1} if name != "rows" else {}))


def rows(store: StatisticsStore, until: float = 100) -> list[float | None]:
    [history] = store.history(HistoryQuery(("rows",), 0, until, operator="work"))
    return history.values["rows"]


def test_the_snapshot_and_the_history_count_the_same(store: StatisticsStore) -> None:
    monitor = Monitor(DEFINITION, SETTINGS, 0, store)
    feed(monitor, 4)
    monitor.write(3.5, PLACEMENT)
    assert rows(store) == [100, 100, 100]
    found = monitor.snapshot(4, PLACEMENT, CLUSTER)
    assert found.complete, found.gaps
    assert found.operators["work"].rate == 100
    assert monitor.statistics.totals("work") == (400, 400)
    monitor.write(4.0, PLACEMENT, last=True)
    assert rows(store) == [100, 100, 100, 100]
    assert monitor.snapshot(4, PLACEMENT, CLUSTER).operators["work"].rate == 100, "what was written still counts"
    assert monitor.statistics.totals("work") == (400, 400)


def test_a_reconfiguration_starts_the_window_anew_and_not_the_history(store: StatisticsStore) -> None:
    monitor = Monitor(DEFINITION, SETTINGS, 0, store)
    feed(monitor, 4)
    monitor.restart(3.9)
    assert not monitor.snapshot(4, PLACEMENT, CLUSTER).complete
    monitor.write(5, PLACEMENT)
    assert rows(store) == [100] * 4
    assert monitor.statistics.totals("work") == (400, 400)


def test_a_sample_that_is_not_for_decisions_is_counted_and_in_no_snapshot(store: StatisticsStore) -> None:
    monitor = Monitor(DEFINITION, SETTINGS, 0, store)
    monitor.take(sample("work", 0.5, rows=100), for_decisions=False)
    assert monitor.snapshot(1, PLACEMENT, CLUSTER).operators["work"].rate is None
    monitor.write(1, PLACEMENT)
    assert rows(store) == [100]
    assert monitor.statistics.totals("work") == (100, 100)


def test_late_rows_are_counted_once_for_people_and_for_the_history(store: StatisticsStore) -> None:
    monitor = Monitor(DEFINITION, SETTINGS, 0, store)
    monitor.dropped("work", 3, 0.5)
    monitor.restart(0.6)
    monitor.dropped("work", 4, 0.7)
    assert monitor.statistics.late_rows("work") == 7
    monitor.write(1, PLACEMENT)
    [history] = store.history(HistoryQuery(("late_rows",), 0, 100, operator="work"))
    assert history.values["late_rows"] == [7]
    assert monitor.statistics.late_rows("work") == 7


def test_without_a_store_nothing_is_kept_for_one() -> None:
    monitor = Monitor(DEFINITION, SETTINGS, 0)
    feed(monitor, 4)
    monitor.write(4, PLACEMENT, last=True)
    assert monitor.snapshot(4, PLACEMENT, CLUSTER).complete


def test_what_a_store_refuses_is_written_later(store: StatisticsStore, monkeypatch) -> None:
    monitor = Monitor(DEFINITION, SETTINGS, 0, store)
    monitor.events.record(Event(0.0, EventKind.STARTED, "", "for the test"))
    feed(monitor, 2)

    def away(*_: object) -> None:
        raise PenstockError("STATISTICS_UNREACHABLE", "away.", "Wait.")

    with monkeypatch.context() as broken:
        broken.setattr(store, "write", away)
        with pytest.raises(PenstockError):
            monitor.write(2, PLACEMENT)
    monitor.write(2, PLACEMENT)
    assert rows(store) == [100, 100]
    assert [event.reason for event in store.events()] == ["for the test"]


def test_the_store_is_kept_in_order_once_a_minute(store: StatisticsStore, monkeypatch) -> None:
    monitor, rounds = Monitor(DEFINITION, SETTINGS, 0, store), []
    monkeypatch.setattr(store, "keep_house", rounds.append)
    for now in range(0, 200, 10):
        monitor.write(now, PLACEMENT)
    assert rounds == [60, 120, 180]


def test_a_run_without_a_goal_closes_the_intervals_of_its_window_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks for a snapshot; the thread that looks and writes goes round once an interval."""
    monitor, waiting = Monitor(DEFINITION, SETTINGS, 0), []
    for second in range(100):
        monitor.look("work", levels(second + 0.5))
        monitor.write(second + 0.75, PLACEMENT)
        waiting.append(len(monitor._counts._open))
    assert max(waiting) == 1
    merged: list[object] = []
    merge = OperatorTotals.merge
    monkeypatch.setattr(OperatorTotals, "merge", lambda self, other: (merged.append(other), merge(self, other))[1])
    assert monitor.snapshot(100, PLACEMENT, CLUSTER).samples == SETTINGS.window_samples
    assert len(merged) <= 2 * SETTINGS.window_samples + 4


def test_where_rows_came_from_is_in_the_history_of_operators_and_of_slots(store: StatisticsStore) -> None:
    monitor = Monitor(DEFINITION, SETTINGS, 0, store)
    read = work("a/1", 100, rows_from={"link": 60, "store": 40}, bytes_from={"link": 480, "store": 320})
    own = work("b/0", 100, rows_from={"own": 100}, bytes_from={"own": 800})
    monitor.take(sample("work", 0.5, rows=200, slots=(read, own)))
    monitor.take(sample("work", 1.5, rows=200, slots=(read, work("b/0", 100))))
    monitor.write(2.0, PLACEMENT)
    names = ("rows_from_link", "rows_from_kept", "rows_from_own", "rows_from_store", "bytes_from_link")
    [history] = store.history(HistoryQuery(names, 0, 100, operator="work"))
    assert [history.values[name] for name in names] == [[60, None], [0, None], [100, None], [40, None], [480, None]]
    [first, second] = store.history(HistoryQuery(names, 0, 100, by="slot", operator="work"))
    assert first.values["rows_from_link"] == [60, 60]
    assert second.values["rows_from_own"] == [100, None], "what was not measured is not 0"


def test_what_came_over_links_is_in_the_history_of_operators_and_of_slots(store: StatisticsStore) -> None:
    monitor = Monitor(DEFINITION, SETTINGS, 0, store)
    slots = (work("a/1", 100), work("b/0", 100))
    monitor.take(sample("work", 0.5, rows=200, slots=slots, links={("b", "a/1"): 70, ("c", "a/1"): 5}))
    monitor.take(sample("work", 1.5, rows=200, slots=slots, links=None))
    monitor.write(2.0, PLACEMENT)
    [history] = store.history(HistoryQuery(("bytes_over_link",), 0, 100, operator="work"))
    assert history.values["bytes_over_link"] == [75, None]
    slots_then = store.history(HistoryQuery(("bytes_over_link",), 0, 100, by="slot", operator="work"))
    assert [one.values["bytes_over_link"] for one in slots_then] == [[75, None], [0, None]]


def test_messages_of_the_driver_are_in_the_history_of_operators_and_of_slots(store: StatisticsStore) -> None:
    monitor = Monitor(DEFINITION, SETTINGS, 0, store)
    slots = (work("a/1", from_driver=30, to_driver=50), work("b/0", from_driver=0, to_driver=0))
    monitor.take(sample("work", 0.5, slots=slots))
    monitor.take(sample("work", 1.5))
    monitor.write(2.0, PLACEMENT)
    names = ("bytes_from_driver", "bytes_to_driver")
    [history] = store.history(HistoryQuery(names, 0, 100, operator="work"))
    assert [history.values[name] for name in names] == [[30, None], [50, None]]
    [first, second] = store.history(HistoryQuery(names, 0, 0.9, by="slot", operator="work"))
    assert [one.values["bytes_to_driver"] for one in (first, second)] == [[50], [0]]


def test_what_was_shuffled_is_in_the_history_and_nothing_where_nobody_looked(store: StatisticsStore) -> None:
    monitor = Monitor(DEFINITION, SETTINGS, 0, store)
    for second in range(3):
        monitor.take(sample("work", second + 0.5, slots=(work("a/1"), work("b/0"))))
    monitor.shuffled("work", {"a/1": 70}, 0.7)
    monitor.shuffled("work", {"a/1": 5, "": 2}, 0.8)
    monitor.shuffled("work", {}, 1.7)
    monitor.write(3.0, PLACEMENT)
    [history] = store.history(HistoryQuery(("bytes_shuffled",), 0, 100, operator="work"))
    assert history.values["bytes_shuffled"] == [77, 0, None]
    slots = store.history(HistoryQuery(("bytes_shuffled",), 0, 100, by="slot", operator="work"))
    assert [one.values["bytes_shuffled"] for one in slots] == [[75, 0, None], [0, 0, None]]


def test_what_machines_use_between_two_looks_is_in_the_history(store: StatisticsStore) -> None:
    monitor = Monitor(DEFINITION, SETTINGS, 0, store)
    start = MachineReading(0.0, 1.0, 0.0, 50, 0, 0, 0.25, 100, 1000.0)
    monitor.read({"a": start})
    monitor.read({"a": replace(start, at=2.0, cpu_seconds=1.25, sent_bytes=500, throttled_seconds=1.0), "b": start})
    monitor.write(2.0, PLACEMENT)
    names = ("machine_cpu", "machine_link", "machine_memory", "machine_throttled")
    [history] = store.history(HistoryQuery(names, 0, 100, by="machine"))
    assert (history.key.slot, history.times, history.seconds) == ("a", [0.0], [2.0])
    assert [history.values[name] for name in names] == [[0.5], [0.25], [0.5], [0.5]]
    monitor.read({"b": replace(start, at=4.0)})
    monitor.read({"a": replace(start, at=6.0)})
    monitor.write(6.0, PLACEMENT)
    histories = store.history(HistoryQuery(names, 0, 100, by="machine"))
    assert [one.key.slot for one in histories] == ["a", "b"]
    assert histories[0].times == [0.0], "a machine that was away has no figures of that time"
