"""A topology on Spark that starts where a stranger's mapping says, and changes as a stranger's policy decides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from installed_strangers import installed
from steered import check_everything, steered

from penstock import Settings
from penstock.api.steering import Steering
from penstock.autoscaler.goals import Goal
from penstock.autoscaler.hands import controller_of
from penstock.autoscaler.policy import Fate
from penstock.engine.spark.host import SparkHost

POLICY, MAPPING = "one_more", "last_slot_first"
WAIT = 120.0


@pytest.fixture(autouse=True)
def strangers(tmp_path: Path) -> Iterator[None]:
    with installed(tmp_path / "site"):
        yield


@pytest.mark.timeout(400)
def test_a_policy_and_a_mapping_of_strangers(local_host: SparkHost, running: Any, tmp_path: Path) -> None:
    settings = Settings(
        latency_under_load=0.3,
        latency_spark=0.02,
        retention_seconds=0.5,
        drain_seconds=60,
        sample_seconds=0.5,
        cooldown_seconds=0,
        strategy=POLICY,
        mapping=MAPPING,
    )
    last = local_host.cluster.slots[-1]
    with running(steered(tmp_path, 400), local_host, settings=settings) as run:
        steering = Steering(run, "local", lambda drain: None)
        try:
            assert run.placement.slots == {last}, "everything is where the mapping wants it"

            before = run.placement
            planned = steering.scale_out(dry_run=True)
            assert planned["strategy"] == POLICY
            assert planned["plan"]["actions"][0]["text"] == f"tag: 3 on {last}"
            assert planned["predictions"] == [{"metric": "backlog_rows", "value": 0.0, "subject": "tag"}]
            assert run.placement == before, "a dry run changes nothing"

            # Asked for by a person, and then by the loop itself.
            done = steering.operations.get(steering.scale_out()["id"])
            assert steering.operations.wait(done, WAIT)
            assert done.state is Fate.DONE, done.reason
            assert run.placement.of("tag") == {last: 3}
            controller = controller_of(run, steering.desk, Goal(throughput=1e6), POLICY)
            controller.guards.clear()  # they would have it wait until the effect of the first change is measured
            controller.step()
            asked = steering.operations.all()[-1]
            assert (asked.action, steering.operations.wait(asked, WAIT)) == ("set-instances", True)
            assert run.placement.of("tag") == {last: 4}
            [decided] = controller.history()
            assert (decided.fate, decided.operation) == (Fate.DONE, asked.id)

            fewer = steering.operations.get(steering.set_instances("tag", 1)["id"])
            assert steering.operations.wait(fewer, WAIT)
            assert run.placement.of("tag") == {last: 1}
        finally:
            steering.close()
        assert run.stop()
        check_everything(tmp_path, run.query("events").feeds[0].position)
