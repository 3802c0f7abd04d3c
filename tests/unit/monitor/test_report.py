"""A report travels as JSON; one that an older Penstock wrote still says what it said."""

from __future__ import annotations

import json

from penstock.channels.records import NewSegment
from penstock.monitor.report import BundleReport, sums

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


def test_counts_of_the_same_name_are_added_up() -> None:
    assert sums([{"a": 1, "b": 2}, {}, {"b": 3}]) == {"a": 1, "b": 5}
