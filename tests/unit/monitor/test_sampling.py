"""From a batch's report to its sample: what is known is exact, what is not is None."""

from __future__ import annotations

from typing import Any

import pytest
from monitor_fakes import DEFINITION

from penstock.channels.records import NewSegment
from penstock.monitor.report import BatchReport, BundleReport, ShareTimes
from penstock.monitor.sample import UNKNOWN_SLOT, Levels, StateSize
from penstock.monitor.sampling import DriverKnowledge, sample_of, sample_of_rows, streams_of, waiting


def bundle(slot: str, rows: int = 10, **more: Any) -> BundleReport:
    fields: dict[str, Any] = {
        "instances": 1,
        "partition": 0,
        "executor": None,
        "host": "h",
        "pid": 1,
        "rows_in": rows,
        "bytes_in": rows * 8,
        "rows_out": {"out": rows},
        "busy": 0.25,
        "busy_total": 0.5,
        "cpu": 0.125,
        "seconds": 0.75,
        "born_from": 98.0,
        "born_to": 99.0,
        "segments": (NewSegment("work.out", f"work.out/{slot}", max(rows, 1), 100, slot, 98.0, 99.0),),
    }
    return BundleReport(slot, **(fields | more))


def report(*bundles: BundleReport, rows: int | None = None, operator: str = "work") -> BatchReport:
    total = sum(one.rows_in for one in bundles) if rows is None else rows
    return BatchReport(operator, 7, 100.0, 101.0, total, {"out": total}, bundles)


def test_channels_become_streams() -> None:
    assert streams_of(DEFINITION, "out") == {"work.out": "work->out", "rows.out": "rows->out"}
    known = DriverKnowledge(streams=streams_of(DEFINITION, "out"))
    sample = sample_of(report(bundle("a/0", rows_by_channel={"work.out": 10})), known)
    assert sample.rows_in == {"work->out": 10, "rows->out": 0}
    assert sample.slots[0].rows_in == {"work->out": 10, "rows->out": 0}


def test_the_bundles_of_a_slot_are_added_up() -> None:
    known = DriverKnowledge(streams={"rows.out": "rows->work"}, previous_finished=99.5)
    sample = sample_of(
        report(
            bundle("a/0", 10, traffic={"a/0": 30, "b/0": 50}, memory=5, pid=1, executor_memory=70),
            bundle("a/0", 20, traffic={"b/0": 160}, memory=7, pid=2, executor_memory=71),
            bundle("b/0", 30, traffic={"b/0": 240}, memory=9),
        ),
        known,
    )
    first, second = sample.slots
    assert (first.slot, first.instances, first.rows, first.rows_out) == ("a/0", 2, 30, {"out": 30})
    assert (first.bytes_in, first.bytes_out, first.busy, first.cpu) == (240, 200, 1.0, 0.25)
    assert (first.memory, first.executor_memory) == (12, 71)
    assert (second.slot, second.memory, second.executor_memory) == ("b/0", 9, None)
    assert sample.traffic == {("a/0", "a/0"): 30, ("b/0", "a/0"): 210, ("b/0", "b/0"): 240}
    assert (sample.rows, sample.waiting, sample.overhead, sample.seconds) == (60, 0.5, 0.75, 1.0)


def test_a_batch_that_waits_to_be_published_is_no_overhead_of_a_bundle_that_goes_on() -> None:
    """Two batches of one instance overlap: it works on the second while the first waits for its transaction."""
    share = bundle("a/0", busy=0.25, times=ShareTimes(0.375, 0.0, 0.0))
    first = BatchReport("work", 0, 100.0, 100.875, 10, {}, (share,))
    second = BatchReport("work", 1, 100.375, 101.25, 10, {}, (share,))
    samples = [sample_of(one, DriverKnowledge()) for one in (first, second)]
    assert [one.overhead for one in samples] == [0.125, 0.125]
    assert [one.seconds for one in samples] == [0.875, 0.875], "a batch is as long as ever"
    assert [one.longest_share for one in samples] == [0.375, 0.375]


