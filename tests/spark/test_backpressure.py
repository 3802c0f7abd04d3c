"""A backlog has a bound: what comes before a slow operator waits, up to the source, and shows that it does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from written_rows import WAIT, column_of

from penstock import Settings, Topology, sinks, sources
from penstock.engine.spark.host import SparkHost
from penstock.engine.topology import SparkTopology
from penstock.workloads import service_time

NUMBERS = "id long, value double"
BOUND = 400


def settings(policy: str = "throttle") -> Settings:
    return Settings(
        latency_under_load=1.0,
        latency_spark=0.02,
        rows_at_once=200,
        backlog_rows=BOUND,
        backlog_policy=policy,
        chaining="off",
    )


def slow_chain(folder: Path, rows: int) -> Topology:
    topology = Topology("slow-chain")
    numbers = topology.source("numbers", sources.rate(4_000, sources.numbers(), rows=rows))
    quick = topology.map("quick", service_time(0), inputs=[numbers], schema=NUMBERS)
    slow = topology.map("slow", service_time(0.004), inputs=[quick], schema=NUMBERS)
    topology.sink("out", sinks.parquet(folder / "out"), inputs=[slow])
    return topology


@dataclass
class Watched:
    """The most that was seen while a topology ran to its end."""

    quick: int = 0
    slow: int = 0
    unmet: int = 0
    throttled: bool = False


def watch(run: SparkTopology) -> Watched:
    seen, deadline = Watched(), time.monotonic() + WAIT
    while not run.finished:
        run.check()
        assert time.monotonic() < deadline
        seen.quick = max(seen.quick, run.backlog("quick"))
        seen.slow = max(seen.slow, run.backlog("slow"))
        unmet, throttled = run.backlog("numbers"), run.query("numbers").intake.throttled
        seen.throttled |= throttled and unmet > 0
        seen.unmet = max(seen.unmet, unmet)
        time.sleep(0.005)
    return seen


def largest_batch(run: SparkTopology, operator: str) -> int:
    return max(json.loads(one.manifest)["rows_in"] for one in run.catalog.manifests(operator))


def test_the_backlog_stays_within_its_bound_and_nothing_is_lost(
    local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    rows = 2_000
    with running(slow_chain(tmp_path, rows), local_host, settings=settings()) as run:
        seen = watch(run)
        assert run.backlog("numbers") == run.backlog("slow") == 0
        most = {name: largest_batch(run, name) for name in ("numbers", "quick")}
    # A batch that has begun is not cut short: the bound may be passed by one.
    assert BOUND <= seen.slow < BOUND + most["quick"]
    assert seen.quick < BOUND + most["numbers"]
    # The slow operator holds the quick one back, and that one the source, which shows what is due and not emitted.
    assert seen.quick >= BOUND
    assert seen.throttled
    assert seen.unmet > BOUND
    assert column_of(tmp_path / "out", "id") == list(range(rows))


def test_who_is_held_back_waits_for_room_and_who_is_behind_waits_for_input(
    local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    often = replace(settings(), sample_seconds=1.0, window_samples=10)
    with running(slow_chain(tmp_path, 1_000_000), local_host, settings=often) as run:
        deadline = time.monotonic() + WAIT
        # Until the first batches have left the window: on busy cores they are slow.
        while not (snapshot := run.snapshot()).complete or (snapshot.operators["quick"].waiting_room or 0.0) < 0.5:
            run.check()
            assert time.monotonic() < deadline, snapshot.operators
            time.sleep(0.5)
        run.stop(drain=False)  # to work off what waits would take an hour
    quick, slow, out = (snapshot.operators[name] for name in ("quick", "slow", "out"))
    shares = [(one.utilisation, one.waiting_input, one.waiting_room) for one in (quick, slow, out)]
    assert slow.utilisation is not None and slow.waiting_input is not None and slow.waiting_room is not None
    assert slow.utilisation > slow.waiting_input + slow.waiting_room, "it is what limits the topology"
    assert out.waiting_input is not None and out.waiting_input > 0.3
    assert quick.slots.keys() and all(one.waiting_room is not None for one in quick.slots.values())
    assert all(sum(part or 0.0 for part in parts) < 1.2 for parts in shares), "a batch more or less at either end"


def test_spill_goes_past_the_bound(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    rows = 1_600
    with running(slow_chain(tmp_path, rows), local_host, settings=settings("spill")) as run:
        seen = watch(run)
        most = largest_batch(run, "quick")
    assert seen.slow > BOUND + most
    assert not seen.throttled
    assert column_of(tmp_path / "out", "id") == list(range(rows))


def endless(spark: SparkSession) -> DataFrame:
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 150).option("numPartitions", 2).load()
    return frame.selectExpr("value AS id", "CAST(value AS double) AS value")


def test_a_source_that_spark_drives_is_held_back_too(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    topology = Topology("spark-driven")
    numbers = topology.source("numbers", sources.dataframe(endless, NUMBERS))
    slow = topology.map("slow", service_time(0.02), inputs=[numbers], schema=NUMBERS)
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=[slow])
    with running(topology, local_host, settings=settings()) as run:
        deadline, most, throttled = time.monotonic() + WAIT, 0, False
        while not throttled or run.statistics.totals("out")[0] < 20:
            run.check()
            assert time.monotonic() < deadline
            most = max(most, run.backlog("slow"))
            throttled |= run.query("numbers").intake.throttled
            time.sleep(0.005)
        run.stop(drain=False)  # to work off what waits would take a minute
    assert BOUND <= most < BOUND + 150
    written = column_of(tmp_path / "out", "id")
    assert len(set(written)) == len(written) >= 20
