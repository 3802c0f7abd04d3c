"""What benchmarks/speed.py runs again and again: engines, each a process of its own, and the files that they read."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from peak_memory import PeakMemory
from results import commit

HERE = Path(__file__).parent
SCRIPTS = HERE / "speed"
ENVIRONMENTS = HERE / ".environments"
PACKAGES = {"bytewax": ["bytewax==0.21.1", "pyarrow"], "flink": ["apache-flink==2.3.0"]}
FILES = 40
#: PyFlink's Python functions do a few thousand rows a second: it gets so many files of them only.
FLINK_FILES = 2
TIMEOUT = 1800.0
#: Workloads whose rows cost so little that they need so many times as many: a start of some tenths of a second must not
#: be what is measured.
TIMES = {"linear": 20}
#: Workloads that read the same files as another.
READS = {"chain": "sentences", "word-count": "sentences"}

sys.path.append(str(SCRIPTS))
from contents import content_of  # noqa: E402 - of the scripts, which find each other by name


@dataclass(frozen=True)
class Engine:
    name: str
    script: str
    #: What the script is told before the workload.
    arguments: tuple[str, ...] = ()
    #: The environment that it runs in; empty is this one.
    environment: str = ""
    warms_up: bool = True
    reads_text: bool = False
    #: Whether it gets no more rows of a workload than of the others: it would take minutes.
    is_slow: bool = False


PENSTOCK = Engine("penstock", "on_spark.py", ("penstock",))
PLAIN = Engine("plain", "on_spark.py", ("plain",), is_slow=True)
FUSED = Engine("plain, fused by hand", "on_spark.py", ("plain-fused",), is_slow=True)
LIMIT = Engine("two bare processes", "on_nothing.py", warms_up=False)
#: The same operators, each in a query of its own with a channel before it.
APART = Engine("penstock, apart", "on_spark.py", ("penstock", "--set", "chaining=off"))
#: Rows/s at the sinks: far below what the chain does, so the goal is met and there is nothing to change.
GOAL = 1000
#: With these a controller looks every second, decides on five seconds, and could change something within a short run.
#: A run without a goal has the same, so that both are measured alike.
LOOKS_OFTEN = (
    "sample_seconds=1",
    "window_samples=10",
    "window_least_samples=5",
    "cooldown_seconds=10",
    "measure_seconds=10",
    "changes_per_hour=60",
    "control=off",
)


def _steered(name: str, goal: int) -> Engine:
    settings = [word for setting in LOOKS_OFTEN for word in ("--set", setting)]
    return Engine(name, "on_spark.py", ("penstock", "--goal", str(goal), *settings))


WITHOUT_GOAL, WITH_GOAL = _steered("penstock, without a goal", 0), _steered("penstock, with a goal", GOAL)
BYTEWAX = Engine("bytewax, two processes", "on_bytewax.py", environment="bytewax", warms_up=False)
FLINK = Engine("pyflink", "on_flink.py", environment="flink", reads_text=True)


def python_of(environment: str) -> str:
    """The interpreter of an engine's environment, made at the first call; raises if it cannot be installed."""
    if not environment:
        return sys.executable
    folder = ENVIRONMENTS / environment
    python, stamp = folder / "bin" / "python", folder / "installed"
    if not stamp.exists():
        venv.create(folder, with_pip=True, clear=True)
        line = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES[environment]]
        subprocess.run(line, check=True, capture_output=True, text=True)
        stamp.touch()
    return str(python)


@dataclass(frozen=True)
class Data:
    folder: Path
    rows: int
    #: Workloads that have so many times as many rows for all who are not slow.
    times: Mapping[str, int] = field(default_factory=dict)

    def of(self, workload: str, is_slow: bool = False) -> str:
        name = READS.get(workload, workload)
        return str(self.folder / (f"{name}-few" if is_slow and name in self.times else name))

    def rows_of(self, workload: str, is_slow: bool = False) -> int:
        return self.rows * (1 if is_slow else self.times.get(READS.get(workload, workload), 1))

    def text_of(self, workload: str) -> str:
        return f"{self.of(workload)}-text"

    def also_called(self, name: str, other: str) -> None:
        """The same rows under the name of another workload."""
        if not (self.folder / other).exists():
            (self.folder / other).symlink_to(self.folder / name)


