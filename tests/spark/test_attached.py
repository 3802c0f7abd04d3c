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


@pytest.mark.live
@pytest.mark.timeout(240)
def test_a_topology_runs_on_somebody_else_s_cluster(tmp_path: Path) -> None:
    theirs = StandaloneCluster(2, 1, 1, 24, tmp_path / "theirs", executor_memory_mb=1024)
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
@pytest.mark.timeout(600)
def test_machines_leave_and_come_on_somebody_else_s_cluster(tmp_path: Path) -> None:
    theirs = StandaloneCluster(2, 1, 1, 24, tmp_path / "theirs")
    theirs.start()
    try:
        script = Path(__file__).parent / "attached_changes.py"
        command = [sys.executable, str(script), str(tmp_path), theirs.master_url]
        with (tmp_path / "stderr").open("w+") as errors:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | theirs.driver_environment(),
            )
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "add a machine\n", (tmp_path / "stderr").read_text()
                theirs.add_machine(theirs.upcoming(1)[0])
                output, _ = process.communicate("it is added\n", timeout=450)
            finally:
                process.kill()
                process.communicate()
        assert process.returncode == 0, output + (tmp_path / "stderr").read_text()
        saw = json.loads(output.splitlines()[-1])
        first, second, third = "127.0.0.2", "127.0.0.3", "127.0.0.4"
        # Somebody added the third: it is used, and nobody was asked for a fourth.
        assert saw["taken in"][0] == "done", saw["taken in"]
        assert saw["taken in"][2:] == [3, [f"{first}/0", f"{second}/0", f"{third}/0"]]
        assert saw["removed"] == ["done", "machines are removed", [first, second, third], [second, third]]
        # Added while the executor of the second was being replaced: both come.
        assert saw["added"][0] == "done", saw["added"]
        assert saw["executors"] == [first, second, third]
        assert saw["twice"] == "nothing to do"
        assert len(saw["tag"]) == 2
        assert saw["drained"]
        assert len(theirs.cluster.machines) == 3, "their workers are none of our business"
        check_everything(tmp_path, saw["emitted"])
    finally:
        theirs.stop()
