"""Two topologies on one cluster that both want to grow: never both at once, and neither starves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock.api.client import Client
from penstock.api.discovery import FOLDER_VARIABLE, Phase, all_running
from penstock.channels.leases import LASTS_SECONDS
from penstock.cluster.standalone import StandaloneCluster

TOPOLOGY = Path(__file__).with_name("growing.py")
WAIT = 240.0
NAMES = ("one", "two")
#: The instances of "work", one operation after the other.
COUNTS = (2, 3, 4, 5)
#: Each topology has one executor on each machine, and leaves room for that of the other.
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "12",
    "spark.cores.max": "24",
}


@contextmanager
def driver(name: str, theirs: StandaloneCluster, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "penstock", "run", str(TOPOLOGY), "--master", theirs.master_url, "--json"]
    command += [word for one, value in CONF.items() for word in ("--conf", f"{one}={value}")]
    environment = os.environ | theirs.driver_environment() | {"NAME": name}
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def until(what: str, condition: Any) -> Any:
    deadline = time.monotonic() + WAIT
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.2)
    return found


def registered(cluster: Path) -> int:
    """How many workers say in their logs that the master has them."""
    return sum("Successfully registered with master" in log.read_text() for log in cluster.glob("worker-*.log"))


def client(name: str, process: subprocess.Popen[bytes], folder: Path) -> Client:
    def running() -> Any:
        assert process.poll() is None, (folder / f"{name}.log").read_text()
        return [one for one in all_running() if one.topology == name and one.phase is Phase.RUNNING]

    return Client(until(f"{name} runs", running)[0])


def operations(of: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = of.get("operations")["operations"]
    return found


@pytest.mark.live
@pytest.mark.timeout(900)
def test_two_that_want_to_grow_change_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "running"))
    theirs = StandaloneCluster(2, 2, 1, 12, tmp_path / "theirs")
    theirs.start()
    try:
        # A driver that comes before the second machine gets both of its executors on the first one.
        until("both machines are there", lambda: registered(tmp_path / "theirs") == 2)
        with ExitStack() as end:
            processes = {name: end.enter_context(driver(name, theirs, tmp_path)) for name in NAMES}
            clients = {name: client(name, process, tmp_path) for name, process in processes.items()}
            for name, one in clients.items():
                end.callback(one.close)
                until(f"{name} is measured", lambda one=one: one.get("status")["complete"])
                until(f"{name} has a neighbour", lambda one=one: one.get("status")["neighbours"])
            for count in COUNTS:
                for one in clients.values():
                    one.post("set-instances", {"operator": "work", "count": count})
            until(
                "all operations are over",
                lambda: all(one["ended_at"] for each in clients.values() for one in operations(each)),
            )
            done = [(name, one) for name, each in clients.items() for one in operations(each)]
            assert {one["state"] for _, one in done} == {"done"}, done
            assert len(done) == len(COUNTS) * len(NAMES)
            # Never both at once: in the order of their begins, each had ended when the next one began.
            done.sort(key=lambda entry: entry[1]["began_at"])
            for (_, before), (_, after) in pairwise(done):
                assert before["ended_at"] <= after["began_at"], done
            # Neither starves: after the first ones, both are always in line, so they take turns.
            order = [name for name, _ in done]
            assert all(a != b for a, b in pairwise(order[1:-1])), order
            waited = [
                event["reason"]
                for each in clients.values()
                for event in each.get("events", after=0)["events"]
                if event["reason"].startswith("waits for topology")
            ]
            assert {f"waits for topology {name}, which is changing" for name in NAMES} == set(waited)
            for each in clients.values():
                [neighbour] = each.get("status")["neighbours"]
                assert set(neighbour["uses"]) == {"127.0.0.2", "127.0.0.3"}
                assert each.get("status")["as_planned"]
            a_dead_one_does_not_block(processes["one"], clients["one"], clients["two"])
    finally:
        theirs.stop()


def a_dead_one_does_not_block(process: subprocess.Popen[bytes], doomed: Client, alive: Client) -> None:
    """The driver is killed in the middle of a change; the other one goes on when the lease is over."""
    doomed.post("set-instances", {"operator": "work", "count": 1})
    while (state := operations(doomed)[-1]["state"]) == "waiting":
        pass  # the change takes about a second, so no time is to be lost
    process.kill()
    process.wait()
    assert state == "running", "the change was over before the driver was killed"
    number = alive.post("set-instances", {"operator": "work", "count": 2})["id"]
    last = until("it is over", lambda: [one for one in operations(alive) if one["id"] == number and one["ended_at"]])
    assert last[0]["state"] == "done", last
    assert last[0]["began_at"] - last[0]["asked_at"] < LASTS_SECONDS + 10, "the lease of a dead driver ends"
