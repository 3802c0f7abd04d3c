"""`penstock run` as a user starts it, in a process of its own: what it prints, how it ends, and that nothing stays."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue

import psutil
import pytest
from foreground import hearing_ctrl_c, ignoring_ctrl_c

import penstock

SECONDS = 150.0
FLOWING = re.compile(r"^\d+ s: .*\bin [1-9]")

FLOW = """\
import time
from penstock import Topology, sinks, sources

def handle(batch):
    {body}
    return batch

topology = Topology("flow")
lines = topology.source("lines", sources.rate(200, sources.sentences(), rows={rows}))
handled = topology.map("handle", handle, inputs=lines, schema="sentence string", instances=2)
topology.sink("out", sinks.noop(), inputs=handled)
"""


class Command:
    """`penstock ...` in a group of its own, so that a Ctrl-C can be sent to all of it as a terminal does."""

    def __init__(self, *words: str, background: bool = False) -> None:
        self.mark = f"penstock-test-{uuid.uuid4().hex}"
        source = str(Path(penstock.__file__).parents[1])
        with ignoring_ctrl_c() if background else hearing_ctrl_c():
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock", *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": source, "PENSTOCK_TEST_MARK": self.mark},
                start_new_session=True,
            )
        self.lines: dict[str, list[str]] = {"out": [], "err": []}
        self._heard: Queue[str] = Queue()
        self._readers = [
            threading.Thread(target=self._read, args=(stream, name), daemon=True)
            for name, stream in (("out", self.process.stdout), ("err", self.process.stderr))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream, name: str) -> None:
        for line in stream:
            self.lines[name].append(line.rstrip("\n"))
            self._heard.put(line)
        stream.close()

    def wait_for(self, pattern: re.Pattern[str] | str) -> None:
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                if re.search(pattern, self._heard.get(timeout=max(deadline - time.monotonic(), 0.01))):
                    return
            except Empty:
                pytest.fail(f"{pattern} was not printed; but: {self.lines}")

    def send(self, number: signal.Signals) -> None:
        if number is signal.SIGINT:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    def end(self) -> int:
        code = self.process.wait(SECONDS)
        for reader in self._readers:
            reader.join(SECONDS)
        assert "Traceback" not in self.err + self.out
        assert self.left_behind() == []
        return code

    @property
    def out(self) -> str:
        return "\n".join(self.lines["out"])

    @property
    def err(self) -> str:
        return "\n".join(self.lines["err"])

    def left_behind(self) -> list[str]:
        """Processes that inherited our mark and are still there."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("PENSTOCK_TEST_MARK") == self.mark:
                    found.append(" ".join(process.cmdline())[:200])
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return found


@pytest.fixture
def flow(tmp_path):
    def write(body: str = "pass", rows: int | None = None) -> str:
        path = tmp_path / "flow.py"
        path.write_text(FLOW.format(body=body, rows=rows))
        return str(path)

    return write


@pytest.fixture
def command() -> Iterator[type[Command]]:
    started: list[Command] = []

    def start(*words: str, background: bool = False) -> Command:
        started.append(Command(*words, background=background))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def test_ctrl_c_ends_it_in_order_with_a_summary(flow, command, tmp_path):
    state = tmp_path / "state"
    run = command("run", flow(), "--state", str(state), "--set", "latency_spark=0.02")
    run.wait_for(FLOWING)
    run.send(signal.SIGINT)
    assert run.end() == 0
    assert "starting 3 queries" in run.out
    assert "flow on local: 1 machine, 2 slots" in run.out
    assert "Drained: " in run.out
    assert run.lines["out"][-1].startswith("Placement: ")
    assert run.err == ""
    assert (state / "catalog.sqlite").exists()
    assert (state / "logs" / "spark.log").exists()


@pytest.mark.live
def test_sigterm_ends_it_in_order_with_one_json_object(flow, command):
    # In the background of a script, where a Ctrl-C is for whoever is in the foreground.
    run = command("run", flow(), "--json", "--slots", "3", background=True)
    run.wait_for(FLOWING)
    run.send(signal.SIGINT)
    run.send(signal.SIGTERM)
    assert run.end() == 0
    answer = json.loads(run.out)
    assert (answer["topology"], answer["cluster"], answer["machines"]) == ("flow", "local", {"local": 3})
    assert answer["drained"] is True
    assert answer["as_planned"] is None
    source, handle, sink = answer["operators"]
    assert source["rows_out"] == handle["rows_in"] == handle["rows_out"] == sink["rows_in"] > 0
    assert sum(handle["placement"].values()) == 2
    assert 0 < answer["sinks"][0]["latency_p50"] <= answer["sinks"][0]["latency_p99"]


@pytest.mark.live
def test_a_second_ctrl_c_does_not_wait(flow, command):
    run = command("run", flow("time.sleep(3600 * batch.num_rows)"))
    run.wait_for("starting 3 queries")
    run.wait_for(r"backlog")
    run.send(signal.SIGINT)
    run.wait_for("^stopping: waiting for")
    run.send(signal.SIGINT)
    assert run.end() == 130
    assert "Not drained: " in run.out


@pytest.mark.live
def test_ctrl_c_while_the_cluster_starts_leaves_nothing(flow, command):
    run = command("run", flow(), "--cluster", "standalone", "--machines", "1")
    run.wait_for("starting Spark")
    time.sleep(1.0)  # into the start of the driver's JVM; there is nothing to be awaited
    run.send(signal.SIGINT)
    assert run.end() == 0
    assert "stopped before any row was read" in run.out
    assert run.err == ""


@pytest.mark.live
def test_a_function_that_raises_is_one_named_error(flow, command):
    path = flow("batch.num_rows and 1 / 0", rows=100)
    run = command("run", path)
    assert run.end() == 2
    [error] = run.lines["err"]
    assert re.match(rf"{path}:10: OPERATOR_FAILED: .*ZeroDivisionError.*{path}:5", error)


@pytest.mark.live
def test_it_ends_by_itself_when_its_sources_do(flow, command):
    run = command("run", flow(rows=300))
    assert run.end() == 0
    assert re.search(r"out +sink +300 ", run.out)
