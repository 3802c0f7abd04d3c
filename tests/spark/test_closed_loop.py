"""`penstock run --strategy stela --throughput`: a topology that is too slow gets a machine, by itself."""

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

TOPOLOGY = Path(__file__).with_name("slow_middle.py")
SETTINGS = {
    "sample_seconds": 1,
    "window_samples": 10,
    "window_least_samples": 8,
    "cooldown_seconds": 20,
    "measure_seconds": 10,
    # What waits needs no cores, so only a slot that is full makes a machine needed.
    "slot_instances": 3,
}
REQUIRED = 330
WAIT = 240.0


@pytest.mark.live
@pytest.mark.timeout(600)
@pytest.mark.parametrize("policy", ["throttle", "spill"])
def test_a_throughput_that_one_machine_cannot_give(tmp_path: Path, policy: str) -> None:
    environment = os.environ | {FOLDER_VARIABLE: str(tmp_path / "running")}

    def command(*words: str) -> Any:
        line = [sys.executable, "-m", "penstock", *words, "--json"]
        done = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=WAIT, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    run = [sys.executable, "-m", "penstock", "run", str(TOPOLOGY), "--cluster", "standalone", "--machines", "1"]
    run += ["--strategy", "stela", "--throughput", str(REQUIRED), "--machines-max", "2", "--json"]
    for name, value in (SETTINGS | {"backlog_policy": policy}).items():
        run += ["--set", f"{name}={value}"]
    with (tmp_path / "log").open("w") as log:
        topology = subprocess.Popen(run, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)

    def wait_until(what: str, true: Any) -> None:
        deadline = time.monotonic() + WAIT
        while not true():
            assert topology.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline, f"{what}: {command('events')}"
            time.sleep(2)

    def story() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = command("events")["events"]
        return found

    def throughput() -> float:
        return sum(sink["throughput"] or 0.0 for sink in command("status")["sinks"])

    try:
        wait_until("it runs", lambda: any(one["phase"] == "running" for one in command("ps")["running"]))
        wait_until("it was scaled and measured", lambda: any("convergence" in one["fields"] for one in story()))
        wait_until("the throughput", lambda: throughput() >= REQUIRED * 0.95)
        [slow] = [one for one in command("status")["operators"] if one["name"] == "slow"]
        assert slow["instances"] == 2
        told = [(one["kind"], one["subject"], one["reason"]) for one in story()]
        assert any(kind == "decision" and "congested: slow" in reason for kind, _, reason in told)
        assert any(who == "scale-out" and reason.startswith("done") for _, who, reason in told)
        assert not any(who == "scale-out" and kind == "fault" for kind, who, _ in told)
        assert command("stop")["ended"]
        assert topology.wait(WAIT) == 0
    finally:
        if topology.poll() is None:
            topology.send_signal(signal.SIGTERM)
            try:
                topology.wait(60)
            except subprocess.TimeoutExpired:
                topology.kill()
                topology.wait()
        topology.stdout.close()