def test_the_longest_share_of_a_batch_says_what_is_overhead() -> None:
    parts = [bundle(slot, busy=0.25, times=ShareTimes(held, 0.0, 0.0)) for slot, held in (("a/0", 0.5), ("b/0", 0.375))]
    chained = BatchReport("work", 0, 100.0, 102.0, 20, {}, tuple(parts), busy_elsewhere=0.125)
    assert sample_of(chained, DriverKnowledge()).overhead == 0.125


def test_what_bundles_have_waited_is_added_up_and_unknown_in_a_micro_batch() -> None:
    first, second = bundle("a/0", times=ShareTimes(0.5, 2.0, 0.25)), bundle("a/0", times=ShareTimes(0.5, 1.0, 0.5))
    [work] = sample_of(report(first, second), DriverKnowledge()).slots
    assert (work.waiting_input, work.waiting_room) == (3.0, 0.75)
    [work] = sample_of(report(first, bundle("a/0")), DriverKnowledge()).slots
    assert (work.waiting_input, work.waiting_room) == (None, None)


def test_a_share_of_a_micro_batch_takes_as_long_as_the_batch() -> None:
    found = report(bundle("a/0"))
    assert sample_of(found, DriverKnowledge()).longest_share == found.finished - found.started


def test_where_rows_came_from_is_added_up_and_unknown_where_one_bundle_did_not_count_it() -> None:
    over = {
        "rows_by_channel": {"rows.out": 10},
        "rows_from": {"link": 6, "own": 4},
        "bytes_from": {"link": 48, "own": 32},
    }
    kept = {"rows_by_channel": {"rows.out": 10}, "rows_from": {"kept": 10}, "bytes_from": {"kept": 80}}
    [work] = sample_of(report(bundle("a/0", **over), bundle("a/0", **kept), bundle("a/0")), DriverKnowledge()).slots
    assert work.rows_from == {"link": 6, "own": 4, "kept": 10}
    assert work.bytes_from == {"link": 48, "own": 32, "kept": 80}
    older = bundle("a/0", rows_by_channel={"rows.out": 10})
    known = DriverKnowledge(executors={"7": "a/0"})
    for unknown in (older, bundle("a/0", by_spark_sql=True, executor="7")):
        [work] = sample_of(report(bundle("a/0", **over), unknown), known).slots
        assert (work.rows_from, work.bytes_from) == (None, None)


def test_what_links_carried_is_from_machine_to_slot_and_of_spark_sql_what_the_driver_worked_out() -> None:
    one, two = bundle("a/0", over_links={"b": 30, "c": 5}), bundle("a/0", over_links={"b": 10})
    sample = sample_of(report(one, two, bundle("b/0")), DriverKnowledge(links={("x", "a/0"): 1}))
    assert sample.links == {("b", "a/0"): 40, ("c", "a/0"): 5}
    by_sql = report(bundle("a/0", by_spark_sql=True))
    assert sample_of(by_sql, DriverKnowledge(links={("x", "a/0"): 1})).links == {("x", "a/0"): 1}
    assert sample_of(by_sql, DriverKnowledge()).links is None


def test_messages_of_the_driver_are_added_up_and_unknown_where_spark_carries_them() -> None:
    told = [bundle("a/0", from_driver=300, to_driver=500), bundle("a/0", from_driver=0, to_driver=0)]
    [work] = sample_of(report(*told), DriverKnowledge()).slots
    assert (work.from_driver, work.to_driver) == (300, 500)
    [work] = sample_of(report(*told, bundle("a/0")), DriverKnowledge()).slots
    assert (work.from_driver, work.to_driver) == (None, None)


def test_bytes_of_which_only_the_task_that_wrote_them_is_known_are_no_traffic() -> None:
    sample = sample_of(report(bundle("a/0", traffic={"a/0": 30, "task/3": 50})), DriverKnowledge())
    assert sample.traffic is None


def test_a_process_that_ran_two_bundles_counts_once() -> None:
    sample = sample_of(report(bundle("a/0", memory=5), bundle("a/0", memory=8)), DriverKnowledge())
    assert sample.slots[0].memory == 8


def test_a_bundle_is_where_its_executor_is() -> None:
    known = DriverKnowledge(executors={"4": "b/1"})
    assert sample_of(report(bundle("a/0", executor="4")), known).slots[0].slot == "b/1"
    assert sample_of(report(bundle("a/0", executor="5")), known).slots[0].slot == "a/0"


