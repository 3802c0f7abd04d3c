"""What is measured agrees with what others counted of the same run: Spark's event log, and the content of the sinks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import TEST_SETTINGS, NoRoom
from steered import by_batch

from penstock import Topology, sinks, sources
from penstock.cluster.model import Placement, Slot
from penstock.engine.spark.host import SparkHost
from penstock.monitor.history import HistoryQuery
from penstock.monitor.snapshot import OperatorSnapshot, Snapshot
from penstock.monitor.store import StatisticsStore

RATE = 1000
#: Seconds of work a row: 40% of one instance at this rate.
SERVICE = 0.0004
#: Two columns of eight bytes.
ROW_BYTES = 16
#: The most that a task may take beside its work, as a share of the time between two batches.
OVERHEAD = 0.3
#: Turns are short beside the window, as they are by default: a rate is exact to a turn at either end.
SETTINGS = replace(
    TEST_SETTINGS, latency_spark=0.5, sample_seconds=1.0, window_samples=60, retention_seconds=600, drain_seconds=60
)


def numbered(first: int, count: int) -> pa.RecordBatch:
    ids = np.arange(first, first + count, dtype=np.int64)
    return pa.record_batch([pa.array(ids), pa.array(ids * 3)], names=["id", "value"])


@dataclass(frozen=True)
class Work:
    """Keeps a log of its own: when it began, and for how long it was busy."""

    log: str

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        began, start = time.time(), time.perf_counter()
        time.sleep(batch.num_rows * SERVICE)
        with Path(self.log).open("a") as file:
            file.write(f"{began} {time.perf_counter() - start}\n")
        return batch


def topology(folder: Path) -> Topology:
    made = Topology("measured")
    schema = "id long, value long"
    rows = made.source("rows", sources.rate(RATE, sources.generated(numbered, schema)))
    worked = made.map("work", Work(str(folder / "work.log")), inputs=[rows], schema=schema)
    made.sink("out", sinks.parquet(folder / "out"), inputs=[worked])
    return made


def batches_of(events: list[str], operator: str) -> dict[int, tuple[float, float]]:
    """From Spark's event log: batch -> when it began, and the seconds that its tasks ran.

    A batch begins when Spark has been told what is there for it. Its job begins later: on busy cores Spark plans for
    hundreds of milliseconds first, now more and now less."""
    batch_of_stage: dict[int, int] = {}
    began: dict[int, float] = {}
    ran: dict[int, float] = {}
    for line in events:
        event = json.loads(line)
        properties = event.get("Properties") or {}
        is_batch = properties.get("spark.scheduler.pool") == operator and "streaming.sql.batchId" in properties
        if event["Event"] == "SparkListenerJobStart" and is_batch:
            batch = int(properties["streaming.sql.batchId"])
            batch_of_stage |= dict.fromkeys(event["Stage IDs"], batch)
        elif event["Event"].endswith("$QueryProgressEvent") and event["progress"]["name"] == operator:
            progress = event["progress"]
            asked = datetime.fromisoformat(progress["timestamp"]).timestamp()
            began.setdefault(progress["batchId"], asked + progress["durationMs"].get("getOffset", 0) / 1000)
        elif event["Event"] == "SparkListenerTaskEnd" and event["Stage ID"] in batch_of_stage:
            batch = batch_of_stage[event["Stage ID"]]
            ran[batch] = ran.get(batch, 0.0) + event["Task Metrics"]["Executor Run Time"] / 1000
    return {batch: (at, ran[batch]) for batch, at in began.items() if batch in ran}


def rows_in_segments(segments: Path, operator: str) -> dict[int, int]:
    """Batch -> rows that the operator's bundles have written, by the files themselves."""
    rows: dict[int, int] = {}
    for file in segments.glob(f"{operator}*/*.arrow"):
        batch = int(file.name.partition("-")[0])
        try:
            with pa.memory_map(str(file)) as content:
                rows[batch] = rows.get(batch, 0) + pa.ipc.open_file(content).read_all().num_rows
        except (pa.ArrowInvalid, FileNotFoundError):
            continue  # it is just being written, after the window, or was swept meanwhile: its rows are not compared
    return rows


@dataclass(frozen=True)
class Watched:
    """A run that is over: its last snapshot, and what others know of it."""

    snapshot: Snapshot
    where: dict[str, Slot]
    #: From Spark's event log: operator -> batch -> when it began, and the seconds that its tasks ran.
    batches: dict[str, dict[int, tuple[float, float]]]
    #: From the files that batches left: operator -> batch -> rows.
    rows_of: dict[str, dict[int, int]]

    def inside(self, operator: str) -> list[int]:
        """The batches that began in the snapshot's window."""
        within = self.snapshot.since, self.snapshot.at
        return sorted(batch for batch, (at, _) in self.batches[operator].items() if within[0] <= at <= within[1])


def _await_steady(run: Any) -> None:
    """The first batches are slow, on busy cores for half a minute. What waited meanwhile makes the next ones large."""
    deadline = time.monotonic() + 90
    while not all(_keeps_up(one) for one in run.snapshot().operators.values()):
        assert time.monotonic() < deadline, "what had waited for the first batches still waits"
        assert not run.wait(0.5)


def _keeps_up(operator: OperatorSnapshot) -> bool:
    return bool(operator.batches) and (operator.backlog.rows or 0) < 2 * RATE


