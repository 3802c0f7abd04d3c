"""The memory of a bundle does not grow with the rows of its share, good or bad, small or large."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import sources
from penstock.channels.layout import Channel
from penstock.channels.segments import SegmentFile, SegmentStore
from penstock.engine.executor import bundle, instance, worker
from penstock.engine.executor.readers import SourceReader
from penstock.engine.message.program import Program, Stage
from penstock.engine.message.shares import Descriptor
from penstock.errors import Location
from penstock.failing import OperatorFailure
from penstock.monitor.report import BundleReport
from penstock.sinks.parquet_sink import ParquetWriter
from penstock.topology.definition import DEAD_LETTER, DEAD_LETTER_SCHEMA, MAIN_OUTPUT, OnError

TEXTS = pa.schema([("n", pa.int64()), ("text", pa.string())])
OUT = Channel("m.out", "m", MAIN_OUTPUT, TEXTS, ("x",))
LETTERS = Channel("m.dead_letter", "m", DEAD_LETTER, DEAD_LETTER_SCHEMA, ("x",))


class Made:
    """A reader whose rows are made when they are asked for; it notes how much is allocated then."""

    def __init__(self, batches: int, rows: int, text: int) -> None:
        self.batches, self.rows, self.text = batches, rows, text
        self.most = 0

    def read(self, descriptor, bad_rows, counts=None):
        return [self._rows(index, descriptor.instances) for index in range(descriptor.instances)]

    def born(self, descriptor):
        return 1.0, 2.0

    def _rows(self, index, instances):
        per_instance = self.batches // instances
        for number in range(index * per_instance, (index + 1) * per_instance):
            first = number * self.rows
            yield None, pa.record_batch([range(first, first + self.rows), ["x" * self.text] * self.rows], schema=TEXTS)
            self.most = max(self.most, pa.total_allocated_bytes())


def stage(function=None, **more) -> Stage:
    outputs = {MAIN_OUTPUT: TEXTS, DEAD_LETTER: DEAD_LETTER_SCHEMA}
    channels = more.pop("channels", {MAIN_OUTPUT: (OUT,), DEAD_LETTER: (LETTERS,)})
    return Stage("m", Location("x.py", 1), function, outputs, channels, **more)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SegmentStore:
    monkeypatch.setattr(worker, "running_task", lambda: (7, 3))
    return SegmentStore(str(tmp_path / "segments"))


def run(store: SegmentStore, reader, one: Stage, instances: int = 1) -> BundleReport:
    [report] = bundle.ShareRun(Program((one,), reader, store), Descriptor("a/0", instances, (), {}), 0, 0).run()
    return report


def numbers(store: SegmentStore, report: BundleReport) -> list[int]:
    read = [batch for segment in report.segments for batch in store.read(segment.path)]
    return [number for batch in read for number in batch.column("n").to_pylist()]


@pytest.mark.parametrize("instances", [1, 2])
def test_outputs_that_are_kept_are_bounded(instances: int, store: SegmentStore) -> None:
    before = pa.total_allocated_bytes()
    reader = Made(batches=32, rows=8, text=1 << 20)  # 256 MiB in all
    report = run(store, reader, stage(lambda batch: batch), instances)
    assert reader.most - before < (160 << 20)
    assert report.rows_out == {MAIN_OUTPUT: 256}
    assert numbers(store, report) == list(range(256)), "in the order of the instances"
    assert sum(segment.rows for segment in report.segments) == 256


@pytest.mark.parametrize("rows", [1, 8], ids=["one output", "an output a row"])
def test_slices_do_not_keep_the_rows_that_they_were_cut_from(rows: int, store: SegmentStore) -> None:
    before = pa.total_allocated_bytes()
    reader = Made(batches=256, rows=5_000, text=200)  # 256 MiB in all

    def some(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        return [batch.slice(row, 1) for row in range(rows)]

    report = run(store, reader, stage(some))
    assert reader.most - before < (32 << 20)
    assert numbers(store, report) == [5_000 * batch + row for batch in range(256) for row in range(rows)]


def test_slices_that_are_gathered_do_not_keep_the_rows_that_they_were_cut_from(store: SegmentStore) -> None:
    before = pa.total_allocated_bytes()
    reader = Made(batches=256, rows=5_000, text=200)
    first = stage(lambda batch: batch.slice(0, 1), channels={}, passes_on=MAIN_OUTPUT)
    program = Program((first, stage(lambda batch: batch, gathers=True)), reader, store)
    [_, report] = bundle.ShareRun(program, Descriptor("a/0", 1, (), {}), 0, 0).run()
    assert reader.most - before < (32 << 20)
    assert numbers(store, report) == [5_000 * batch for batch in range(256)]


def test_rows_of_spark_sql_are_bounded_too(store: SegmentStore) -> None:
    before = pa.total_allocated_bytes()
    made = Made(batches=32, rows=8, text=1 << 20)
    [rows] = made.read(Descriptor("a/0", 1, (), None), None)
    packed = Program((Stage("m", Location("x.py", 1), None, {MAIN_OUTPUT: TEXTS}, {MAIN_OUTPUT: (OUT,)}),), None, store)
    [reports] = list(bundle.write(packed.pack(), (batch for _, batch in rows)))
    report = BundleReport.parse(reports.column(0)[0].as_py())
    assert made.most - before < (160 << 20)
    assert numbers(store, report) == list(range(256))


def test_a_sink_writes_several_files_then(store: SegmentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "KEPT_BYTES", 1 << 20)
    writer = ParquetWriter(str(tmp_path / "out"), "mark")
    report = run(store, Made(12, 5_000, 100), stage(file_writer=writer, channels={}))
    assert len(report.staged) > 2
    assert len({final for _, final in report.staged}) == len(report.staged)
    read = [pq.read_table(staged.rpartition("|")[2]).column("n").to_pylist() for staged, _ in report.staged]
    assert [number for part in read for number in part] == list(range(60_000))
    writer.clear()
    assert list((tmp_path / "out" / "_staging").iterdir()) == [], "they are known as ours if nobody publishes them"


def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
    raise ValueError("never")


def test_bad_rows_that_are_skipped_are_counted_and_not_kept(store: SegmentStore) -> None:
    kept: list[int] = []

    class Watched(Made):
        def _rows(self, index, instances):
            for portion in super()._rows(index, instances):
                yield portion
                kept.append(sum(len(work.bad) for works in running.works for work in works))

    one = stage(refuse, on_error=OnError.SKIP)
    running = bundle.ShareRun(Program((one,), Watched(20, 500, 100), store), Descriptor("a/0", 1, (), {}), 0, 0)
    [report] = running.run()
    assert report.bad_rows == 10_000
    assert report.bad_example.startswith("ValueError: never: ")
    assert max(kept) == 0


def test_dead_letters_are_written_as_they_come(store: SegmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "KEPT_BYTES", 200_000)
    report = run(store, Made(8, 5_000, 10), stage(refuse, on_error=OnError.DEAD_LETTER))
    assert report.bad_rows == 40_000
    assert report.rows_out == {DEAD_LETTER: 40_000}
    assert {segment.channel for segment in report.segments} == {"m.dead_letter"}
    assert len(report.segments) > 5
    letters = [row for one in report.segments for batch in store.read(one.path) for row in batch.to_pylist()]
    assert [json.loads(row["row"])["n"] for row in letters] == list(range(40_000))


def test_bad_rows_of_a_file_without_a_good_one_are_written_as_they_come(
    store: SegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "KEPT_BYTES", 200_000)

    class OnlyBad(Made):
        def read(self, descriptor, bad_rows, counts=None):
            def rows():
                for number in range(1_000):
                    bad_rows[0]("x" * 5_000, f"no {number}")
                yield from ()

            return [rows()]

    report = run(store, OnlyBad(0, 0, 0), stage(on_error=OnError.DEAD_LETTER))
    assert report.bad_rows == 1_000
    assert len(report.segments) > 5


class Full(SegmentStore):
    """A store on a disk that is full for one write, and has room again after it."""

    def __init__(self, root: str, failing: int) -> None:
        super().__init__(root)
        self.failing, self.writes = failing, 0

    def write(self, *arguments) -> SegmentFile:
        self.writes += 1
        if self.writes == self.failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(*arguments)


def test_a_disk_that_is_full_while_a_file_is_read_is_no_fault_of_the_file(
    store: SegmentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad row has the good ones before it written, in the middle of reading: they would be lost."""
    monkeypatch.setattr(instance, "KEPT_BYTES", 20_000)
    monkeypatch.setattr(instance, "SMALL_BATCH_ROWS", 100)
    monkeypatch.setattr("penstock.sources.json_lines.BLOCK_BYTES", 1 << 14)
    path = tmp_path / "rows.json"
    good, bad = 1_000, 50
    lines = [json.dumps({"n": n, "text": "x" * 20}) + ("\nno JSON " + "y" * 900) * (n % 20 == 0) for n in range(good)]
    path.write_text("\n".join(lines))
    reader = SourceReader(sources.files(str(path), format="json", schema="n long, text string"))
    share = Descriptor("a/0", 1, (), {"ranges": [[[str(path), 0, None], path.stat().st_size]], "born": [1.0, 2.0]})
    one = stage(on_error=OnError.DEAD_LETTER)

    def attempt(failing: int) -> tuple[BundleReport, int]:
        full = Full(store.root, failing)
        [report] = bundle.ShareRun(Program((one,), reader, full), share, 0, 0).run()
        return report, full.writes

    report, writes = attempt(0)
    assert report.rows_out == {MAIN_OUTPUT: good, DEAD_LETTER: bad}
    assert writes > 5
    for failing in range(1, writes + 1):
        with pytest.raises(OSError, match="No space left"):
            attempt(failing)


