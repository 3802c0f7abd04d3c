"""`penstock scale-out` and `scale-in` on a topology that runs, from another terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.api.discovery import FOLDER_VARIABLE

EXAMPLE = Path(__file__).parents[2] / "examples" / "word_count.py"
WAIT = 240.0


@pytest.mark.live
@pytest.mark.timeout(600)
def test_a_machine_comes_and_goes_on_demand(tmp_path: Path) -> None:
    environment = os.environ | {FOLDER_VARIABLE: str(tmp_path / "running")}

    def command(*words: str, code: int = 0) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *words, "--json"],
            capture_output=True,
            text=True,
            env=environment,
            timeout=WAIT,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)

    run = [sys.executable, "-m", "penstock", "run", str(EXAMPLE), "--cluster", "standalone", "--json"]
    with (tmp_path / "log").open("w") as log:
        topology = subprocess.Popen(run, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        deadline = time.monotonic() + WAIT
        while not command("ps")["running"] or not command("status").get("complete"):  # none while it starts
            assert topology.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(1)
        planned = command("scale-out", "--machines", "1", "--dry-run")
        assert planned["plan"]["actions"][0]["action"] == "add machine"
        [new] = [one["machine"]["name"] for one in planned["plan"]["actions"] if one["action"] == "add machine"]
        assert len(command("status")["machines"]) == 2, "a dry run changes nothing"
        done = command("scale-out", "--machines", "1")
        assert done["state"] == "done", done["reason"]
        status = command("status")
        assert new in [machine["name"] for machine in status["machines"]]
        assert any(slot.startswith(new) for one in status["operators"] for slot in one["placement"])
        story = command("events")["events"]
        kinds = [event["kind"] for event in story if event["subject"] in ("scale-out", new)]
        assert kinds == ["request", "decision", "action", "action"]
        assert new in story[-1]["reason"]
        assert command("scale-in", "nobody", code=2)["error"] == "NO_SUCH_MACHINE"
        assert command("scale-in", new)["state"] == "done"
        assert new not in [machine["name"] for machine in command("status")["machines"]]
        assert command("stop")["ended"]
        assert topology.wait(WAIT) == 0
        assert json.loads(topology.communicate()[0])["drained"] is True
    finally:
        if topology.poll() is None:
            topology.send_signal(signal.SIGTERM)
            topology.wait(60)
        topology.stdout.close()
