"""Bytewax, two processes, one worker each: `python -m bytewax.run on_bytewax:flow -i 0 -a ...`, or all of it at once:

    python on_bytewax.py WORKLOAD FOLDER           throughput: all of a folder's rows
    python on_bytewax.py linear FOLDER --rate R    latency: R rows a second, as they are due, for a while

Items are Arrow batches where the functions take them: rows one by one were slower. Counting and ranking are by key,
which goes by items. Every worker says when it read its first item and when it was through with its last.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow as pa
import pyarrow.compute as pc
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from functions import CHAIN, MEASURE, SETTLE, batches_of, files_of, quantiles, split, steps

PROCESSES = 2
TOP = 10
#: Seconds between two looks of a source at what is due.
LOOK = 0.01
WORKLOAD, FOLDER, TIMES = (os.environ.get(f"SPEED_{name}", "") for name in ("WORKLOAD", "FOLDER", "TIMES"))
#: Rows a second that are due, and since when; no rate for rows that lie in files.
RATE, BEGAN = (float(os.environ.get(f"SPEED_{name}") or 0) for name in ("RATE", "BEGAN"))


def note(what: str) -> None:
    with (Path(TIMES) / f"{os.getpid()}-{what}").open("w") as file:
        file.write(str(time.time()))


class FilePartition(StatefulSourcePartition[Any, int]):
    def __init__(self, file: str, skip: int) -> None:
        note("began") if not list(Path(TIMES).glob(f"{os.getpid()}-began")) else None
        self._batches = batches_of(file)
        self._next = skip

    def next_batch(self) -> list[Any]:
        if self._next >= len(self._batches):
            raise StopIteration
        self._next += 1
        return [self._batches[self._next - 1]]

    def snapshot(self) -> int:
        return self._next


class Files(FixedPartitionedSource[Any, int]):
    def list_parts(self) -> list[str]:
        return files_of(FOLDER)

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> FilePartition:
        return FilePartition(for_part, resume_state or 0)


#: Row numbers of a partition from 0 on: more than are due between two looks, unless it is far behind.
_EVERY_SECOND = pa.array(range(0, 2_000_000 if RATE else 0, PROCESSES), pa.int64())


class DuePartition(StatefulSourcePartition[Any, None]):
    """Every second row: the two workers have one of these each."""

    def __init__(self, index: int) -> None:
        note("began")
        self._next = index

    def next_batch(self) -> list[Any]:
        now = time.time()
        if now > BEGAN + SETTLE + MEASURE:
            raise StopIteration
        count = (int((now - BEGAN) * RATE) - self._next + PROCESSES - 1) // PROCESSES
        if count <= 0:
            return []
        ids = pc.add(_EVERY_SECOND[:count], self._next)
        self._next += len(ids) * PROCESSES
        return [pa.record_batch([ids, ids.cast(pa.float64())], names=["id", "value"])]

    def next_awake(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=LOOK)

    def snapshot(self) -> None:
        return None


class Due(FixedPartitionedSource[Any, None]):
    def list_parts(self) -> list[str]:
        return [str(index) for index in range(PROCESSES)]

    def build_part(self, step_id: str, for_part: str, resume_state: None) -> DuePartition:
        return DuePartition(int(for_part))


class Nowhere(StatelessSinkPartition[Any]):
    def __init__(self) -> None:
        self._seen: list[tuple[float, float, int]] = []

    def write_batch(self, items: list[Any]) -> None:
        since = time.time() - BEGAN
        if RATE and since > SETTLE:
            for batch in items:
                first, last = (batch.column(0)[place].as_py() / RATE for place in (0, -1))
                self._seen.append((since - last, since - first, batch.num_rows))

    def close(self) -> None:
        note("ended")
        (Path(TIMES) / f"{os.getpid()}-latencies").write_text(json.dumps(self._seen))


class ToNowhere(DynamicSink[Any]):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> Nowhere:
        return Nowhere()


def counted(state: int | None, more: int) -> tuple[int, int]:
    total = (state or 0) + more
    return total, total


def best_so_far(state: list[Any] | None, more: list[Any]) -> tuple[list[Any], list[Any]]:
    best = heapq.nlargest(TOP, [*(state or []), *more])
    return best, best


def by_board(batch: pa.RecordBatch) -> list[tuple[str, list[Any]]]:
    """The best of each board in a batch."""
    found: dict[str, list[Any]] = {}
    columns = (batch.column(name).to_pylist() for name in ("board", "item", "points"))
    for board, item, points in zip(*columns, strict=True):
        found.setdefault(board, []).append((points, item))
    return [(board, heapq.nlargest(TOP, rows)) for board, rows in found.items()]


def make() -> Dataflow:
    made = Dataflow("speed")
    stream = op.input("in", made, Due() if RATE else Files())
    if WORKLOAD == "word-count":
        # Counted by batch first, as an engine with partial aggregation would.
        stream = op.map("split", stream, split)
        stream = op.flat_map("count", stream, lambda batch: list(Counter(batch.column(0).to_pylist()).items()))
        stream = op.stateful_map("total", stream, counted)
    elif WORKLOAD == "top-n":
        stream = op.flat_map("boards", stream, by_board)
        stream = op.stateful_map("best", stream, best_so_far)
    else:
        functions = CHAIN if WORKLOAD == "chain" else steps(10)
        for number, function in enumerate(functions):
            stream = op.map(f"step{number}", stream, function)
    op.output("out", stream, ToNowhere())
    return made


flow = make() if WORKLOAD else None


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workload")
    parser.add_argument("folder")
    parser.add_argument("--rate", type=float, default=0.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as times:
        told = {"WORKLOAD": options.workload, "FOLDER": options.folder, "TIMES": times}
        told |= {"RATE": str(options.rate), "BEGAN": str(time.time() + 1)}
        environment = os.environ | {f"SPEED_{name}": value for name, value in told.items()}
        addresses = ";".join(f"127.0.0.1:{port}" for port in free_ports(PROCESSES))
        started = time.time()
        line = [sys.executable, "-m", "bytewax.run", "on_bytewax:flow", "-a", addresses]
        processes = [
            subprocess.Popen([*line, "-i", str(index)], env=environment, cwd=Path(__file__).parent)
            for index in range(PROCESSES)
        ]
        codes = [process.wait() for process in processes]
        if any(codes):
            sys.exit(f"a process ended with {codes}")
        noted = {
            what: [float(file.read_text()) for file in Path(times).glob(f"*-{what}")] for what in ("began", "ended")
        }
        latencies = [json.loads(file.read_text()) for file in Path(times).glob("*-latencies")]
    if options.rate:
        print(json.dumps(quantiles([tuple(one) for seen in latencies for one in seen])))
        return
    began, ended = min(noted["began"]), max(noted["ended"])
    print(json.dumps({"seconds": ended - began, "start_up": began - started}))


if __name__ == "__main__":
    main()
