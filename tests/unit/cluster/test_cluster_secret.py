"""A standalone cluster of ours takes orders only from who knows its secret, which only its owner can read."""

from __future__ import annotations

import stat
from pathlib import Path

from penstock.cluster import daemons
from penstock.cluster.standalone import StandaloneCluster


def properties(work_dir: Path) -> dict[str, str]:
    lines = (work_dir / "conf" / "spark-defaults.conf").read_text().splitlines()
    return dict(line.split(" ", 1) for line in lines)


def test_the_secret_is_in_a_file_that_only_its_owner_can_read(tmp_path: Path) -> None:
    daemons.write_conf(tmp_path)
    file = tmp_path / "conf" / "spark-defaults.conf"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert properties(tmp_path)["spark.authenticate"] == "true"
    assert len(properties(tmp_path)["spark.authenticate.secret"]) == 64


def test_every_cluster_has_its_own(tmp_path: Path) -> None:
    daemons.write_conf(tmp_path / "a")
    daemons.write_conf(tmp_path / "b")
    assert properties(tmp_path / "a") != properties(tmp_path / "b")


def test_daemons_and_driver_find_it_and_no_command_line_shows_it(tmp_path: Path) -> None:
    cluster = StandaloneCluster(1, 1, 1, 2, tmp_path)
    daemons.write_conf(tmp_path)
    secret = properties(tmp_path)["spark.authenticate.secret"]
    conf = str(tmp_path / "conf")
    assert cluster.driver_environment()["SPARK_CONF_DIR"] == conf
    assert daemons.daemon_environment({}, tmp_path, "127.0.0.2")["SPARK_CONF_DIR"] == conf
    shown = [*cluster.spark_conf().values(), *daemons.worker_command("127.0.0.2", 1, 512, tmp_path, "spark://x:1")]
    assert not any(secret in word for word in shown)
