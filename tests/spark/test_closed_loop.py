"""`penstock run --strategy stela --throughput`: a topology that is too slow gets a machine, by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from penstock_process import penstock_process, throughput

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


@pytest.mark.live
@pytest.mark.timeout(600)
@pytest.mark.parametrize("policy", ["throttle", "spill"])
def test_a_throughput_that_one_machine_cannot_give(tmp_path: Path, policy: str) -> None:
    goal = ("--strategy", "stela", "--throughput", str(REQUIRED), "--machines-max", "2")
    settings = SETTINGS | {"backlog_policy": policy}
    with penstock_process(tmp_path, TOPOLOGY, *goal, settings=settings) as running:
        running.wait_until(
            "it was scaled and measured", lambda: any("convergence" in one["fields"] for one in running.story())
        )
        running.wait_until("the throughput", lambda: throughput(running.command("status")) >= REQUIRED * 0.95)
        [slow] = [one for one in running.command("status")["operators"] if one["name"] == "slow"]
        assert slow["instances"] == 2
        told = [(one["kind"], one["subject"], one["reason"]) for one in running.story()]
        assert any(kind == "decision" and "congested: slow" in reason for kind, _, reason in told)
        assert any(who == "scale-out" and reason.startswith("done") for _, who, reason in told)
        assert not any(who == "scale-out" and kind == "fault" for kind, who, _ in told)
        running.stop()
