"""Stateful operators on real Spark: what processors count, keep over a restart, and do when a timer comes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import TEST_SETTINGS
from processors import ALARM, EPOCH, TOTALS, WINDOWS, Alarm, Counting, Raising, Totals, Windows
from written_rows import WAIT, rows_of

from penstock import PenstockError, Topology, sinks, sources, state
from penstock.engine.spark.host import SparkHost

KEYS = 7
CONTENT = sources.events(keys=KEYS, seed=3, spacing=0.01)


def declared(folder: Path, rows: int | None, rate: float) -> Topology:
    topology = Topology("stateful")
    events = topology.source("events", sources.rate(rate, CONTENT, rows=rows))
    # Every task is a Python process, and costs time in every micro-batch: one operator with several of them is enough.
    totals = topology.stateful("totals", Totals, inputs=events, key="key", schema=TOTALS, tasks=2, instances=2)
    windows = topology.stateful("windows", Windows, inputs=events, key="key", schema=WINDOWS, event_time="at", tasks=1)
    alarm = topology.stateful("alarm", Alarm(), inputs=events, key="key", schema=ALARM, tasks=1)
    for output in (totals, windows, alarm):
        topology.sink(f"{output.operator}-out", sinks.parquet(folder / output.operator), inputs=output)
    return topology


@pytest.mark.parametrize("shuffle", ["exchange", pytest.param("none", marks=pytest.mark.live)])
def test_counts_are_right_state_outlives_a_restart_and_timers_come(
    local_host: SparkHost, running: Callable, tmp_path: Path, shuffle: str
) -> None:
    settings = replace(TEST_SETTINGS, shuffle=shuffle)
    with running(declared(tmp_path, None, rate=60), local_host, state="kept", settings=settings) as run:
        while run.statistics.totals("totals-out")[0] == 0:
            assert not run.wait(0.1)
        run.stop(drain=False)
        rows = run.query("events").feeds[0].position + 200
    with running(declared(tmp_path, rows, rate=60), local_host, state="kept", settings=settings) as run:
        assert run.wait(WAIT)

    events = CONTENT.rows(0, rows).to_pylist()
    counted = Counter(row["key"] for row in events)

    last: dict[str, dict] = {}
    for row in rows_of(tmp_path / "totals"):
        if row["n"] > last.get(row["key"], {"n": 0})["n"]:
            last[row["key"]] = row
    assert {key: row["n"] for key, row in last.items()} == counted
    for key, row in last.items():
        own = [event for event in events if event["key"] == key]
        assert row["newest"] == max(event["at"] for event in own)
        assert row["ids"] == sum(event["id"] for event in own)
        assert row["counted"] == len(own)
    emitted_twice = Counter((row["key"], row["n"]) for row in rows_of(tmp_path / "totals"))
    assert max(emitted_twice.values()) == 1, "a replayed batch emits nothing again"

    second = Counter((event["key"], int((event["at"] - EPOCH).total_seconds())) for event in events)
    ended = max(second for _, second in second)
    closed = {(row["key"], row["second"]): row["n"] for row in rows_of(tmp_path / "windows")}
    assert len(closed) == len(rows_of(tmp_path / "windows")), "each second is told once"
    assert closed == {one: n for one, n in second.items() if one[1] < ended}

    rung = rows_of(tmp_path / "alarm")
    assert Counter(row["key"] for row in rung) == dict.fromkeys(counted, 1)
    assert all(row["after"] == 1.0 and not row["early"] and row["left"] == 1 for row in rung)


def counting(processor: object, folder: Path | None = None, rows: int = 100, rate: float = 1_000) -> Topology:
    topology = Topology("counting")
    events = topology.source("events", sources.rate(rate, CONTENT, rows=rows))
    counts = topology.stateful("x", processor, inputs=events, key="key", schema="key string, count long", tasks=2)
    topology.sink("out", sinks.parquet(folder) if folder else sinks.noop(), inputs=counts)
    return topology


class OtherState(Counting):
    held = state.value("n int")


def test_other_states_than_those_in_the_checkpoint_are_refused(local_host: SparkHost, running: Callable) -> None:
    with running(counting(Counting), local_host, state="kept") as run:
        assert run.wait(WAIT)
    with pytest.raises(PenstockError) as caught, running(counting(OtherState), local_host, state="kept"):
        pass
    assert caught.value.name == "STATE_DOES_NOT_FIT"
    assert "states that its processor declares" in caught.value.message


def test_the_failure_of_a_processor_is_a_named_error(local_host: SparkHost, running: Callable) -> None:
    with pytest.raises(PenstockError) as caught, running(counting(Raising), local_host) as run:
        run.wait(WAIT)
    assert caught.value.name == "OPERATOR_FAILED"
    assert "LookupError: no such key as" in caught.value.message
    assert "processors.py:" in caught.value.message
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


def test_another_state_store_is_refused(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    settings = replace(TEST_SETTINGS, state_store="memory")
    with pytest.raises(PenstockError) as caught, running(counting(Counting), local_host, "s", settings):
        pass
    assert caught.value.name == "NEEDS_ROCKSDB"
    assert not (tmp_path / "s" / "catalog.sqlite").exists(), "it was refused only after something was touched"


def test_its_state_can_be_cut_into_other_tasks(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    rows = 600
    with running(counting(Counting, tmp_path / "out", rows, rate=60), local_host) as run:
        at_once = run.changes.repartition("x", 4)  # no batch is finished, and mostly none has begun
        assert (at_once.tasks_before, at_once.tasks_after) == (2, 4)
        while run.statistics.totals("out")[0] == 0:
            assert not run.wait(0.1)
        report = run.changes.repartition("x", 3)
        assert (report.tasks_before, report.tasks_after) == (4, 3)
        assert run.wait(WAIT)
    counts = Counter(row["key"] for row in CONTENT.rows(0, rows).to_pylist())
    written = rows_of(tmp_path / "out")
    assert {row["key"]: max(one["count"] for one in written if one["key"] == row["key"]) for row in written} == counts
    assert max(Counter((row["key"], row["count"]) for row in written).values()) == 1