def test_a_row_of_a_broadcast_counts_once_for_the_operator() -> None:
    known = DriverKnowledge(streams={"rows.out": "rows->work"}, rows_by_channel={"rows.out": 10})
    parts = [bundle(slot, 10, rows_by_channel={"rows.out": 10}) for slot in ("a/0", "b/0")]
    sample = sample_of(report(*parts, rows=10), known)
    assert (sample.rows, sample.rows_in) == (10, {"rows->work": 10})
    assert [one.rows for one in sample.slots] == [10, 10]


def test_what_spark_sql_does_not_say_is_not_known() -> None:
    tasks = [bundle(f"task/{task}", 0, by_spark_sql=True, busy=0.0, busy_total=0.0, cpu=0.0) for task in range(3)]
    known = DriverKnowledge(streams={"rows.out": "rows->work"}, tasks=("a/0", "b/0", "a/0"))
    sample = sample_of(report(*tasks, rows=50), known)
    assert {one.slot: one.busy for one in sample.slots} == {"a/0": 1.5, "b/0": 0.75}
    for one in sample.slots:
        assert (one.rows, one.rows_in, one.bytes_in, one.cpu) == (None, None, None, None)
    assert (sample.rows, sample.rows_in, sample.traffic, sample.overhead) == (50, None, None, None)


def test_what_the_feeds_gave_to_spark_sql_is_known() -> None:
    known = DriverKnowledge(
        streams={"rows.out": "rows->work"}, rows_by_channel={"rows.out": 50}, traffic={("a/0", "b/0"): 400}
    )
    sample = sample_of(report(bundle("task/0", 0, by_spark_sql=True), rows=50), known)
    assert (sample.rows_in, sample.traffic) == ({"rows->work": 50}, {("a/0", "b/0"): 400})
    assert sample.slots[0].slot == UNKNOWN_SLOT


def test_only_a_sink_has_latency_and_no_bytes_out() -> None:
    assert sample_of(report(bundle("a/0")), DriverKnowledge()).latency is None
    sample = sample_of(report(bundle("a/0", 1000), operator="out"), DriverKnowledge(is_sink=True))
    assert sample.latency is not None
    assert sample.latency.rows == 1000
    assert 2.0 < (sample.latency.mean or 0) < 3.0
    assert sample.slots[0].bytes_out is None


def test_what_the_driver_knows_is_handed_on() -> None:
    levels, state = Levels(101.0, {"rows->work": waiting(5, 40, 90.0, 101.0)}), {0: StateSize(10, None)}
    known = DriverKnowledge(levels=levels, state=state, overhead_parts={"planning": 0.1})
    sample = sample_of(report(bundle("a/0")), known)
    assert (sample.levels, sample.state, sample.overhead_parts) == (levels, state, {"planning": 0.1})
    assert levels.backlog["rows->work"].age == 11.0


@pytest.mark.parametrize(("born", "age"), [(None, None), (90.0, 10.0), (105.0, 0.0)])
def test_the_age_of_what_waits(born: float | None, age: float | None) -> None:
    assert waiting(1, 8, born, 100.0).age == age


def test_an_old_report_is_a_sample_with_less_in_it() -> None:
    sample = sample_of(report(bundle("a/0")), DriverKnowledge(streams={"rows.out": "rows->work"}))
    assert (sample.rows, sample.rows_in, sample.waiting, sample.slots[0].memory) == (10, None, None, None)


def test_a_sample_of_rows_says_nothing_of_where_and_at_what_cost() -> None:
    of = report(bundle("a/0"), bundle("b/0", rows=30), operator="out")
    rows, whole = sample_of_rows(of, is_sink=True), sample_of(of, DriverKnowledge(is_sink=True))
    assert (rows.rows, rows.rows_out, rows.bad_rows) == (whole.rows, whole.rows_out, whole.bad_rows)
    assert rows.latency is not None
    assert whole.latency is not None
    assert rows.latency.as_text() == whole.latency.as_text()
    [work] = rows.slots
    assert (work.slot, work.rows, work.busy, work.cpu, work.bytes_in) == (UNKNOWN_SLOT, None, None, None, None)
    assert (rows.rows_in, rows.traffic, rows.overhead, rows.waiting) == (None, None, None, None)
