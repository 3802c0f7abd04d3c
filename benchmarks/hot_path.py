"""Where the time of a workload goes: processor time by process, py-spy's samples of Python workers: `make hot-path`.

python benchmarks/hot_path.py [--rounds 1] [--workload chain] [--sentences 4000000]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
from results import machine, write_results
from speed_runs import FILES, PENSTOCK, SCRIPTS, Data, write_data

#: Samples a second of every process.
RATE = 100
#: Part of the code -> what a line of a stack has in it. Of a stack, the innermost line that has one of these counts.
PARTS = {
    "the user's functions": ("functions.py",),
    "reading files": ("parquet", "readers.py", "reading.py"),
    "combining and folding": ("aggregates.py",),
    "segments": ("segments.py", "keys.py"),
    "an instance: batches, counting": ("instance.py",),
    "a bundle: writing, report": ("bundle.py", "report.py"),
    "PySpark's worker": ("pyspark/worker", "serializers.py", "daemon.py", "pyspark/sql"),
}
#: What the stacks of Python workers have in them, and those of the driver do not.
WORKER = "daemon.py"


class Processors:
    """Processor time of a process and all below it, by kind, as last seen."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._seconds: dict[tuple[int, float], tuple[str, float]] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(0.2):
            try:
                for one in [self._process, *self._process.children(recursive=True)]:
                    times = one.cpu_times()
                    key = (one.pid, one.create_time())
                    self._seconds[key] = (self._kind(one), times.user + times.system)
            except psutil.Error:
                continue

    def _kind(self, process: psutil.Process) -> str:
        words = process.cmdline()
        if "java" in process.name():
            return "Spark (JVM)"
        if any("worker_daemon" in word for word in words):
            return "Python workers"
        return "py-spy" if "py-spy" in process.name() else "the driver's Python"

    def stop(self) -> Counter[str]:
        self._done.set()
        self._thread.join()
        total: Counter[str] = Counter()
        for kind, seconds in self._seconds.values():
            total[kind] += seconds
        return total


def part_of(stack: str) -> str:
    for frame in reversed(stack.split(";")):
        for part, marks in PARTS.items():
            if any(mark in frame for mark in marks):
                return part
    return "other"


def one_run(
    workload: str, data: Data, warm_up: Data, samples: Path
) -> tuple[dict[str, Any], Counter[str], Counter[str]]:
    """What the run says of itself, processor time by kind of process, samples by part of the code."""
    script = [str(SCRIPTS / PENSTOCK.script), *PENSTOCK.arguments, workload]
    recorder = ["py-spy", "record", "--subprocesses", "--format", "raw", "--rate", str(RATE), "-o", str(samples)]
    program = [sys.executable, *script, data.of(workload), warm_up.of(workload)]
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name(recorder[0])), *recorder[1:], "--", *program],
        stdout=subprocess.PIPE,
        text=True,
    )
    watch = Processors(process.pid)
    output, _ = process.communicate()
    used = watch.stop()
    if process.returncode:
        raise SystemExit(process.returncode)
    found: Counter[str] = Counter()
    for line in samples.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        if WORKER in stack:
            found[part_of(stack)] += int(count)
    answer = json.loads(next(line for line in reversed(output.splitlines()) if line.startswith("{")))
    return answer, used, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--workload", default="chain")
    parser.add_argument("--sentences", type=int, default=4_000_000)
    options = parser.parse_args()
    answers, used, found = [], Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="penstock-hot-") as temporary:
        folder = Path(temporary)
        data = write_data(folder / "data", options.sentences, FILES)
        warm_up = write_data(folder / "warm-up", 80_000, 8)
        for index in range(options.rounds):
            answer, more, samples = one_run(options.workload, data, warm_up, folder / f"samples-{index}")
            answers.append(answer)
            used += more
            found += samples
    seconds, start_up = (statistics.median(one[name] for one in answers) for name in ("seconds", "start_up"))
    lines = [
        f"{options.workload}, {data.rows:,} rows in {seconds:.1f} s, with py-spy beside it; runs: {options.rounds}. "
        f"Processor time is that of a whole run: Spark's start ({start_up:.1f} s) and the warm-up are in it.",
        "",
    ]
    lines += ["| processes | processor time, s |", "| --- | --- |"]
    lines += [f"| {kind} | {spent / options.rounds:.1f} |" for kind, spent in used.most_common() if kind != "py-spy"]
    lines += ["", "| part of the Python workers' code | share of samples |", "| --- | --- |"]
    lines += [f"| {part} | {count / found.total():.0%} |" for part, count in found.most_common()]
    print("\n".join(lines))
    write_results(f"hot_path_{options.workload}", lines, [], machine())
    return 0


if __name__ == "__main__":
    sys.exit(main())
