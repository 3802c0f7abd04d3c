"""A running topology is seen and steered from elsewhere: the real interface, the real commands, on real Spark."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from described_requests import try_everything
from steered import check_everything, steered

import penstock
from penstock import Settings
from penstock.api.discovery import FOLDER_VARIABLE, Running, find
from penstock.api.server import served
from penstock.api.steering import Steering
from penstock.cli.main import main
from penstock.engine.spark.host import SparkHost

WAIT = 120.0
SETTINGS = Settings(
    latency_under_load=0.3,
    latency_spark=0.2,  # micro-batches back to back would only take the processor from the other tests
    latency=0.3,
    retention_seconds=0.5,
    drain_seconds=60,
    sample_seconds=0.5,
    window_samples=10,
)


@pytest.fixture(autouse=True)
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "running"))


class Steered:
    """A run with its interface, and the command line beside it."""

    def __init__(self, run: Any, steering: Steering, running: Running, stops: list[bool]) -> None:
        self.run = run
        self.steering = steering
        self.running = running
        self.stops = stops

    def refused(self, *words: str) -> Any:
        return self.command(*words, code=2)

    def command(self, *words: str, code: int = 0) -> Any:
        """Over the interface, as always, but from this process: one more for each command would spend seconds on its
        imports."""
        said = io.StringIO()
        with redirect_stdout(said):
            assert main([*words, "--json"]) == code, said.getvalue()
        return json.loads(said.getvalue())

    def from_another_process(self, *words: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *words, "--json"],
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def until(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + WAIT
        while not condition():
            self.run.check()
            assert time.monotonic() < deadline, what
            time.sleep(0.1)


@pytest.fixture
def live(local_host: SparkHost, running: Any, tmp_path: Path) -> Iterator[Steered]:
    with running(steered(tmp_path, 100), local_host, settings=SETTINGS) as run:
        stops: list[bool] = []
        steering = Steering(run, "local", stops.append)
        try:
            with served(steering, "steered", "/state", SETTINGS) as found:
                yield Steered(run, steering, found, stops)
        finally:
            steering.close()
        run.resume()
        assert run.stop()
        check_everything(tmp_path, run.query("events").feeds[0].position)


@pytest.mark.timeout(400)
def test_it_is_seen_and_steered_from_another_process(live: Steered) -> None:
    live.until(lambda: live.run.snapshot().complete, "the snapshot is complete")
    live.until(lambda: live.run.statistics.totals("counts")[0] > 0, "rows reach the sinks")
    status = live.from_another_process("status")
    assert status["topology"] == "steered"
    assert [machine["name"] for machine in status["machines"]] == list(live.run.host.cluster.names)
    assert all(machine["slots"] for machine in status["machines"])
    by_name = {operator["name"]: operator for operator in status["operators"]}
    assert by_name["tag"]["instances"] == live.run.placement.total("tag")
    assert by_name["tag"]["rows_in_per_second"] > 0
    assert all(sink["throughput"] > 0 and sink["latency_p50"] > 0 for sink in status["sinks"])

    before = live.run.placement
    planned = live.command("set-instances", "tag", "3", "--dry-run")
    assert planned["plan"]["actions"][0]["operator"] == "tag"
    assert live.run.placement == before
    done = live.from_another_process("set-instances", "tag", "3")
    assert done["state"] == "done"
    assert live.run.placement.total("tag") == 3
    there = live.run.placement.tasks["count"][0]
    other = next(slot for slot in live.run.host.cluster.slots if slot != there)
    outcome = live.command("move", "count", "0", other.name)["outcome"]
    assert outcome["moves"][0]["to"] == other.name
    assert [(one["operator"], one["tasks"]) for one in outcome["migrations"]] == [("count", [0])]
    assert live.command("migrations")["migrations"][-1]["operators"] == outcome["migrations"]
    assert live.run.placement.tasks["count"][0] == other

    # More instances than tasks are refused, with the command that makes room for them; rows flow on meanwhile.
    refused = live.refused("set-instances", "count", "6")
    assert refused["error"] == "BAD_PLACEMENT"
    assert "penstock repartition count 6" in refused["hint"]
    planned = live.command("repartition", "count", "6", "--dry-run")
    assert planned["plan"]["actions"] == [
        {"action": "set tasks", "operator": "count", "tasks": 6, "text": "count: 6 tasks"}
    ]
    assert len(planned["leads_to"]["tasks"]["count"]) == 6
    assert len(live.run.placement.tasks["count"]) == 4
    cut = live.command("repartition", "count", "6")
    assert (cut["state"], cut["outcome"]["interruptions"][0]["operator"]) == ("done", "count")
    assert len(live.run.placement.tasks["count"]) == 6
    assert len(live.command("status")["operators"][2]["tasks"]) == 6
    assert live.command("repartition", "count", "6")["state"] == "nothing to do"
    assert live.refused("repartition", "tag", "6")["error"] == "REPARTITION_FAILED"
    assert live.refused("repartition", "count", "1")["error"] == "REPARTITION_FAILED"
    assert live.command("set-instances", "count", "6")["state"] == "done"
    assert live.run.placement.total("count") == 6
    counted = live.run.statistics.totals("count")[0]
    live.until(lambda: live.run.statistics.totals("count")[0] > counted, "rows are counted on")

    assert live.command("pause")["paused"]
    live.until(lambda: live.run.finished or live.run.backlog("count") == 0, "what is on its way arrives")
    emitted = live.run.statistics.totals("events")[1]
    assert live.command("status")["state"] == "paused"
    assert live.run.statistics.totals("events")[1] - emitted <= 100, "a batch that had begun may end"
    live.command("resume")
    live.until(lambda: live.run.statistics.totals("events")[1] > emitted + 100, "rows flow again")

    story = [(event["kind"], event["subject"]) for event in live.command("events")["events"]]
    wanted = [("started", "steered"), ("request", "set-instances"), ("action", "set-instances"), ("request", "move")]
    wanted += [("action", "move"), ("request", "set-instances"), ("action", "repartition"), ("action", "repartition")]
    wanted += [("request", "set-instances"), ("action", "set-instances"), ("action", "pause"), ("action", "resume")]
    assert [one for one in story if one in wanted] == wanted
    history = live.command("history", "rate", "backlog_rows", "--operator", "tag", "--since", "5m")
    assert max(history["series"][0]["values"]["rate"]) > 0
    live.command("stop", "--no-wait")
    assert live.stops == [True]


@pytest.mark.timeout(400)
def test_actions_at_once_are_done_one_after_the_other(live: Steered) -> None:
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda n=number: answers.append(live.steering.set_instances("tag", n)))
        for number in (1, 2, 3, 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    all_of_them = live.steering.operations.all()
    assert len(all_of_them) == 4
    assert all(live.steering.operations.wait(one, WAIT) for one in all_of_them)
    assert {one.state for one in all_of_them} <= {"done", "nothing to do"}
    times = [(one.began_at, one.ended_at) for one in all_of_them]
    assert all(ended <= began for (_, ended), (began, _) in pairwise(times))
    assert live.run.placement.total("tag") == all_of_them[-1].arguments["count"]


@pytest.mark.live
@pytest.mark.timeout(400)
def test_it_survives_whatever_its_description_allows(live: Steered) -> None:
    """No server error, no hang, no action without the token: and the rows are exact all the same (see `live`).
    tests/unit/api/test_interface.py tries the same, and more, at the same interface before a topology without Spark."""

    import schemathesis  # not above: see described_requests.py

    def adapt(case: Any) -> None:
        query = case.query or {}
        if isinstance(query.get("wait"), int | float) and query["wait"] > 0:
            query["wait"] = 0.05
        if isinstance(query.get("until"), int | float):
            query.pop("until")  # that it must be after `since` cannot be said in the description
        if case.path == "/v1/history":
            query["since"] = min(query["since"], 1e9) if isinstance(query.get("since"), int | float) else "never"

    live.until(lambda: live.run.snapshot().complete, "the snapshot is complete")
    schema = schemathesis.openapi.from_url(f"{live.running.url}/openapi.json")
    assert try_everything(schema, live.running.token, examples=2, adapt=adapt) > 100
    while any(not one.state.over for one in live.steering.operations.all()):
        live.run.check()
        time.sleep(0.1)
    live.run.resume()
    seen = live.run.statistics.totals("events")[1]
    live.until(lambda: live.run.statistics.totals("events")[1] > seen, "rows flow")


def test_the_handle_of_the_library(tmp_path: Path, hosts: Any) -> None:
    hosts.stop()  # a process has one Spark at a time
    with penstock.run(steered(tmp_path, 100), cluster="local", settings=SETTINGS) as handle:
        assert find("steered").label.startswith("steered:")
        deadline = time.monotonic() + WAIT
        while not handle.snapshot()["complete"]:
            assert not handle.wait(0.2)
            assert time.monotonic() < deadline
        assert handle.status()["state"] == "running"
        operation = handle.wait_for(handle.set_instances("tag", 3), WAIT)
        assert operation["state"] == "done", operation["reason"]
        assert not handle.wait(0.5)
    emitted = handle.run.query("events").feeds[0].position
    assert emitted > 0
    check_everything(tmp_path, emitted)
    assert pq.read_table(tmp_path / "rows").num_rows > 0