def write_data(
    folder: Path,
    rows: int,
    files: int,
    names: Sequence[str] = ("sentences", "linear", "top-n"),
    times: Mapping[str, int] | None = None,
) -> Data:
    each, times = rows // files, times or {}
    for name in names:
        (folder / f"{name}-text").mkdir(parents=True)
        for index in range(files):
            table = _write_file(folder / (f"{name}-few" if name in times else name), name, index, each)
            for more in range(times.get(name, 0)):  # more files, not larger ones: some engines read a file whole
                _write_file(folder / name, name, index * times[name] + more, each)
            if index < FLINK_FILES:
                _write_text(table, name, folder / f"{name}-text" / f"{index:04d}.txt")
    return Data(folder, each * files, times)


def _write_file(folder: Path, name: str, index: int, rows: int) -> pa.Table:
    folder.mkdir(exist_ok=True)
    table = pa.Table.from_batches([content_of(name).rows(index * rows, rows)])
    pq.write_table(table, folder / f"{index:04d}.parquet")
    return table


def _write_text(table: pa.Table, name: str, file: Path) -> None:
    columns = ["value"] if name == "linear" else table.column_names
    rows = zip(*(table.column(column).to_pylist() for column in columns), strict=True)
    file.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))


def line_of(engine: Engine, workload: str, data: Data, warm_up: Data) -> list[str]:
    """The command that runs an engine on a workload."""
    folder = data.text_of(workload) if engine.reads_text else data.of(workload, engine.is_slow)
    line = [python_of(engine.environment), str(SCRIPTS / engine.script), *engine.arguments, workload, folder]
    if engine.warms_up:
        line.append(warm_up.text_of(workload) if engine.reads_text else warm_up.of(workload))
    return line


def run(line: Sequence[str], what: str) -> tuple[dict[str, Any], int]:
    """What the script says, and the most memory that it and its children had, in MB."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=errors, text=True)
        watch = PeakMemory(process.pid)
        try:
            output, _ = process.communicate(timeout=TIMEOUT)
        finally:
            peak = watch.stop()
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode:
            errors.seek(0)
            raise RuntimeError(f"{what}: {errors.read()[-2000:]}")
    answer: dict[str, Any] = json.loads(output.splitlines()[-1])
    return answer, peak


class Runs:
    """All runs of a benchmark. With a file, what was measured is kept there, and a benchmark that was cut off goes on
    behind it."""

    def __init__(self, kept: Path | None = None, settings: Sequence[str] = ()) -> None:
        """`settings` are Penstock's, as NAME=VALUE, of all its runs."""
        self._file = kept
        self._settings = [word for setting in settings for word in ("--set", setting)]
        self._times: Counter[str] = Counter()
        lines = kept.read_text().splitlines() if kept is not None and kept.exists() else []
        self._kept: dict[str, dict[str, Any]] = {one["run"]: one for one in map(json.loads, lines)}
        #: How many were measured on which commit.
        self.commits: Counter[str] = Counter()

    def run(self, engine: Engine, workload: str, data: Data, warm_up: Data, *more: str) -> tuple[dict[str, Any], int]:
        """What an engine's script says, and the most memory that it and its children had, in MB. A run of the same kind
        again is the next round."""
        if engine.arguments[:1] == PENSTOCK.arguments:
            more = (*more, *self._settings)
        kind = "|".join([engine.name, workload, str(data.rows_of(workload, engine.is_slow)), *more])
        what = f"{engine.name} on {workload}"
        return self._once(kind, lambda: run([*line_of(engine, workload, data, warm_up), *more], what))

    def script(self, name: str, *more: str) -> dict[str, Any]:
        """What a script of Penstock alone says."""
        more = (*more, *self._settings)
        line = [sys.executable, str(SCRIPTS / name), *more]
        return self._once("|".join([name, *more]), lambda: run(line, name))[0]

    def _once(self, kind: str, measure: Callable[[], tuple[dict[str, Any], int]]) -> tuple[dict[str, Any], int]:
        self._times[kind] += 1
        name = f"{kind}|{self._times[kind]}"
        found = self._kept.get(name)
        if found is None:
            answer, peak = measure()
            found = {"run": name, "commit": commit(), "answer": answer, "peak": peak}
            if self._file is not None:
                with self._file.open("a") as file:
                    file.write(json.dumps(found) + "\n")
        self.commits[found["commit"]] += 1
        return found["answer"], found["peak"]
