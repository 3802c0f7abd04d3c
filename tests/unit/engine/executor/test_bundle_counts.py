"""What a bundle says it read: rows by channel, and bytes by the slot that wrote them, counted and not estimated."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.channels.segments import SegmentFile, SegmentStore
from penstock.engine.executor import bundle, worker
from penstock.engine.executor.readers import ChannelReader
from penstock.engine.message.program import Program, Stage
from penstock.engine.message.shares import Descriptor, Piece, Spread
from penstock.errors import Location
from penstock.monitor.report import BundleReport
from penstock.topology.definition import MAIN_OUTPUT

SCHEMA = pa.schema([("text", pa.string())])


@pytest.fixture
def store(tmp_path: Path) -> SegmentStore:
    return SegmentStore(str(tmp_path), max_batch_rows=4)


def written(store: SegmentStore, channel: str, texts: list[str]) -> SegmentFile:
    return store.write(channel, f"{len(texts)}.arrow", [pa.record_batch([texts], schema=SCHEMA)], SCHEMA)


def piece(segment: SegmentFile, start: int, stop: int, producer: str, spread: Spread = Spread.SHUFFLE) -> Piece:
    return Piece(segment.path, start, stop, spread, 1.0, 2.0, producer)


def report_of(store: SegmentStore, pieces: list[Piece], instances: int, monkeypatch) -> BundleReport:
    monkeypatch.setattr(worker, "running_task", lambda: (7, 0))
    stage = Stage("m", Location("x.py", 1), None, {MAIN_OUTPUT: SCHEMA}, {})
    program = Program((stage,), ChannelReader(store), store)
    [report] = bundle.ShareRun(program, Descriptor("a/0", instances, tuple(pieces), None), 0, 0).run()
    return report


@pytest.mark.parametrize("instances", [1, 3])
def test_traffic_is_the_bytes_of_the_rows_that_were_read(store, instances, monkeypatch) -> None:
    short, long = written(store, "s.out", ["x"] * 9), written(store, "t.out", ["y" * 1000] * 6)
    pieces = [piece(short, 2, 9, "b/0"), piece(long, 0, 5, "c/1"), piece(long, 5, 6, "b/0")]
    report = report_of(store, pieces, instances, monkeypatch)
    assert report.rows_by_channel == {"s.out": 7, "t.out": 6}
    # A row of text is its characters and four bytes of offset; every batch has one offset more, and no proportion of
    # the whole could tell the 7 short rows from the long one that came from the same slot.
    assert report.traffic["c/1"] == pytest.approx(5 * 1004, abs=4 * 5)
    assert report.traffic["b/0"] == pytest.approx(7 * 5 + 1004, abs=4 * 5)
    assert sum(report.traffic.values()) == report.bytes_in
    assert sum(report.rows_by_channel.values()) == report.rows_in


def test_every_instance_that_gets_a_broadcast_row_counts_it(store, monkeypatch) -> None:
    segment = written(store, "s.out", ["x"] * 5)
    report = report_of(store, [piece(segment, 0, 5, "b/0", Spread.BROADCAST)], 3, monkeypatch)
    assert report.rows_by_channel == {"s.out": 15}
    assert report.rows_from == {"store": 5}, "the bundle got each row once"


def test_a_bundle_says_where_its_rows_came_from(store, monkeypatch) -> None:
    monkeypatch.setattr(worker, "host_name", lambda: "here")
    segment = written(store, "s.out", ["x"] * 9)
    report = report_of(store, [piece(segment, 0, 4, "here/0"), piece(segment, 4, 9, "there/0")], 2, monkeypatch)
    assert report.rows_from == {"own": 4, "store": 5}
    assert sum(report.bytes_from.values()) == report.bytes_in
    assert BundleReport.parse(report.as_json()) == report


def test_a_report_is_what_it_was_when_it_was_made(store, monkeypatch) -> None:
    monkeypatch.setattr(worker, "running_task", lambda: (7, 0))
    stage = Stage("m", Location("x.py", 1), None, {MAIN_OUTPUT: SCHEMA}, {})
    pieces = (piece(written(store, "s.out", ["x"]), 0, 1, "b/0"),)
    run = bundle.ShareRun(Program((stage,), ChannelReader(store), store), Descriptor("a/0", 1, pieces, None), 0, 0)
    run.reads.crossed("b", 50)
    [report] = run.run()
    # A request that was given up goes on in a thread of its own.
    run.reads.crossed("b", 5)
    run.reads.crossed("c", 5)
    assert report.over_links == {"b": 50}


def test_memory_is_that_of_the_process_now(store, monkeypatch) -> None:
    report = report_of(store, [piece(written(store, "s.out", ["x"]), 0, 1, "b/0")], 1, monkeypatch)
    assert report.memory is not None
    assert 1 << 20 < report.memory < 1 << 40
    assert report.executor_memory is None  # there is no executor above a test


def test_a_process_that_is_gone_has_no_memory() -> None:
    assert worker.resident_bytes(os.getpid()) is not None
    assert worker.resident_bytes(2**30) is None
