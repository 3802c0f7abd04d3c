"""What the driver's JVM prints goes to a log of this run; the log of the run before stays beside it."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.engine.spark.host import _output_to


def test_each_run_has_a_log_of_its_own_and_the_one_before_stays(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    for said in (b"first", b"second", b"third"):
        with _output_to(log):
            os.write(1, said)
            os.write(2, b" run")
    assert log.read_bytes() == b"third run"
    assert (tmp_path / "spark.before.log").read_bytes() == b"second run"
    assert len(list(tmp_path.iterdir())) == 2