@pytest.fixture
def watch(standalone_host: SparkHost, running: Any, hosts: Any, tmp_path: Path) -> Callable[..., Watched]:
    def watch(warm_up: float, seconds: float) -> Watched:
        [log] = (hosts.folder / "standalone" / "events").iterdir()
        before = len(log.read_text().splitlines())
        where = dict(zip(("rows", "work", "out"), standalone_host.cluster.slots[:3], strict=True))
        placement = Placement({name: {slot: 1} for name, slot in where.items()})
        with running(topology(tmp_path), standalone_host, "kept", SETTINGS, placement) as run:
            assert not run.wait(warm_up)
            _await_steady(run)
            run.monitor.restart(time.time())
            assert not run.wait(seconds)
            snapshot = run.snapshot()
            deadline = time.monotonic() + 60
            # On busy cores a batch may take seconds, and a window without one has rates of 0.
            while not (snapshot.complete and all(one.rate for one in snapshot.operators.values())):
                assert time.monotonic() < deadline, snapshot.gaps
                assert not run.wait(0.2)
                snapshot = run.snapshot()
            segments = tmp_path / "kept" / "segments"
            rows_of = {name: rows_in_segments(segments, name) for name in ("rows", "work")}  # a stop deletes them
            assert run.stop()
        events = log.read_text().splitlines()[before:]
        rows_of["out"] = {batch: table.num_rows for batch, table in by_batch(tmp_path / "out")}
        return Watched(snapshot, where, {name: batches_of(events, name) for name in where}, rows_of)

    return watch


@pytest.mark.timeout(300)
def test_counts_and_traffic_are_exact(watch: Callable[..., Watched], tmp_path: Path) -> None:
    found = watch(2.0, 8.0)
    snapshot, where = found.snapshot, found.where
    # A rate of rows and a rate of bytes have the same seconds below them.
    ways = {
        (where["rows"].name, where["work"].name): snapshot.streams["rows->work"].rate,
        (where["work"].name, where["out"].name): snapshot.streams["work->out"].rate,
    }
    assert snapshot.traffic.keys() == ways.keys()
    for way, rows in ways.items():
        assert snapshot.traffic[way] == pytest.approx(rows * ROW_BYTES, rel=1e-9)
    assert sum(snapshot.machine_traffic.values()) == pytest.approx(sum(snapshot.traffic.values()))

    # Everything that is in the sink's files, and nothing else, is in the store.
    total = sum(found.rows_of["out"].values())
    store = StatisticsStore.open(f"sqlite:///{tmp_path / 'kept' / 'statistics.sqlite'}", "measured", SETTINGS)
    names = ("rows", "rows_out", "traffic_same_slot", "traffic_same_machine", "traffic_other_machine")
    query = HistoryQuery(names, time.time() - 600, time.time() + 60, points=10_000)
    series = {one.key.operator: one.values for one in store.history(query)}
    store.close()
    assert {name: sum(values["rows"]) for name, values in series.items()} == dict.fromkeys(where, total)
    assert sum(series["work"]["rows_out"]) == total
    bytes_read = {
        name: {kind: sum(one or 0 for one in values[kind]) for kind in names[2:]} for name, values in series.items()
    }
    # Slots 0 and 1 are on one machine, 1 and 2 on two.
    assert bytes_read["work"] == dict.fromkeys(names[2:], 0) | {"traffic_same_machine": total * ROW_BYTES}
    assert bytes_read["out"] == dict.fromkeys(names[2:], 0) | {"traffic_other_machine": total * ROW_BYTES}


@pytest.mark.live  # beside other tests batches come when they can, and a rate over ten of them is what it is
@pytest.mark.timeout(300)
def test_rates_and_utilisation_agree_with_independent_counts(
    watch: Callable[..., Watched], no_room: NoRoom, tmp_path: Path
) -> None:
    with no_room():  # every batch is a micro-batch of Spark then, whose own log says when it ran
        found = watch(10.0, 31.0)
    snapshot, batches = found.snapshot, found.batches
    # Rates: rows in the files that batches left, between the beginnings of the first and the last batch in the window.
    for name in found.where:
        first, *_, last = found.inside(name)
        counted = sum(found.rows_of[name][batch] for batch in range(first, last))
        rate = counted / (batches[name][last][0] - batches[name][first][0])
        assert snapshot.operators[name].rate == pytest.approx(rate, rel=0.01), name
    for stream in snapshot.streams.values():
        emitted, read = snapshot.operators[stream.producer].rate, snapshot.operators[stream.consumer].rate
        assert (stream.emit_rate, stream.rate) == (pytest.approx(emitted), pytest.approx(read))

    # Utilisation: the time that the function took by its own log, between the beginnings of two batches.
    inside = found.inside("work")
    start, stop = batches["work"][inside[0]][0], batches["work"][inside[-1]][0]
    logged = [tuple(map(float, line.split())) for line in (tmp_path / "work.log").read_text().splitlines()]
    utilisation = sum(seconds for at, seconds in logged if start <= at < stop) / (stop - start)
    assert snapshot.operators["work"].utilisation == pytest.approx(utilisation, abs=0.03)
    assert snapshot.slots[found.where["work"].name].utilisation == pytest.approx(utilisation, abs=0.03)
    # Spark's tasks took longer by what it costs to start them, read and write.
    ran = sum(batches["work"][batch][1] for batch in inside[:-1]) / (stop - start)
    assert utilisation < ran < utilisation + OVERHEAD
    capacity = snapshot.operators["work"].capacity
    assert capacity == pytest.approx(1 / SERVICE, rel=0.05), "what it could do, and not what it did"
