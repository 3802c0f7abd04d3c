"""Operators that run as one query, taken apart and put together while rows flow: each row once, each counted once."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import TEST_SETTINGS
from written_rows import WAIT

from penstock import Topology, aggregates, sinks, sources
from penstock.cluster.model import Placement
from penstock.engine.topology import SparkTopology
from penstock.plans import requests as plans
from penstock.plans.enacting import Status

CHAIN = ("numbers", "odd", "named", "out")


def odd(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pa.compute.equal(pa.compute.bit_wise_and(batch.column("id"), 1), 1))


def named(batch: pa.RecordBatch) -> pa.RecordBatch:
    if 13 in batch.column("id").to_pylist():
        raise ValueError("thirteen")
    return pa.record_batch([batch.column("id"), pa.compute.cast(batch.column("id"), pa.string())], names=["id", "name"])


def topology(folder: Path, rate: float, rows: int | None = None) -> Topology:
    made = Topology("chained")
    numbers = made.source("numbers", sources.rate(rate, sources.numbers(), rows=rows))
    kept = made.map("odd", odd, inputs=numbers, schema="id long, value double")
    tagged = made.map("named", named, inputs=kept, schema="id long, name string", on_error="dead_letter")
    made.sink("out", sinks.parquet(folder / "out"), inputs=tagged)
    made.sink("letters", sinks.parquet(folder / "letters"), inputs=tagged.dead_letter)
    return made


def on_one_slot(run_or_host) -> Placement:
    slot = run_or_host.cluster.slots[0]
    return Placement({name: {slot: 1} for name in (*CHAIN, "letters")}, {})


def written(folder: Path) -> list[int]:
    return sorted(
        row for file in folder.rglob("part-*.parquet") for row in pq.ParquetFile(file).read().column(0).to_pylist()
    )


def test_one_query_does_the_work_of_four_operators(local_host, running, tmp_path: Path) -> None:
    with running(topology(tmp_path, 5000, rows=10_000), local_host, placement=on_one_slot(local_host)) as run:
        assert run.arrangement.chains == (CHAIN,)
        assert len(run.queries.all()) == 2
        assert run.wait(WAIT)
        snapshot = run.snapshot()
        channels = run.channels
        assert all(channels.end(channel) == 0 for channel in ("numbers.out", "odd.out", "named.out"))
        totals = {name: run.statistics.totals(name)[0] for name in (*CHAIN, "letters")}
    assert written(tmp_path / "out") == [row for row in range(1, 10_000, 2) if row != 13]
    assert written(tmp_path / "letters") == ["named"]
    # Of every operator by itself, although they ran as one.
    assert totals == {"numbers": 10_000, "odd": 10_000, "named": 5_000, "out": 4_999, "letters": 1}
    for name in CHAIN:
        assert snapshot.operators[name].rate > 0
        assert snapshot.operators[name].capacity > 0
    assert snapshot.streams["odd->named"].emit_rate == snapshot.streams["odd->named"].rate > 0
    assert snapshot.operators["out"].latency.rows == 4_999


def test_a_chain_is_taken_apart_and_put_together_under_load(local_host, running, tmp_path: Path) -> None:
    def flowing(run: SparkTopology) -> None:
        seen, deadline = run.statistics.batches("out"), time.monotonic() + WAIT
        while run.statistics.batches("out") < seen + 2:
            assert time.monotonic() < deadline
            run.wait(0.05)

    def set_instances(run: SparkTopology, operator: str, count: int) -> None:
        slot = local_host.cluster.slots[0]
        outcome = run.changes.carry_out(plans.set_instances(run.placement, operator, {slot: count}))
        assert outcome.status is Status.DONE, outcome.reason

    with running(topology(tmp_path, 1000), local_host, placement=on_one_slot(local_host)) as run:
        flowing(run)
        set_instances(run, "named", 2)
        assert run.arrangement.chains == (("numbers", "odd"),)
        flowing(run)
        set_instances(run, "out", 2)
        assert set(run.arrangement.chains) == {("numbers", "odd"), ("named", "out")}
        flowing(run)
        set_instances(run, "named", 1)
        set_instances(run, "out", 1)
        assert run.arrangement.chains == (CHAIN,)
        flowing(run)
        assert run.stop()
        emitted = run.query("numbers").feeds[0].position
        reasons = [event.reason for event in run.events.since(0)]
    twice = [row for row, times in Counter(written(tmp_path / "out")).items() if times > 1]
    assert not twice
    assert written(tmp_path / "out") == [row for row in range(1, emitted, 2) if row != 13]
    assert "Penstock has taken the chain apart: numbers - odd | named | out" in reasons
    assert "these operators run as one chain now: numbers - odd - named - out" in reasons


def test_it_goes_on_apart_what_was_left_as_one_and_the_other_way_round(local_host, running, tmp_path: Path) -> None:
    apart = replace(TEST_SETTINGS, chaining="off")
    for settings, rows in ((TEST_SETTINGS, 2_000), (apart, 4_000), (TEST_SETTINGS, 6_000), (apart, 8_000)):
        made = topology(tmp_path, 4000, rows=rows)
        with running(made, local_host, "kept", settings, on_one_slot(local_host)) as run:
            assert (run.arrangement.chains == (CHAIN,)) is (settings is TEST_SETTINGS)
            assert run.wait(WAIT)
        assert written(tmp_path / "out") == [row for row in range(1, rows, 2) if row != 13]


def test_declared_aggregates_are_combined_before_they_go_to_the_state(local_host, running, tmp_path: Path) -> None:
    content, rows = sources.events(keys=20, seed=4), 10_000
    made = Topology("aggregated")
    events = made.source("events", sources.rate(20_000, content, rows=rows))
    wanted = {
        "rows": aggregates.count(),
        "total": aggregates.sum("value"),
        "least": aggregates.min("value"),
        "average": aggregates.mean("value"),
    }
    made.sink(
        "out", sinks.parquet(tmp_path / "out"), inputs=made.aggregate("sums", wanted, inputs=events, key="key", tasks=2)
    )
    slot = local_host.cluster.slots[0]
    together = Placement({name: {slot: 1} for name in ("events", "sums-combine", "sums", "out")}, {"sums": (slot,) * 2})
    with running(made, local_host, placement=together) as run:
        assert run.arrangement.chains == (("events", "sums-combine"),)
        assert run.wait(WAIT)
        combined, _ = run.statistics.totals("sums")
        batches = run.statistics.batches("sums-combine")
    assert combined <= 20 * batches, "a key comes once a batch"
    last: dict[str, dict] = {}
    for file in sorted((tmp_path / "out").rglob("part-*.parquet"), key=lambda file: file.name.split("-")[1]):
        last |= {row["key"]: row for row in pq.ParquetFile(file).read().to_pylist()}
    by_hand: dict[str, list[int]] = {}
    for row in content.rows(0, rows).to_pylist():
        by_hand.setdefault(row["key"], []).append(row["value"])
    assert last == {
        key: {
            "key": key,
            "rows": len(values),
            "total": sum(values),
            "least": min(values),
            "average": pytest.approx(sum(values) / len(values)),
        }
        for key, values in by_hand.items()
    }
