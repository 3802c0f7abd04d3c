"""Rows that cannot be read or handled: they end the topology with a named error, are skipped, or go to a dead-letter
output; and functions that return what they did not declare."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from written_rows import WAIT, column_of, rows_of

from penstock import PenstockError, Topology, sinks, sources
from penstock.engine.spark.host import SparkHost

NUMBERS = "id long, value double"
ROWS = 1_000
BAD = (3, 4, 250, 999)


def refuse_some(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Raises for the whole batch, as a function does that knows nothing of single rows."""
    for number in batch.column("id").to_pylist():
        if number in BAD:
            raise ValueError(f"no such thing as {number}")
    return batch


def refuse_late(batch: pa.RecordBatch):
    """A generator that has given rows before it raises: none of them may come out twice."""
    for start in range(0, batch.num_rows, 10):
        yield refuse_some(batch.slice(start, 10))


def refusing(function: Callable, folder: Path, on_error: str) -> Topology:
    topology = Topology("refusing")
    numbers = topology.source("numbers", sources.rate(1_000_000, sources.numbers(), rows=ROWS))
    good = topology.map("refuse", function, inputs=[numbers], schema=NUMBERS, instances=3, on_error=on_error)
    topology.sink("out", sinks.parquet(folder / "out"), inputs=[good])
    if on_error == "dead_letter":
        topology.sink("bad", sinks.parquet(folder / "bad"), inputs=[good.dead_letter])
    return topology


def failure_of(topology: Topology, host: SparkHost, running: Callable) -> PenstockError:
    with pytest.raises(PenstockError) as caught, running(topology, host) as run:
        run.wait(WAIT)
    return caught.value


