"""A report travels as JSON; one that an older Penstock wrote still says what it said."""

from __future__ import annotations

import json
from dataclasses import replace

from penstock.channels.records import NewSegment
from penstock.monitor.report import BatchReport, BundleReport, ShareTimes, reports_of_share, sums

REPORT = BundleReport(
    slot="a/0",
    instances=2,
    partition=1,
    executor="3",
    host="127.0.0.2",
    pid=17,
    rows_in=10,
    bytes_in=80,
    rows_out={"out": 7},
    busy=0.5,
    busy_total=0.75,
    cpu=0.25,
    seconds=1.0,
    born_from=1.5,
    born_to=2.5,
    segments=(NewSegment("m.out", "m.out/x", 7, 70, "a/0", 1.5, 2.5),),
    staged=(("staged", "final"),),
    traffic={"a/0": 30, "b/0": 50},
    rows_by_channel={"s.out": 10},
    by_spark_sql=True,
    memory=1 << 20,
    executor_memory=1 << 30,
)


def test_a_report_arrives_as_it_was_sent() -> None:
    assert BundleReport.parse(REPORT.as_json()) == REPORT


def test_a_report_from_before_the_monitor_can_be_read() -> None:
    fields = json.loads(REPORT.as_json())
    for name in ("rows_by_channel", "by_spark_sql", "memory", "executor_memory"):
        del fields[name]
    old = BundleReport.parse(json.dumps(fields).encode())
    assert (old.rows_in, old.traffic) == (REPORT.rows_in, REPORT.traffic)
    assert (old.rows_by_channel, old.by_spark_sql, old.memory, old.executor_memory) == ({}, False, None, None)


def test_the_first_report_of_a_share_has_the_bytes_of_its_messages_and_no_manifest_has_them() -> None:
    text = b"[" + REPORT.as_json() + b"," + replace(REPORT, operator="next").as_json() + b"]"
    first, second = reports_of_share(text, 30, 50)
    assert (first.from_driver, first.to_driver, second.from_driver, second.to_driver) == (30, 50, 0, 0)
    assert replace(first, from_driver=None, to_driver=None) == REPORT
    assert first.in_manifest() == REPORT.in_manifest()


def test_what_is_as_usual_is_not_written() -> None:
    """There is a report for every piece: a third of its text said that there was nothing."""
    plain = replace(REPORT, segments=(), staged=(), by_spark_sql=False)
    batch = BatchReport("m", 4, 1.0, 2.0, 10, {"out": 7}, (plain,), ends={"s.out": 10})
    [told] = json.loads(batch.as_json())["bundles"]
    assert not told.keys() & {"segments", "staged", "bad_rows", "bad_example", "rows_from", "by_spark_sql"}
    assert BatchReport.parse(batch.as_json()) == batch


def test_a_manifest_has_no_segments_and_no_times_and_all_staged_files() -> None:
    timed = replace(REPORT, partition=2, times=ShareTimes(1.5, 2.0, 0.5))
    batch = BatchReport("m", 4, 1.0, 2.0, 10, {"out": 7}, (REPORT, timed))
    kept = tuple(replace(one, segments=(), times=None) for one in batch.bundles)
    assert BatchReport.parse(batch.as_json()).bundles == kept


def test_a_manifest_that_says_everything_can_be_read() -> None:
    """Those of before had every field."""
    fields = {**vars(REPORT), "segments": ()}
    batch = {"operator": "m", "batch": 4, "started": 1.0, "finished": 2.0, "rows_in": 10, "rows_out": {"out": 7}}
    parsed = BatchReport.parse(json.dumps({**batch, "bundles": [fields], "busy_elsewhere": 0.0, "ends": {}}))
    assert parsed.bundles == (replace(REPORT, segments=()),)


def test_counts_of_the_same_name_are_added_up() -> None:
    assert sums([{"a": 1, "b": 2}, {}, {"b": 3}]) == {"a": 1, "b": 5}
