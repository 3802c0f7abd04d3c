"""What a bundle does with a chain of operators: each is counted by itself, and only the ends are written."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import aggregates
from penstock.aggregates import Combine
from penstock.channels.layout import Channel
from penstock.channels.segments import SegmentStore
from penstock.cluster.model import Slot
from penstock.engine.executor import bundle, instance
from penstock.engine.executor.readers import ChannelReader
from penstock.engine.message.program import Program, Stage
from penstock.engine.message.shares import Bundle, Descriptor, InputPart, Piece, Share, Spread
from penstock.errors import Location
from penstock.failing import OperatorFailure, found_in, passing_in
from penstock.monitor.report import BundleReport
from penstock.topology.definition import DEAD_LETTER, DEAD_LETTER_SCHEMA, MAIN_OUTPUT, OnError

NUMBERS = pa.schema([("n", pa.int64())])
LATE = pa.schema([("at", pa.timestamp("us")), ("n", pa.int64())])
WHERE = Location("x.py", 1)


class Given:
    """A reader that gives the same numbers to the instances in turn."""

    def __init__(self, *batches: int) -> None:
        self.batches = batches

    def read(self, descriptor, bad_row, counts=None):
        made = [(None, pa.record_batch([list(range(rows))], schema=NUMBERS)) for rows in self.batches]
        return [iter(made[index :: descriptor.instances]) for index in range(descriptor.instances)]

    def born(self, descriptor):
        return 1.0, 2.0


def odd(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.equal(pc.bit_wise_and(batch.column(0), 1), 1))


def not_seven(batch: pa.RecordBatch) -> pa.RecordBatch:
    if 7 in batch.column(0).to_pylist():
        raise ValueError("seven")
    return batch


def stage(name: str, function=None, passes_on: str | None = MAIN_OUTPUT, **more) -> Stage:
    outputs = more.pop("outputs", {MAIN_OUTPUT: NUMBERS})
    channels = more.pop("channels", {})
    return Stage(name, WHERE, function, outputs, channels, passes_on=passes_on, **more)


@pytest.fixture
def run(tmp_path: Path, monkeypatch):

    def work(reader: Given, *stages: Stage, instances: int = 1) -> dict[str, BundleReport]:
        program = Program(stages, reader, SegmentStore(str(tmp_path)))
        reports = bundle.ShareRun(program, Descriptor("a/0", instances, (), {}), 7, 0).run()
        assert [report.operator for report in reports] == [stage.operator for stage in stages]
        return {report.operator: report for report in reports}

    return work


@pytest.mark.parametrize("instances", [1, 2])
def test_every_operator_is_counted_and_only_the_end_is_written(run, instances) -> None:
    channel = Channel("odd.out", "odd", MAIN_OUTPUT, NUMBERS, ("x",))
    reports = run(
        Given(40_000, 10),
        stage("numbers"),
        stage("odd", odd, passes_on=None, channels={MAIN_OUTPUT: (channel,)}),
        instances=instances,
    )
    assert (reports["numbers"].rows_in, reports["numbers"].rows_out) == (40_010, {MAIN_OUTPUT: 40_010})
    assert (reports["odd"].rows_in, reports["odd"].rows_out) == (40_010, {MAIN_OUTPUT: 20_005})
    assert reports["numbers"].segments == ()
    [segment] = reports["odd"].segments
    assert (segment.channel, segment.rows, segment.slot) == ("odd.out", 20_005, "a/0")
    assert reports["odd"].bytes_in == 40_010 * 8
    assert reports["odd"].busy_total > 0
    assert reports["numbers"].instances == instances


def test_rows_that_fail_in_the_middle_go_where_they_were_to_go(run) -> None:
    letters = Channel("picky.dead_letter", "picky", DEAD_LETTER, DEAD_LETTER_SCHEMA, ("x",))
    reports = run(
        Given(10),
        stage("odd", odd),
        stage(
            "picky",
            not_seven,
            outputs={MAIN_OUTPUT: NUMBERS, DEAD_LETTER: DEAD_LETTER_SCHEMA},
            channels={DEAD_LETTER: (letters,)},
            on_error=OnError.DEAD_LETTER,
        ),
        stage("out", None, passes_on=None, outputs={}),
    )
    assert reports["picky"].bad_rows == 1
    assert reports["picky"].rows_out == {MAIN_OUTPUT: 4, DEAD_LETTER: 1}
    assert [segment.channel for segment in reports["picky"].segments] == ["picky.dead_letter"]
    assert reports["out"].rows_in == 4


def picky_stage(function) -> Stage:
    letters = Channel("picky.dead_letter", "picky", DEAD_LETTER, DEAD_LETTER_SCHEMA, ("x",))
    outputs = {MAIN_OUTPUT: NUMBERS, DEAD_LETTER: DEAD_LETTER_SCHEMA}
    channels = {DEAD_LETTER: (letters,)}
    return stage("picky", function, None, outputs=outputs, channels=channels, on_error=OnError.DEAD_LETTER)


def test_an_error_whose_text_is_no_unicode_becomes_a_letter_too(run, tmp_path: Path) -> None:
    """Half of a pair of UTF-16, as a JSON escape may leave it: no UTF-8 has it."""

    def refuse_seven(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 7 in batch.column(0).to_pylist():
            raise ValueError("cut \ud83d")
        return batch

    report = run(Given(10), picky_stage(refuse_seven))["picky"]
    assert report.bad_rows == 1
    assert report.bad_example == 'ValueError: cut \\ud83d: {"n": 7}'
    [segment] = report.segments
    [letter] = next(SegmentStore(str(tmp_path)).read(segment.path)).to_pylist()
    assert (letter["operator"], letter["error"], letter["row"]) == ("picky", "ValueError: cut \\ud83d", '{"n": 7}')
    with pytest.raises(OperatorFailure) as caught:
        run(Given(10), stage("picky", refuse_seven, passes_on=None))
    assert "cut \\ud83d" in str(found_in(str(caught.value)))


def test_a_bad_row_that_python_cannot_hold_becomes_a_letter_too(run, tmp_path: Path) -> None:
    """No datetime is later than the year 9999."""
    late = pa.array([1 << 60], pa.timestamp("us"))

    def far_future(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"at": late, "n": batch.column(0)})

    def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("too late")

    report = run(Given(1), stage("far", far_future, outputs={MAIN_OUTPUT: LATE}), picky_stage(refuse))["picky"]
    assert report.bad_rows == 1
    [segment] = report.segments
    [letter] = next(SegmentStore(str(tmp_path)).read(segment.path)).to_pylist()
    assert json.loads(letter["row"]) == {"at": f"<value out of range: {1 << 60}>", "n": "0"}


LACKING = [MemoryError(), RuntimeError("can't start new thread"), OSError(errno.ENOMEM, "Cannot allocate memory")]


@pytest.mark.parametrize("on_error", [OnError.SKIP, OnError.DEAD_LETTER])
@pytest.mark.parametrize("problem", LACKING, ids=repr)
def test_what_the_machine_lacks_is_no_bad_row(run, problem: Exception, on_error: OnError) -> None:
    """The rows would be left out although nothing is wrong with them."""

    def lacking(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise problem

    outputs = {MAIN_OUTPUT: NUMBERS, DEAD_LETTER: DEAD_LETTER_SCHEMA}
    with pytest.raises(OperatorFailure) as caught:
        run(Given(10), stage("m", lacking, passes_on=None, outputs=outputs, on_error=on_error))
    assert passing_in(str(caught.value))


def test_where_memory_is_enough_for_fewer_rows_no_row_is_left_out(run) -> None:
    def at_most_three(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows > 3:
            raise MemoryError
        return batch

    report = run(Given(10), stage("m", at_most_three, passes_on=None, on_error=OnError.SKIP))["m"]
    assert (report.rows_out, report.bad_rows) == ({MAIN_OUTPUT: 10}, 0)


def test_a_segment_that_is_away_is_a_named_error_for_spark_sql_too(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(bundle.worker, "prepare", lambda: None)  # it would freeze what this process holds
    store = SegmentStore(str(tmp_path))
    program = Program((stage("k"),), ChannelReader(store), store).pack()
    gone = InputPart((Piece("c/gone.arrow", 0, 5, Spread.SHUFFLE, 1.0, 2.0, "a/0"),))
    share = Share(Bundle(Slot("a", 0), 1), (gone,))
    with pytest.raises(OperatorFailure, match="SEGMENT_UNREADABLE") as caught:
        list(bundle.read(program, [pa.record_batch({"share": [share.as_descriptor()]})]))
    assert passing_in(str(caught.value))


def test_what_fails_is_named_after_its_own_operator(run) -> None:
    with pytest.raises(OperatorFailure, match='the function of \\\\"picky\\\\" raised ValueError: seven'):
        run(Given(10), stage("odd", odd), stage("picky", not_seven), stage("out", None, passes_on=None, outputs={}))


def test_a_function_that_returns_the_wrong_thing_is_named_too(run) -> None:
    with pytest.raises(OperatorFailure, match='\\\\"wrong\\\\": '):
        run(Given(10), stage("odd", odd), stage("wrong", lambda batch: 5, passes_on=None))


@pytest.mark.parametrize(("width", "rows"), [(8, 65_536), (32, 32_768), (1_000, 16_384)])
def test_a_chain_takes_narrow_rows_in_larger_batches_than_wide_ones(width: int, rows: int) -> None:
    values = pa.array([b"x" * width] * 140_000, pa.binary(width))
    batches = list(instance.in_handy_batches(iter([pa.record_batch([values], names=["x"])]), 1 << 20))
    assert [batch.num_rows for batch in batches[:2]] == [rows, rows]
    assert sum(batch.num_rows for batch in batches) == 140_000


def test_nothing_that_nobody_reads_is_kept(run) -> None:
    seen: list[int] = []
    counting = stage("out", lambda batch: seen.append(batch.num_rows), passes_on=None, outputs={})
    reports = run(Given(40_000), stage("numbers"), counting)
    assert reports["out"].rows_in == sum(seen) == 40_000
    assert not counting.keeps(MAIN_OUTPUT)


@pytest.mark.parametrize(
    ("given", "called_with"),
    [
        ((10, 20, 30), [60]),
        ((4_000, 4_000, 4_000), [8_000, 4_000]),
        ((5_000, 10, 10, 5_000, 10), [5_000, 20, 5_000, 10]),
        ((70_000,), [65_536, 4_464]),
        ((0, 0), [0]),
    ],
)
def test_small_batches_are_joined_and_large_ones_cut(run, given, called_with) -> None:
    seen: list[int] = []
    reports = run(Given(*given), stage("out", lambda batch: seen.append(batch.num_rows), passes_on=None, outputs={}))
    assert seen == called_with
    assert reports["out"].rows_in == sum(given)


def test_a_function_that_gathers_is_called_once(run) -> None:
    seen: list[int] = []

    def whole(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch.num_rows)
        return batch.slice(0, 3)

    reports = run(
        Given(40_000, 10), stage("odd", odd), stage("whole", whole, gathers=True), stage("out", None, None, outputs={})
    )
    assert seen == [20_005]
    assert reports["whole"].rows_in == 20_005
    assert reports["whole"].rows_out == {MAIN_OUTPUT: 3}
    assert reports["out"].rows_in == 3


def test_what_can_be_folded_is_folded_on_the_way(run, monkeypatch) -> None:
    monkeypatch.setattr(instance, "FOLD_ROWS", 10_000)
    combine = Combine(("n",), {"count": aggregates.count()}, NUMBERS)
    calls: list[int] = []

    class Counting:
        def __call__(self, batch):
            calls.append(batch.num_rows)
            return combine(batch)

        fold = staticmethod(combine.fold)

    collected: list[pa.RecordBatch] = []
    reports = run(
        Given(*[5_000] * 7),
        stage("numbers"),
        stage("combine", Counting(), outputs={MAIN_OUTPUT: combine.schema}, gathers=True),
        stage("out", collected.append, passes_on=None, outputs={}),
    )
    assert calls == [10_000, 10_000, 10_000, 5_000]
    rows = [row for batch in collected for row in batch.to_pylist()]
    assert sorted(rows, key=lambda row: row["n"]) == [{"n": n, "count": 7} for n in range(5_000)]
    assert reports["combine"].rows_in == 35_000
    assert reports["combine"].rows_out == {MAIN_OUTPUT: 5_000}


def test_what_fails_while_it_is_folded_is_named(run, monkeypatch) -> None:
    monkeypatch.setattr(instance, "FOLD_ROWS", 10)

    class Failing:
        def __call__(self, batch):
            raise ValueError("no")

        fold = __call__

    with pytest.raises(OperatorFailure, match='the function of \\\\"sums\\\\" raised ValueError: no'):
        run(Given(20), stage("numbers"), stage("sums", Failing(), passes_on=None, gathers=True))
