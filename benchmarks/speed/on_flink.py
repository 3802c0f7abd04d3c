"""PyFlink, parallelism 2, in its own environment:

    python on_flink.py WORKLOAD FOLDER WARM_UP           throughput: all of a folder's rows
    python on_flink.py linear FOLDER WARM_UP --rate R    latency: R rows a second, as they are due, for a while

The folder holds the same rows as text, one a line: reading Parquet needs a library that PyFlink does not bring. Python
functions go row by row, as PyFlink's DataStream has it; counting and ranking are in its SQL. Rows that are due come
over a socket: PyFlink has no source of that kind that is written in Python.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from functions import MEASURE, SETTLE, quantiles
from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import DataStream, FilterFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
from pyflink.table import EnvironmentSettings, TableEnvironment

PARALLELISM = 2
#: Seconds between two lots of lines that are sent.
LOOK = 0.01
SQL = {
    "word-count": (
        "CREATE TABLE input (sentence STRING) WITH ('connector'='filesystem', 'path'='{folder}', 'format'='raw')",
        "CREATE TABLE output (word STRING, amount BIGINT) WITH ('connector'='blackhole')",
        "INSERT INTO output SELECT word, COUNT(*) FROM input CROSS JOIN UNNEST(SPLIT(sentence, ' ')) AS t (word) "
        "GROUP BY word",
    ),
    "top-n": (
        "CREATE TABLE input (board STRING, item STRING, points BIGINT) "
        "WITH ('connector'='filesystem', 'path'='{folder}', 'format'='csv')",
        "CREATE TABLE output (board STRING, item STRING, points BIGINT, place BIGINT) WITH ('connector'='blackhole')",
        "INSERT INTO output SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY board ORDER BY points DESC) "
        "AS place FROM input) WHERE place <= 10",
    ),
}


def configuration() -> Configuration:
    made = Configuration()
    made.set_string("python.executable", sys.executable)
    made.set_string("parallelism.default", str(PARALLELISM))
    return made


def describe(word: str) -> tuple[str, int, int]:
    return word, len(word), zlib.crc32(word.encode())


def run_functions(workload: str, folder: str) -> None:
    environment = StreamExecutionEnvironment.get_execution_environment(configuration())
    environment.set_parallelism(PARALLELISM)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), folder).build()
    stream = environment.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
    if workload == "chain":
        stream = stream.map(str.lower, Types.STRING()).flat_map(str.split, Types.STRING())
        stream = stream.filter(lambda word: len(word) > 3)
        stream = stream.map(describe, Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()]))
    else:
        stream = stream.map(float, Types.DOUBLE())
        for number in range(10):
            stream = stream.map(lambda value, number=number: value * 1.0001 + number, Types.DOUBLE())
    # Rows end in a filter that lets nothing through, so that printing does not count.
    stream.filter(lambda _: False).print()
    environment.execute(workload)


class Latency(FilterFunction):
    """Rows end here; how late each was is kept, and written down at the end."""

    def __init__(self, folder: str, counts_from: float) -> None:
        self._folder = folder
        self._counts_from = counts_from
        self._seen: list[float] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        self._name = f"{os.getpid()}-{runtime_context.get_index_of_this_subtask()}"

    def filter(self, value: tuple[float, float]) -> bool:
        now = time.time()
        if now > self._counts_from:
            self._seen.append(now - value[0])
        return False

    def close(self) -> None:
        (Path(self._folder) / self._name).write_text(json.dumps(self._seen))


def send_when_due(server: socket.socket, rate: float, began: float) -> None:
    """A line a row: when it was due, and its value."""
    connection, _ = server.accept()
    with connection:
        row = 0
        while (now := time.time()) < began + SETTLE + MEASURE:
            due = range(row, max(int((now - began) * rate), row))
            connection.sendall("".join(f"{began + one / rate},{one}\n" for one in due).encode())
            row = due.stop
            time.sleep(LOOK)


def parsed(line: str) -> tuple[float, float]:
    due, value = line.split(",")
    return float(due), float(value)


def latency_at(rate: float) -> dict[str, float]:
    environment = StreamExecutionEnvironment.get_execution_environment(configuration())
    environment.set_parallelism(PARALLELISM)
    numbers = Types.TUPLE([Types.DOUBLE(), Types.DOUBLE()])
    # Some seconds for the job to start in: what is due meanwhile would be late for that reason alone.
    began = time.time() + 5
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=send_when_due, args=(server, rate, began), daemon=True).start()
        port = server.getsockname()[1]
        lines = DataStream(environment._j_stream_execution_environment.socketTextStream("127.0.0.1", port))
        stream = lines.map(parsed, numbers)
        for number in range(10):
            stream = stream.map(lambda row, number=number: (row[0], row[1] * 1.0001 + number), numbers)
        stream.filter(Latency(folder, began + SETTLE)).print()
        environment.execute("latency")
        seen = [one for file in Path(folder).iterdir() for one in json.loads(file.read_text())]
    return quantiles([(one, one, 1) for one in seen])


def run_sql(workload: str, folder: str) -> None:
    environment = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration()).build()
    )
    *tables, query = SQL[workload]
    for table in tables:
        environment.execute_sql(table.format(folder=folder))
    environment.execute_sql(query).wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("workload", "folder", "warm_up"):
        parser.add_argument(name)
    parser.add_argument("--rate", type=float)
    options = parser.parse_args()
    run = run_sql if options.workload in SQL else run_functions
    began = time.perf_counter()
    run(options.workload, options.warm_up)
    first = time.perf_counter() - began
    if options.rate:
        print(json.dumps(latency_at(options.rate)))
        return
    # A job starts a cluster and its Python processes: what is counted is what more rows take longer.
    few, many = (seconds_of(run, options.workload, folder) for folder in (options.warm_up, options.folder))
    rows = rows_in(options.folder) - rows_in(options.warm_up)
    print(json.dumps({"seconds": many - few, "rows": rows, "start_up": first}))


def seconds_of(run: Callable[[str, str], None], workload: str, folder: str) -> float:
    began = time.perf_counter()
    run(workload, folder)
    return time.perf_counter() - began


def rows_in(folder: str) -> int:
    return sum(file.read_bytes().count(b"\n") for file in Path(folder).iterdir())


if __name__ == "__main__":
    main()
