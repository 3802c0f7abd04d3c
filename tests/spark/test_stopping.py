"""`penstock stop` beside `penstock run`, each in a process of its own: what is over when it returns."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.api.discovery import FOLDER_VARIABLE
from penstock.cli.main import main
from penstock.engine.state.folder import StateFolder

SECONDS = 150.0
FLOW = """\
from penstock import Topology, sinks, sources

topology = Topology("stopped")
lines = topology.source("lines", sources.rate(200, sources.sentences()))
topology.sink("out", sinks.noop(), inputs=lines)
"""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "running"))
    return os.environ | {"PYTHONPATH": str(Path(penstock.__file__).parents[1])}


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "flow.py").write_text(FLOW)
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "penstock", "run", str(tmp_path / "flow.py"), "--state", str(tmp_path / "state")]
        with (tmp_path / "out").open("wb") as out:
            started.append(subprocess.Popen(words, stdout=out, stderr=out, env=environment))
        return started[-1]

    yield start
    for one in started:
        if one.poll() is None:
            one.kill()
            one.wait()


def told(*words: str) -> Any:
    """What a command says, asked in this process. Asking again and again in processes of their own would take the
    processor from the run that is waited for."""
    said = io.StringIO()
    with redirect_stdout(said):
        main([*words, "--json"])
    return json.loads(said.getvalue())


def stop(environment: dict[str, str]) -> Any:
    words = (sys.executable, "-m", "penstock", "stop", "--json")
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=SECONDS, check=False)
    return json.loads(done.stdout)


def until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_when_stop_returns_the_process_has_ended_and_its_state_is_free(
    run: Any, environment: dict[str, str], tmp_path: Path
) -> None:
    process = run()

    def phases() -> list[str]:
        return [one["phase"] for one in told("ps")["running"]]

    until(lambda: phases() == ["starting"], "it is seen while it starts")
    assert told("status")["state"] == "starting"
    stopped = stop(environment)
    assert (stopped["ended"], stopped["how"]) == (True, "It was stopped before any row was read.")
    assert process.poll() == 0
    StateFolder.hold(str(tmp_path / "state")).release()

    process = run()
    until(lambda: phases() == ["running"], "it runs")
    until(lambda: told("status")["operators"][1]["rows_in"] > 0, "rows flow")
    stopped = stop(environment)
    assert stopped["ended"]
    assert stopped["how"].startswith("Drained: everything")
    assert process.poll() == 0, "it was gone when `stop` returned"
    StateFolder.hold(str(tmp_path / "state")).release()
    assert re.search("Drained: ", (tmp_path / "out").read_text())