# Rows that are large


def large(text_bytes: int, times: int):
    """The same row again and again: it is in memory once."""
    batch = pa.record_batch([[1], ["x" * text_bytes]], schema=TEXTS)
    return [batch] * times


def test_large_rows_are_not_joined_beyond_what_a_column_can_hold() -> None:
    given = large(64 << 20, 40)  # 2.5 GiB
    sizes = [batch.nbytes for batch in instance.in_handy_batches(iter(given))]
    assert len(sizes) == 40
    small = [batch.num_rows for batch in instance.in_handy_batches(iter(large(1 << 20, 40)))]
    assert small == [15, 15, 10]


def test_rows_that_do_not_fit_into_the_one_batch_that_a_function_wants(store: SegmentStore) -> None:
    class Large(Made):
        def _rows(self, index, instances):
            for batch in large(64 << 20, 40):
                yield None, batch

    with pytest.raises(OperatorFailure, match="ROWS_TOO_LARGE"):
        run(store, Large(0, 0, 0), stage(lambda batch: batch, gathers=True))


def test_a_function_that_can_fold_does_so_when_it_has_much(
    store: SegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Longest:
        """The row with the highest number."""

        def __init__(self) -> None:
            self.most = 0

        def __call__(self, batch: pa.RecordBatch) -> pa.Table:
            self.most = max(self.most, batch.nbytes)
            return pa.Table.from_batches([batch.slice(batch.num_rows - 1)])

        fold = __call__

    longest = Longest()
    monkeypatch.setattr(instance, "FOLD_BYTES", 4 << 20)
    report = run(store, Made(40, 1, 1 << 20), stage(longest, gathers=True))
    assert numbers(store, report) == [39]
    assert longest.most < (20 << 20), "half of it, and no more than what is joined at once"