def line_of(function: Callable, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(index for index, line in enumerate(lines) if text in line)


def test_a_function_that_raises_ends_the_topology(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    error = failure_of(refusing(refuse_some, tmp_path, "fail"), local_host, running)
    assert error.name == "OPERATOR_FAILED"
    assert '"refuse"' in error.message
    assert "ValueError: no such thing as" in error.message
    # Where it was raised, and where the operator was declared.
    assert f"{__file__}:{line_of(refuse_some, 'raise ValueError')}" in error.message
    assert error.where is not None
    assert (error.where.file, error.where.line) == (__file__, line_of(refusing, "topology.map("))
    assert "Traceback" not in str(error)


def refuse_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.num_rows:
        pa.array(["seven"]).cast(pa.int64())
    return batch


def test_what_a_library_raises_is_shown_with_the_line_that_called_it(
    local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    error = failure_of(refusing(refuse_text, tmp_path, "fail"), local_host, running)
    assert error.name == "OPERATOR_FAILED"
    assert "ArrowInvalid" in error.message
    assert f"{__file__}:{line_of(refuse_text, 'cast')}" in error.message


@pytest.mark.parametrize("function", [refuse_some, refuse_late])
def test_bad_rows_are_skipped(function: Callable, local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    with running(refusing(function, tmp_path, "skip"), local_host) as run:
        assert run.wait(WAIT)
        assert run.statistics.bad_rows("refuse") == len(BAD)
        assert run.statistics.bad_rows("numbers") == 0
        assert run.statistics.totals("refuse") == (ROWS, ROWS - len(BAD))
    assert column_of(tmp_path / "out", "id") == [n for n in range(ROWS) if n not in BAD]


def test_bad_rows_go_to_the_dead_letter_output(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    with running(refusing(refuse_some, tmp_path, "dead_letter"), local_host) as run:
        assert run.wait(WAIT)
        assert run.statistics.bad_rows("refuse") == len(BAD)
        assert run.statistics.totals("bad") == (len(BAD), 0)
    assert column_of(tmp_path / "out", "id") == [n for n in range(ROWS) if n not in BAD]
    values = sources.numbers().rows(0, ROWS).column("value").to_pylist()
    letters = {json.loads(row["row"])["id"]: row for row in rows_of(tmp_path / "bad")}
    assert sorted(letters) == list(BAD)
    assert len(rows_of(tmp_path / "bad")) == len(BAD)
    for number, letter in letters.items():
        assert letter["operator"] == "refuse"
        assert letter["error"] == f"ValueError: no such thing as {number}"
        assert json.loads(letter["row"]) == {"id": number, "value": values[number]}


def moody(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What it declares while it has no rows, and another type when it has some."""
    if batch.num_rows == 0:
        return batch
    return pa.record_batch([batch.column("id").cast(pa.int32()), batch.column("value")], names=["id", "value"])


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_another_schema_at_run_time_is_no_matter_of_rows(
    on_error: str, local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    error = failure_of(refusing(moody, tmp_path, on_error), local_host, running)
    assert error.name == "FUNCTION_SCHEMA"
    assert '"refuse"' in error.message
    assert '"id int, value double"' in error.message
    assert error.where is not None
    assert (error.where.file, error.where.line) == (__file__, line_of(refusing, "topology.map("))
    assert rows_of(tmp_path / "out") == []


def without_value(frame: DataFrame) -> DataFrame:
    return frame.select("id")


def test_a_dataframe_function_with_another_schema_never_sees_a_row(
    local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    topology = Topology("other-frame")
    numbers = topology.source("numbers", sources.rate(1_000_000, sources.numbers(), rows=ROWS))
    wrong = topology.map_dataframe("wrong", without_value, inputs=[numbers], schema=NUMBERS)
    topology.sink("out", sinks.noop(), inputs=[wrong])
    started = []
    with pytest.raises(PenstockError) as caught, running(topology, local_host) as run:
        started.append(run)
    error = caught.value
    assert error.name == "FUNCTION_SCHEMA"
    assert error.where is not None
    here = test_a_dataframe_function_with_another_schema_never_sees_a_row
    assert (error.where.file, error.where.line) == (__file__, line_of(here, "topology.map_dataframe("))
    assert not started, "it fails before the topology has started"


def no_such_column(frame: DataFrame) -> DataFrame:
    return frame.select("id", "valve")


def test_a_dataframe_function_that_raises(local_host: SparkHost, running: Callable) -> None:
    topology = Topology("no-column")
    numbers = topology.source("numbers", sources.rate(1_000_000, sources.numbers(), rows=ROWS))
    wrong = topology.map_dataframe("wrong", no_such_column, inputs=[numbers], schema=NUMBERS)
    topology.sink("out", sinks.noop(), inputs=[wrong])
    error = failure_of(topology, local_host, running)
    assert error.name == "OPERATOR_FAILED"
    assert "valve" in error.message
    assert f"{__file__}:{line_of(no_such_column, 'select')}" in error.message
    assert error.where is not None
    assert error.where.file == __file__


def two_names(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("id", "value", "if(id = 7, 'seventh', 'most') AS output")


def test_a_row_that_names_no_output(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    topology = Topology("no-output")
    numbers = topology.source("numbers", sources.rate(1_000_000, sources.numbers(), rows=ROWS))
    named = topology.map_dataframe("named", two_names, inputs=[numbers], outputs={"most": NUMBERS, "rest": NUMBERS})
    topology.sink("out", sinks.noop(), inputs=[named["most"], named["rest"]])
    error = failure_of(topology, local_host, running)
    assert error.name == "BAD_FUNCTION"
    assert '"seventh"' in error.message
    assert '"named"' in error.message


# Files

JSON_LINES = [
    '{"id": 1, "name": "one"}',
    '{"id": "two", "name": "two"}',
    '{"id": 3, "name": "three"}',
    "not JSON at all",
    '{"id": 5}',
]
CSV_LINES = ["id,name", "1,one", "two,two", '3,"three', 'and a half"', "4,four,too many", "5,"]


def write_files(folder: Path, format: str) -> Path:
    folder.mkdir()
    bad = folder / f"bad.{format}"
    bad.write_text("\n".join(JSON_LINES if format == "json" else CSV_LINES) + "\n")
    good = [json.dumps({"id": n, "name": f"n{n}"}) if format == "json" else f"{n},n{n}" for n in range(100, 200)]
    (folder / f"good.{format}").write_text("\n".join((["id,name"] if format == "csv" else []) + good) + "\n")
    return bad


def reading(format: str, folder: Path, on_error: str) -> Topology:
    topology = Topology("reading")
    spec = sources.files(folder / "in", format=format, schema="id long, name string", follow=False)
    lines = topology.source("files", spec, on_error=on_error)
    topology.sink("out", sinks.parquet(folder / "out"), inputs=[lines])
    if on_error == "dead_letter":
        topology.sink("bad", sinks.parquet(folder / "bad"), inputs=[lines.dead_letter])
    return topology


def good_rows(format: str) -> list[tuple[int, str | None]]:
    own = [(1, "one"), (3, "three"), (5, None)] if format == "json" else [(1, "one"), (3, "three\nand a half"), (5, "")]
    return own + [(n, f"n{n}") for n in range(100, 200)]


@pytest.mark.parametrize("format", ["json", "csv"])
def test_bad_rows_of_a_file_are_skipped(format: str, local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    write_files(tmp_path / "in", format)
    with running(reading(format, tmp_path, "skip"), local_host) as run:
        assert run.wait(WAIT)
        assert run.statistics.bad_rows("files") == 2
        assert run.statistics.totals("files")[1] == 103
    assert sorted((row["id"], row["name"]) for row in rows_of(tmp_path / "out")) == good_rows(format)


@pytest.mark.parametrize("format", ["json", "csv"])
def test_bad_rows_of_a_file_go_to_the_dead_letter_output(
    format: str, local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    write_files(tmp_path / "in", format)
    with running(reading(format, tmp_path, "dead_letter"), local_host) as run:
        assert run.wait(WAIT)
        assert run.statistics.bad_rows("files") == 2
    assert sorted((row["id"], row["name"]) for row in rows_of(tmp_path / "out")) == good_rows(format)
    letters = rows_of(tmp_path / "bad")
    wanted = [JSON_LINES[1], JSON_LINES[3]] if format == "json" else [CSV_LINES[2], CSV_LINES[5]]
    assert sorted(row["row"] for row in letters) == sorted(wanted)
    assert {row["operator"] for row in letters} == {"files"}
    assert all(row["error"] for row in letters)


@pytest.mark.parametrize(("format", "line"), [("json", 2), ("csv", 6)])
def test_a_bad_row_of_a_file_ends_the_topology(
    format: str, line: int, local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    bad = write_files(tmp_path / "in", format)
    error = failure_of(reading(format, tmp_path, "fail"), local_host, running)
    assert error.name == "BAD_ROW"
    assert f'line {line} of "{bad}"' in error.message
    assert '"files"' in error.message
    assert error.where is not None
    assert (error.where.file, error.where.line) == (__file__, line_of(reading, "topology.source("))
