"""Every source gives its rows once, also over a restart; every sink has exactly the rows that reached it."""

from __future__ import annotations

import io
import json
import logging
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest
from conftest import TEST_SETTINGS
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from written_rows import WAIT, column_of, rows_of

from penstock import PenstockError, Settings, Topology, sinks, sources
from penstock.engine.spark.host import SparkHost
from penstock.engine.spark.java_values import java_of
from penstock.engine.topology import SparkTopology
from penstock.sinks.jdbc_sink import JdbcWriter

NUMBERS = "id long, value double"


def until(run: SparkTopology, reached: Callable[[], bool], seconds: float = WAIT) -> None:
    """Wait for something that a running topology does by itself."""
    deadline = time.monotonic() + seconds
    while not reached():
        run.check()
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


# Sources


def write_numbers(path: Path, first: int, count: int) -> None:
    """A file that appears whole, as a file source needs it."""
    rows = pa.Table.from_batches([sources.numbers().rows(first, count)])
    hidden = path.with_name(f".{path.name}")
    if path.suffix == ".json":
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
    elif path.suffix == ".csv":
        pv.write_csv(rows, hidden)
    else:
        pq.write_table(rows, hidden)
    hidden.rename(path)


def reading(folder: Path, format: str, follow: bool) -> Topology:
    topology = Topology("reading")
    spec = sources.files(folder / "in", format=format, schema=NUMBERS, follow=follow)
    topology.sink("out", sinks.parquet(folder / "out"), inputs=[topology.source("files", spec, instances=3)])
    return topology


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_files_that_are_there_are_read_once(
    format: str, local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    (tmp_path / "in" / "sub").mkdir(parents=True)
    for number in range(4):
        write_numbers(tmp_path / "in" / ("sub" if number == 3 else "") / f"{number}.{format}", number * 100, 100)
    (tmp_path / "in" / "_unfinished").write_text("others are still writing this")
    for files in (4, 5):  # on the same state: the second time only the new file is read
        with running(reading(tmp_path, format, follow=False), local_host, "state") as run:
            assert run.wait(WAIT)
            assert run.statistics.totals("files") == ((400, 400) if files == 4 else (100, 100))
        assert rows_of(tmp_path / "out") != []
        got = sorted((row["id"], row["value"]) for row in rows_of(tmp_path / "out"))
        batch = sources.numbers().rows(0, files * 100)
        assert got == list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        write_numbers(tmp_path / "in" / f"4.{format}", 400, 100)


def test_a_source_that_follows_reads_files_that_come_later(
    local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    topology = reading(tmp_path, "json", follow=True)
    with running(topology, local_host, "state") as run:
        (tmp_path / "in").mkdir()  # not even the folder was there
        write_numbers(tmp_path / "in" / "a.json", 0, 50)
        until(run, lambda: run.statistics.totals("out")[0] == 50)
        assert not run.finished, "it has no end"
        write_numbers(tmp_path / "in" / "b.json", 50, 50)
        until(run, lambda: run.statistics.totals("out")[0] == 100)
    write_numbers(tmp_path / "in" / "c.json", 100, 50)
    with running(topology, local_host, "state") as run:
        until(run, lambda: run.statistics.totals("out")[0] == 50)
    assert column_of(tmp_path / "out", "id") == list(range(150))


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_large_file_is_read_in_parts_over_a_restart(
    format: str, local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    rows = 900_000
    table = pa.Table.from_batches([sources.numbers().rows(0, rows)])
    if format == "csv":
        pv.write_csv(table, tmp_path / "in" / "large.csv")
    else:
        pq.write_table(table, tmp_path / "in" / "large.parquet", row_group_size=50_000, use_dictionary=False)
    settings = replace(TEST_SETTINGS, rows_at_once_mb=5)
    topology = reading(tmp_path, format, follow=False)
    with running(topology, local_host, "state", settings) as run:
        until(run, lambda: run.statistics.totals("files")[0] > 0)
        assert run.stop()
    with running(topology, local_host, "state", settings) as run:
        assert run.wait(WAIT)
        batches = run.catalog.last_batch("files")
    assert batches is not None
    assert batches >= 1, "one file, several batches"
    assert column_of(tmp_path / "out", "id") == list(range(rows))


def test_a_folder_that_is_not_there(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    with pytest.raises(PenstockError) as caught, running(reading(tmp_path, "json", follow=False), local_host):
        pass
    assert caught.value.name == "FILE_NOT_FOUND"
    assert str(tmp_path / "in") in caught.value.message
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


def micro_batches(spark: SparkSession) -> DataFrame:
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 40).option("numPartitions", 2).load()
    return frame.select("value")


def test_a_streaming_dataframe_of_the_users(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    topology = Topology("dataframe-source")
    values = topology.source("values", sources.dataframe(micro_batches, "value long"))
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=[values])
    seen = 0
    for _ in range(2):  # the second run goes on where the first one was stopped
        with running(topology, local_host, "state") as run:
            until(run, lambda: run.statistics.totals("out")[0] >= 80)
            # It never ends by itself. A stop ends it first, and then what it has emitted reaches the sink.
            assert run.stop()
            emitted = run.statistics.totals("values")[1]
            assert emitted % 40 == 0
            assert run.statistics.totals("out") == (emitted, 0)
        seen += emitted
        assert column_of(tmp_path / "out", "value") == list(range(seen))


def other_columns(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load()


def test_a_streaming_dataframe_of_another_schema(local_host: SparkHost, running: Callable) -> None:
    topology = Topology("other-columns")
    values = topology.source("values", sources.dataframe(other_columns, "value long"))
    topology.sink("out", sinks.noop(), inputs=[values])
    with pytest.raises(PenstockError) as caught, running(topology, local_host):
        pass
    assert caught.value.name == "FUNCTION_SCHEMA"
    assert '"timestamp timestamp, value long"' in caught.value.message


def no_such_format(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("telepathy").load()


def test_a_function_that_raises_instead_of_giving_a_dataframe(local_host: SparkHost, running: Callable) -> None:
    topology = Topology("no-format")
    values = topology.source("values", sources.dataframe(no_such_format, "value long"))
    topology.sink("out", sinks.noop(), inputs=[values])
    with pytest.raises(PenstockError) as caught, running(topology, local_host):
        pass
    assert caught.value.name == "OPERATOR_FAILED"
    assert "telepathy" in caught.value.message
    assert f"{__file__}:{no_such_format.__code__.co_firstlineno + 1}" in caught.value.message
    assert caught.value.where is not None
    assert caught.value.where.file == __file__
    assert "\n" not in str(caught.value)


class Lines(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for number in range(200):
            self.wfile.write(f"line {number}\n".encode())
        self.server.over.wait(WAIT)  # type: ignore[attr-defined]


@contextmanager
def line_server() -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Lines) as server:
        server.daemon_threads = True
        server.over = threading.Event()  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.over.set()  # type: ignore[attr-defined]
        server.shutdown()
        thread.join()


def misspelt(frame: DataFrame) -> DataFrame:
    return frame.groupBy("kye").count()


def test_a_misspelt_column_is_one_named_error_and_nothing_else_is_printed(
    local_host: SparkHost, running: Callable
) -> None:
    topology = Topology("misspelt")
    rows = topology.source("rows", sources.rate(1, sources.events()))
    counted = topology.keyed("count", misspelt, inputs=[rows], key="key", schema="key string, count long")
    topology.sink("out", sinks.noop(), inputs=[counted])
    handler = logging.StreamHandler(io.StringIO())  # beside PySpark's own, which writes to standard error
    logger = PySparkLogger.getLogger("DataFrameQueryContextLogger")
    logger.addHandler(handler)
    try:
        with pytest.raises(PenstockError) as caught, running(topology, local_host):
            pass
    finally:
        logger.removeHandler(handler)
    assert caught.value.name == "OPERATOR_FAILED"
    assert "kye" in caught.value.message
    assert len(str(caught.value)) < 600
    assert handler.stream.getvalue() == ""


def test_lines_from_a_socket(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    with line_server() as port:
        topology = Topology("socket")
        lines = topology.source("lines", sources.socket("127.0.0.1", port))
        topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=[lines])
        with running(topology, local_host) as run:
            until(run, lambda: run.statistics.totals("out")[0] >= 200)
    assert column_of(tmp_path / "out", "value") == sorted(f"line {number}" for number in range(200))


def test_a_stepped_rate_gives_what_is_due_and_no_row_sooner(
    local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    schedule, rows = sources.stepped([(1, 200), (1, 0), (1, 800)]), 700
    topology = Topology("stepped")
    numbers = topology.source("numbers", sources.rate(schedule, rows=rows), instances=2)
    topology.sink("out", sinks.parquet(tmp_path / "out"), inputs=[numbers])
    with running(topology, local_host) as run:
        assert run.wait(WAIT)
        origin = run.context.memories["numbers"]["began"]
        batches = [json.loads(one.manifest) for one in run.catalog.manifests("numbers")]
    # The oldest batches may be forgotten already.
    emitted = batches[0]["ends"]["0"] - batches[0]["rows_in"]
    for batch in batches:
        # Rows know when they were due, whenever they were really emitted.
        born = [min(one["born_from"] for one in batch["bundles"]), max(one["born_to"] for one in batch["bundles"])]
        assert born[0] == pytest.approx(origin + schedule.when(emitted + 1), abs=1e-4)
        emitted += batch["rows_in"]
        assert born[1] == pytest.approx(origin + schedule.when(emitted), abs=1e-4)
        assert emitted <= schedule.due(batch["finished"] - origin)
    assert len(batches) > 2
    assert column_of(tmp_path / "out", "id") == list(range(rows))


# Sinks


def into(sink: sinks.ParquetSink | sinks.FunctionSink, rows: int = 1_000, **options: int) -> Topology:
    topology = Topology("into")
    numbers = topology.source("numbers", sources.rate(3_000, sources.numbers(), rows=rows))
    topology.sink("out", sink, inputs=[numbers], **options)
    return topology


def test_parquet_files_hold_the_rows_and_nothing_else(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    topology = into(sinks.parquet(folder), instances=3)
    with running(topology, local_host, "state") as run:
        assert run.wait(WAIT)
        assert run.statistics.totals("out") == (1_000, 0)
        last = json.loads(run.catalog.manifests("out")[-1].manifest)
    assert column_of(folder, "id") == list(range(1_000))
    assert pq.read_schema(next(folder.glob("*.parquet"))).names == ["id", "value"]
    assert list((folder / "_staging").iterdir()) == []
    assert {path.suffix for path in folder.iterdir() if path.is_file()} == {".parquet"}
    # A driver that died after it published its last batch, and before it moved the files of that batch.
    marked, final = last["bundles"][0]["staged"][0]
    staged = Path(marked.rpartition("|")[2])
    Path(final).rename(staged)
    assert len(rows_of(folder)) < 1_000
    # And files of an attempt that was never published; those of another topology are none of its business.
    abandoned = staged.with_name(f"part-0000000099-{staged.name.split('-', 2)[2]}")
    foreign = staged.with_name("part-0000000000-00000-0a0b0c0d-out-11.parquet")
    abandoned.touch()
    foreign.touch()
    with running(topology, local_host, "state") as run:
        assert run.wait(WAIT)
        assert run.statistics.totals("out") == (0, 0), "nothing is read again"
    assert column_of(folder, "id") == list(range(1_000))
    assert list((folder / "_staging").iterdir()) == [foreign]


@pytest.mark.parametrize("chaining", ["on", "off"])
def test_rows_for_a_folder_that_executors_and_driver_do_not_share_are_not_lost(
    chaining: str, standalone_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    """Every process has another working directory there: what an executor writes below it, the driver does not see."""
    settings = replace(TEST_SETTINGS, chaining=chaining)
    apart, shared = (into(sinks.parquet(path), rows=300) for path in ("/proc/self/cwd/out", tmp_path / "out"))
    with pytest.raises(PenstockError) as caught, running(apart, standalone_host, "state", settings) as run:
        run.wait(WAIT)
    assert caught.value.name == "SINK_NOT_SHARED"
    assert "/proc/self/cwd/out/_staging/part-" in caught.value.message
    with running(shared, standalone_host, "state", settings) as run:
        assert run.wait(WAIT)
    assert column_of(tmp_path / "out", "id") == list(range(300))


def test_a_folder_with_rows_of_another_run_is_refused_or_added_to_by_choice(
    local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with running(into(sinks.parquet(out), rows=300), local_host, "first") as run:
        assert run.wait(WAIT)
    before = sorted(path.name for path in out.rglob("*"))
    with pytest.raises(PenstockError) as caught, running(into(sinks.parquet(out), rows=300), local_host, "second"):
        pass
    assert caught.value.name == "SINK_NOT_EMPTY"
    assert str(out) in caught.value.message
    assert sorted(path.name for path in out.rglob("*")) == before
    # Whose rows they are goes on without a word.
    with running(into(sinks.parquet(out), rows=500), local_host, "first") as run:
        assert run.wait(WAIT)
    assert column_of(out, "id") == list(range(500))
    # Both count their batches from 0, and neither replaces what the other wrote.
    with running(into(sinks.parquet(out, existing="append"), rows=300), local_host, "second") as run:
        assert run.wait(WAIT)
    assert column_of(out, "id") == sorted([*range(500), *range(300)])


def test_the_console_shows_rows(local_host: SparkHost, running: Callable, capsys: pytest.CaptureFixture[str]) -> None:
    with running(into(sinks.console(rows=5), rows=3), local_host) as run:
        assert run.wait(WAIT)
        assert run.statistics.totals("out") == (3, 0)
    shown = capsys.readouterr().out
    assert "|id |value" in shown
    values = sources.numbers().rows(0, 3).column("value").to_pylist()
    for number, value in enumerate(values):
        assert f"|{number}  |{value}|".replace(" ", "") in shown.replace(" ", "")


class Taken:
    """A function of the user's, with something to remember: it is called on the driver."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[int]]] = []

    def __call__(self, frame: DataFrame, batch: int) -> None:
        ids = sorted(row.id for row in frame.collect())
        assert frame.count() == len(ids), "it may look at the rows more than once"
        self.batches.append((batch, ids))


def test_a_function_gets_every_batch_once_in_order(local_host: SparkHost, running: Callable) -> None:
    taken = Taken()
    for total in (1_000, 1_400):  # the second run goes on with the rows and the batch ids
        with running(into(sinks.function(taken), rows=total), local_host, "state") as run:
            assert run.wait(WAIT)
        assert sorted(number for _, ids in taken.batches for number in ids) == list(range(total))
    numbers = [batch for batch, _ in taken.batches]
    assert numbers == sorted(set(numbers))
    assert len(numbers) > 2


def disappoint(frame: DataFrame, batch: int) -> None:
    raise LookupError("the shelf is full")


def test_a_sink_function_that_raises_ends_the_topology(local_host: SparkHost, running: Callable) -> None:
    with pytest.raises(PenstockError) as caught, running(into(sinks.function(disappoint)), local_host) as run:
        run.wait(WAIT)
    assert caught.value.name == "OPERATOR_FAILED"
    assert "LookupError: the shelf is full" in caught.value.message
    assert f"{__file__}:{disappoint.__code__.co_firstlineno + 1}" in caught.value.message
    assert caught.value.where is not None
    assert caught.value.where.file == __file__


def test_noop_counts(local_host: SparkHost, running: Callable) -> None:
    with running(into(sinks.noop(), rows=777, instances=2), local_host) as run:
        assert run.wait(WAIT)
        assert run.statistics.totals("out") == (777, 0)
        latency = run.statistics.latency("out")
    assert latency is not None
    assert 0 < latency.p50 <= latency.p99 < WAIT


# JDBC, on the Derby that ships with Spark


@pytest.fixture
def database(local_host: SparkHost, tmp_path: Path) -> str:
    """The URL of a database in the memory of Spark's JVM."""
    jvm = local_host.spark.sparkContext._jvm
    jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))  # else where we stand
    return f"jdbc:derby:memory:{tmp_path.name};create=true"


def table_of(host: SparkHost, url: str, table: str) -> list[tuple]:
    return sorted(tuple(row) for row in host.spark.read.jdbc(url, table).collect())


def test_jdbc_appends_rows_with_the_number_of_their_batch(
    local_host: SparkHost, running: Callable, database: str
) -> None:
    sink = sinks.jdbc(database, "numbers", batch_column="batch")
    with running(
        into(sink, rows=500), local_host, settings=Settings(latency_under_load=0.3, latency_spark=0.02)
    ) as run:
        assert run.wait(WAIT)
        batches = {one.batch for one in run.catalog.manifests("out")}
    got = table_of(local_host, database, "numbers")
    values = sources.numbers().rows(0, 500).column("value").to_pylist()
    assert [row[:2] for row in got] == list(enumerate(values))
    assert {row[2] & 0xFFFFFFFF for row in got} == batches


def test_a_new_run_adds_to_a_table_that_has_rows(local_host: SparkHost, running: Callable, database: str) -> None:
    sink = sinks.jdbc(database, "added", batch_column="batch")
    for _ in range(2):  # each on a state of its own: both count their batches from 0
        with running(into(sink, rows=50), local_host) as run:
            assert run.wait(WAIT)
    got = table_of(local_host, database, "added")
    assert [row[0] for row in got] == [row for row in range(50) for _ in range(2)]


def test_a_jdbc_batch_that_is_written_again_replaces_itself(local_host: SparkHost, database: str) -> None:
    spark = local_host.spark
    writer = JdbcWriter(sinks.jdbc(database, "replayed", batch_column="batch"), java=java_of)
    writer.write(spark.createDataFrame(pa.table({"id": [1, 2]})), 0)
    for _ in range(2):
        writer.write(spark.createDataFrame(pa.table({"id": [3, 4, 5]})), 1)
    first, second = writer.number(0), writer.number(1)
    assert table_of(local_host, database, "replayed") == [(1, first), (2, first), (3, second), (4, second), (5, second)]


def test_without_a_batch_column_a_replay_appends_again(local_host: SparkHost, database: str) -> None:
    writer = JdbcWriter(sinks.jdbc(database, "appended"))
    for _ in range(2):
        writer.write(local_host.spark.createDataFrame(pa.table({"id": [1]})), 0)
    assert table_of(local_host, database, "appended") == [(1,), (1,)]


@pytest.mark.parametrize("batch_column", [None, "batch"])
def test_a_database_that_is_not_there(batch_column: str | None, local_host: SparkHost, database: str) -> None:
    missing = database.removesuffix(";create=true") + "-missing"
    writer = JdbcWriter(sinks.jdbc(missing, "t", batch_column=batch_column), java=java_of)
    with pytest.raises(PenstockError) as caught:
        writer.write(local_host.spark.createDataFrame(pa.table({"id": [1]})), 0)
    assert caught.value.name == "BAD_SINK"
    assert "missing" in caught.value.message
