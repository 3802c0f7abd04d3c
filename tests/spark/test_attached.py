"""A cluster that runs already: `penstock run --master URL` finds its machines and slots, and leaves it running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from steered import check_everything

from penstock.cluster.standalone import StandaloneCluster

WORDS = Path(__file__).parents[2] / "examples" / "word_count.py"


@pytest.mark.timeout(240)
def test_a_topology_runs_on_somebody_else_s_cluster(tmp_path: Path) -> None:
    theirs = StandaloneCluster(2, 1, 1, 6, tmp_path / "theirs", executor_memory_mb=1024)
    theirs.start()
    try:
        command = [sys.executable, "-m", "penstock", "run", str(WORDS), "--master", theirs.master_url]
        options = ["--seconds", "8", "--json", "--conf", "spark.driver.host=127.0.0.1"]
        environment = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": ":".join(sys.path),
            "JDK_JAVA_OPTIONS": os.environ["JDK_JAVA_OPTIONS"],
        }
        # Their secret comes as it would for any Spark driver: from the configuration folder that the user names.
        environment |= theirs.driver_environment()
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, env=environment, timeout=200, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        summary = json.loads(done.stdout)
        assert set(summary["machines"]) == {"127.0.0.2", "127.0.0.3"}
        split = next(one for one in summary["operators"] if one["name"] == "split")
        assert split["rows_in"] > 0
        assert split["placement"] == {"127.0.0.2/0": 1, "127.0.0.3/0": 1}
        assert {slot for slot, executors in split["observed"].items() if executors} == set(split["placement"])
        assert summary["unplaced"] is None
        assert summary["as_planned"] is True
        assert theirs.cluster.machines, "their cluster must go on"
    finally:
        theirs.stop()


@pytest.mark.live
@pytest.mark.timeout(400)
def test_machines_leave_and_come_on_somebody_else_s_cluster(tmp_path: Path) -> None:
    theirs = StandaloneCluster(2, 1, 1, 8, tmp_path / "theirs")
    theirs.start()
    try:
        script = Path(__file__).parent / "attached_changes.py"
        done = subprocess.run(
            [sys.executable, str(script), str(tmp_path), theirs.master_url],
            capture_output=True,
            text=True,
            env=os.environ | theirs.driver_environment(),
            timeout=350,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        saw = json.loads(done.stdout.splitlines()[-1])
        first, second = "127.0.0.2", "127.0.0.3"
        assert saw["removed"] == ["done", "machines were to be removed", [first, second], [second]]
        assert saw["added"][0] == "done", saw["added"]
        assert saw["added"][2:] == ["new-1", [first, second]], "it is known by the host on which it came up"
        assert saw["twice"] == "nothing to do"
        assert saw["tag"] == [f"{first}/0", f"{second}/0"]
        assert saw["drained"]
        assert len(theirs.cluster.machines) == 2, "their workers are none of our business"
        check_everything(tmp_path, saw["emitted"])
    finally:
        theirs.stop()
