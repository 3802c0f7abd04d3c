"""A topology that was stopped, or whose driver was killed with SIGKILL, goes on exactly where it was."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow.dataset as ds
import pytest
from killable_word_count import CONTENT, killable, split
from test_results import WAIT, count, written

from penstock import PenstockError, Topology, sinks, sources
from penstock.engine.spark.host import SparkHost

HERE = Path(__file__).parent
#: More rows than come before a driver is killed.
ENDLESS = 100_000_000


def counting(rows: int | None, folder: Path, tasks: int = 2) -> Topology:
    topology = Topology("stopped")
    lines = topology.source("lines", sources.rate(2_500, CONTENT, rows=rows))
    words = topology.map("split", split, inputs=[lines], schema="word string", instances=2)
    counts = topology.keyed("count", count, inputs=[words], key="word", schema="word string, n long", tasks=tasks)
    topology.sink("words", sinks.parquet(folder / "words"), inputs=[words])
    topology.sink("counts", sinks.parquet(folder / "counts"), inputs=[counts])
    return topology


def wanted(rows: int) -> Counter[str]:
    return Counter(split(CONTENT.rows(0, rows)).column(0).to_pylist())


def check(folder: Path, rows: int, column: str) -> None:
    assert Counter(row["word"] for row in written(folder / "words")) == wanted(rows)
    last: dict[str, int] = {}
    for row in written(folder / "counts"):
        last[row["word"]] = max(last.get(row["word"], 0), row[column])
    assert last == wanted(rows)
    # Every count was emitted once: a replayed batch left nothing behind.
    pairs = Counter((row["word"], row[column]) for row in written(folder / "counts"))
    assert max(pairs.values()) == 1
    assert not list((folder / "words").glob("_staging/*"))


# What was not drained also goes on where a driver was killed, below, which leaves less behind than any stop.
@pytest.mark.parametrize("drain", [True, pytest.param(False, marks=pytest.mark.live)])
def test_a_stopped_topology_goes_on(local_host: SparkHost, running: Callable, tmp_path: Path, drain: bool) -> None:
    with running(counting(None, tmp_path), local_host, state="kept") as run:
        while run.statistics.totals("counts")[0] == 0:
            assert not run.wait(0.1)
        assert run.stop(drain=drain) == drain
        rows = run.query("lines").feeds[0].position + 3_000
    with running(counting(rows, tmp_path), local_host, state="kept") as run:
        assert run.wait(WAIT)
    check(tmp_path, rows, "n")


def test_state_of_another_topology_is_refused(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    with running(counting(100, tmp_path), local_host, state="kept") as run:
        assert run.wait(WAIT)
    with pytest.raises(PenstockError) as caught, running(counting(100, tmp_path, tasks=5), local_host, state="kept"):
        pass
    assert caught.value.name == "STATE_DOES_NOT_FIT"
    assert "tasks" in caught.value.message


def test_a_catalog_without_its_checkpoints_is_refused(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    with running(counting(100, tmp_path), local_host, state="kept") as run:
        assert run.wait(WAIT)
    shutil.rmtree(tmp_path / "kept" / "checkpoints" / "count")
    with pytest.raises(PenstockError) as caught, running(counting(100, tmp_path), local_host, state="kept"):
        pass
    assert caught.value.name == "STATE_DOES_NOT_FIT"
    assert "count" in caught.value.message


def test_a_folder_in_use_is_refused(local_host: SparkHost, running: Callable, tmp_path: Path) -> None:
    with running(counting(100, tmp_path), local_host, state="kept") as run:
        with pytest.raises(PenstockError) as caught, running(counting(100, tmp_path), local_host, state="kept"):
            pass
        assert caught.value.name == "STATE_IN_USE"
        assert run.wait(WAIT)


class Killable:
    """The word count in a process of its own, with a mark in its environment by which its descendants are known."""

    def __init__(self, folder: Path, cluster: str, rows: int) -> None:
        self.mark = f"killable-{os.getpid()}-{time.time_ns()}"
        environment = dict(os.environ, PENSTOCK_TEST_MARK=self.mark, PYTHONPATH=os.pathsep.join(sys.path))
        environment.pop("SPARK_SUBMIT_OPTS", None)  # of the Spark that this process may have
        command = [sys.executable, str(HERE / "killable_word_count.py"), str(folder), cluster, str(rows)]
        with (folder / "output.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)

    def wait_for(self, word: str) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == word:
                return
        raise AssertionError(f"it ended without saying {word}")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.require_gone()

    def require_gone(self) -> None:
        """The process has ended, and everything that it had started."""
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        deadline = time.monotonic() + 30
        while left := self._left():
            assert time.monotonic() < deadline, f"left behind: {left}"
            time.sleep(0.2)

    def _left(self) -> list[str]:
        left = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("PENSTOCK_TEST_MARK") == self.mark:
                    left.append(" ".join(process.cmdline()[:4]))
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return left


def kill_in_mid_batch(folder: Path, cluster: str, chance: random.Random) -> None:
    victim = Killable(folder, cluster, ENDLESS)
    victim.wait_for("published")
    # Rows come all the time and batches follow each other: nearly any moment is the middle of one.
    time.sleep(chance.uniform(0.1, 1.0))
    victim.kill()


def rows_to_come(folder: Path) -> int:
    """More than may have been on their way when the driver was killed."""
    return len(written(folder / "words")) // 5 + 4_000


@pytest.mark.timeout(400)
def test_a_driver_killed_in_mid_batch_loses_and_doubles_nothing(
    local_host: SparkHost, running: Callable, tmp_path: Path
) -> None:
    """The killed driver had a Spark of its own. The Spark that is here goes on: starting another one takes longer than
    everything else."""
    kill_in_mid_batch(tmp_path, "local", random.Random(5))
    rows = rows_to_come(tmp_path)
    with running(killable(tmp_path, rows), local_host, state="state") as run:
        assert run.wait(WAIT)
    check(tmp_path, rows, "count")
    assert ds.dataset(tmp_path / "words").count_rows() == rows * 5


@pytest.mark.live
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("cluster", "kills"), [("local", 2), ("standalone", 1)])
def test_drivers_killed_one_after_the_other_lose_and_double_nothing(tmp_path: Path, cluster: str, kills: int) -> None:
    chance = random.Random(5)
    for _ in range(kills):
        kill_in_mid_batch(tmp_path, cluster, chance)
    rows = rows_to_come(tmp_path)
    last = Killable(tmp_path, cluster, rows)
    last.wait_for("finished")
    assert last.process.wait(60) == 0
    last.require_gone()
    check(tmp_path, rows, "count")
    assert ds.dataset(tmp_path / "words").count_rows() == rows * 5
