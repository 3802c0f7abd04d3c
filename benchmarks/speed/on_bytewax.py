"""Bytewax, two processes, one worker each: `python -m bytewax.run on_bytewax:flow -i 0 -a ...`, or all of it at once:

    python on_bytewax.py WORKLOAD FOLDER

Items are Arrow batches where the functions take them: rows one by one were slower. Counting words is by key, which goes
by items. Every worker says when it read its first item and when it was through with its last.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from functions import CHAIN, batches_of, files_of, split, steps

PROCESSES = 2
WORKLOAD, FOLDER, TIMES = (os.environ.get(f"SPEED_{name}", "") for name in ("WORKLOAD", "FOLDER", "TIMES"))


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


class Nowhere(StatelessSinkPartition[Any]):
    def write_batch(self, items: list[Any]) -> None:
        pass

    def close(self) -> None:
        note("ended")


class ToNowhere(DynamicSink[Any]):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> Nowhere:
        return Nowhere()


def counted(state: int | None, more: int) -> tuple[int, int]:
    total = (state or 0) + more
    return total, total


def make() -> Dataflow:
    made = Dataflow("speed")
    stream = op.input("in", made, Files())
    if WORKLOAD == "word-count":
        # Counted by batch first, as an engine with partial aggregation would.
        stream = op.map("split", stream, split)
        stream = op.flat_map("count", stream, lambda batch: list(Counter(batch.column(0).to_pylist()).items()))
        stream = op.stateful_map("total", stream, counted)
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
    workload, folder = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as times:
        environment = os.environ | {"SPEED_WORKLOAD": workload, "SPEED_FOLDER": folder, "SPEED_TIMES": times}
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
    began, ended = min(noted["began"]), max(noted["ended"])
    print(json.dumps({"seconds": ended - began, "start_up": began - started}))


if __name__ == "__main__":
    main()
