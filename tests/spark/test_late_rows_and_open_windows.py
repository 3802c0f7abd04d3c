"""Rows that a watermark drops are counted, windows that are still open are told of, and a result is as old as the rows
it was made of."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock import Topology, sinks, sources
from penstock.api.prometheus import exposition
from penstock.api.status import status_of
from penstock.cli.summary import summarize
from penstock.cli.summary_page import end
from penstock.engine.spark.host import SparkHost
from penstock.engine.topology import SparkTopology
from penstock.monitor.history import HistoryQuery
from penstock.monitor.report import BatchReport

WAIT = 120
SCHEMA = "key string, at timestamp"


def per_minute(frame: DataFrame) -> DataFrame:
    windows = frame.withWatermark("at", "10 seconds").groupBy(F.window("at", "60 seconds"), "key")
    return windows.agg(F.count("*").alias("n")).select(F.col("window.start").alias("start"), "key", "n")


def count(frame: DataFrame) -> DataFrame:
    return frame.groupBy("key").count()


def write(folder: Path, name: str, rows: list[tuple[str, float]]) -> None:
    lines = [json.dumps({"key": key, "at": datetime.fromtimestamp(at, UTC).isoformat()}) for key, at in rows]
    folder.mkdir(exist_ok=True)
    (folder / f".{name}").write_text("\n".join(lines) + "\n")
    (folder / f".{name}").rename(folder / name)  # it appears whole


def until(run: SparkTopology, condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        run.check()
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def drain(run: SparkTopology) -> None:
    run.begin_drain()
    until(run, lambda: run.drained, "it drains")


def watched(folder: Path) -> Topology:
    topology = Topology("late")
    rows = topology.source("rows", sources.files(folder, format="json", schema=SCHEMA, follow=True))
    schema = "start timestamp, key string, n long"
    windows = topology.keyed(
        "windows", per_minute, inputs=[rows], key="key", schema=schema, tasks=2, output_mode="append"
    )
    counts = topology.keyed("counts", count, inputs=[rows], key="key", schema="key string, count long", tasks=2)
    topology.sink("out", sinks.noop(), inputs=[windows])
    topology.sink("all", sinks.noop(), inputs=[counts])
    return topology


def test_late_rows_are_counted_and_open_windows_are_told_of(
    local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    with running(watched(folder), local_host, "kept") as run:
        # Windows of one minute: the watermark is 290 s after these, so the first minute is let go.
        write(folder, "1.json", [("a", 0.0), ("b", 30.0), ("a", 300.0)])
        until(run, lambda: run.statistics.totals("windows")[1] == 2, "the first windows are let go")
        late = [(f"late{number}", 5.0) for number in range(7)]
        # These two are of one key and window: the aggregate has made one of them before they reach its state.
        late += [("twice", 6.0), ("twice", 7.0)]
        write(folder, "2.json", [*late, ("c", 301.0), ("d", 302.0)])
        until(run, lambda: run.statistics.totals("windows")[0] == 14, "all rows are read")
        drain(run)
        assert run.statistics.late_rows("windows") == 8
        assert run.statistics.late_rows("counts") == 0
        assert run.left_inside() == {"windows": 3}, "a, c and d of the sixth minute"

        status = status_of(run, "local")
        by_name = {one["name"]: one for one in status["operators"]}
        assert by_name["windows"]["late_rows"] == 8
        assert by_name["windows"]["state"] == [{"kind": "aggregate", "rows": 3, "open": True}]
        assert by_name["counts"]["state"] == [{"kind": "aggregate", "rows": 12, "open": False}]
        assert by_name["rows"]["late_rows"] is None
        text = exposition(status).decode()
        assert 'penstock_operator_late_rows_total{operator="windows",topology="late"} 8.0' in text
        assert 'penstock_operator_state_rows{operator="counts",topology="late"} 12.0' in text

        summary = summarize(run, "local", drained=True)
        assert summary.as_json()["left_inside"] == {"windows": 3}
        page = end(summary)
        assert "everything that the sources emitted has reached the sinks" not in page
        assert '3 results in "windows"' in page
        notices = [one.reason for one in run.events.since(0) if one.subject == "windows" and one.kind == "notice"]
        assert len(notices) == 1
        assert "too late" in notices[0]
        store = run.monitor.store
        assert store is not None
        run.monitor.write(time.time(), run.placement, last=True)
        asked = HistoryQuery(("late_rows",), run.started_at - 60, time.time() + 60, operator="windows")
        [series] = store.history(asked)
        assert sum(value or 0 for value in series.values["late_rows"]) == 8
        run.stop(drain=False)
    [stopped] = [one for one in run.events.since(0) if one.kind == "stopped"]
    assert '3 results in "windows"' in stopped.reason
    with running(watched(folder), local_host, "kept") as run:  # on the same state, without a row
        drain(run)
        assert run.left_inside() == {"windows": 3}
        run.stop(drain=False)


def kill(run: SparkTopology) -> None:
    """Stop the queries, and write nothing more: as SIGKILL leaves it, but for the JVM."""
    catalog, run._catalog = run.catalog, None
    run.stop(drain=False)
    catalog.close()


def test_open_windows_are_known_after_a_kill_or_known_not_to_be_known(
    local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    with running(watched(folder), local_host, "killed") as run:
        write(folder, "1.json", [("a", 0.0), ("b", 1.0)])
        until(run, lambda: run.statistics.totals("windows")[0] == 2, "all rows are read")
        drain(run)
        recorded = time.monotonic() + 10
        while '"windows"' not in (run.catalog.get_meta("kept") or "") and time.monotonic() < recorded:
            time.sleep(0.1)
        kill(run)
    with running(watched(folder), local_host, "killed") as run:  # without a row
        drain(run)
        assert run.left_inside() == {"windows": 2}
        assert run.unknown_inside() == []
        run.catalog.set_meta("kept", "")  # as if it had been killed before that was written
        kill(run)
    with running(watched(folder), local_host, "killed") as run:
        drain(run)
        assert run.left_inside() == {}
        assert run.unknown_inside() == ["windows"], "counts has emitted all it keeps"
        page = end(summarize(run, "local", drained=True))
        assert "everything that the sources emitted has reached the sinks" not in page
        assert 'not known whether results are left inside "windows"' in page
        run.stop(drain=False)
    assert 'not known whether results are left inside "windows"' in run.how_it_ended


def test_a_run_without_open_windows_has_delivered_everything(
    local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    topology = Topology("counted")
    rows = topology.source("rows", sources.rate(2000, sources.events(keys=5), rows=500))
    counts = topology.keyed("counts", count, inputs=[rows], key="key", schema="key string, count long", tasks=2)
    topology.sink("out", sinks.noop(), inputs=[counts])
    with running(topology, local_host) as run:
        assert run.wait(WAIT)
        summary = summarize(run, "local", drained=True)
    assert summary.left_inside == {}
    assert end(summary) == "Drained: everything that the sources emitted has reached the sinks."
    assert summary.as_json()["operators"][1]["state"] == [{"kind": "aggregate", "rows": 5, "open": False}]


def now(batch):
    """Rows whose event time is about when they came into the topology."""
    at = pa.array([int(time.time() * 1e6)] * batch.num_rows, pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.record_batch([batch.column("key"), at], names=["key", "at"])


def per_two_seconds(frame: DataFrame) -> DataFrame:
    windows = frame.withWatermark("at", "0 seconds").groupBy(F.window("at", "2 seconds"), "key")
    return windows.agg(F.count("*").alias("n")).select("key", "n")


def test_the_latency_of_a_result_counts_from_the_rows_of_its_window(
    local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    topology = Topology("ages")
    rows = topology.source("rows", sources.rate(200, sources.events(keys=3)))
    timed = topology.map("timed", now, inputs=[rows], schema=SCHEMA)
    windows = topology.keyed(
        "windows",
        per_two_seconds,
        inputs=[timed],
        key="key",
        schema="key string, n long",
        tasks=2,
        output_mode="append",
    )
    topology.sink("out", sinks.noop(), inputs=[windows])
    with running(topology, local_host) as run:
        reports: list[BatchReport] = []
        run.listen(lambda report: reports.append(report) if report.operator == "out" else None)
        until(run, lambda: run.statistics.totals("out")[0] >= 12, "four windows are let go")
        seen = list(reports)
        latency = run.statistics.latency("out")
        run.stop(drain=False)
    # The rows of a window came in over nearly two seconds, and the last of them before it closed.
    spans = [one.born_to - one.born_from for report in seen for one in report.bundles if one.rows_in]
    assert max(spans) >= 1.5, spans
    assert latency is not None
    # Counted from the batch it would be a few tenths of a second. The oldest row of all is above the 99th percentile.
    assert latency.p99 >= 0.9 * max(spans)
    assert latency.p50 >= 0.9, "half of the rows wait for more than half of the window"
