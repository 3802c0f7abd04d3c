"""PyFlink, parallelism 2, in its own environment: `python on_flink.py WORKLOAD FOLDER WARM_UP`.

The folder holds the same rows as text, one a line: reading Parquet needs a library that PyFlink does not bring. Python
functions go row by row, as PyFlink's DataStream has it; counting and ranking are in its SQL.
"""

from __future__ import annotations

import json
import sys
import time
import zlib

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
from pyflink.table import EnvironmentSettings, TableEnvironment

PARALLELISM = 2
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


def run_sql(workload: str, folder: str) -> None:
    environment = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration()).build()
    )
    *tables, query = SQL[workload]
    for table in tables:
        environment.execute_sql(table.format(folder=folder))
    environment.execute_sql(query).wait()


def main() -> None:
    workload, folder, warm_up = sys.argv[1:4]
    run = run_sql if workload in SQL else run_functions
    began = time.perf_counter()
    run(workload, warm_up)
    first = time.perf_counter() - began
    began = time.perf_counter()
    run(workload, folder)
    print(json.dumps({"seconds": time.perf_counter() - began, "start_up": first}))


if __name__ == "__main__":
    main()
