"""A standalone cluster of ours takes orders only from who knows its secret, which only its owner can read."""

from __future__ import annotations

import base64
import hmac
import json
import os
import stat
from itertools import chain
from pathlib import Path

from penstock.cluster import daemons
from penstock.cluster.pages import Pages
from penstock.cluster.standalone import StandaloneCluster

PAGES = Pages.with_new_key()


def properties(work_dir: Path, file: str = "driver.conf") -> dict[str, str]:
    lines = (work_dir / "conf" / file).read_text().splitlines()
    return dict(line.split(" ", 1) for line in lines)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_secrets_are_in_files_that_only_their_owner_can_read(tmp_path: Path) -> None:
    work_dir = tmp_path / "work"
    work_dir.mkdir(mode=0o755)
    before = os.umask(0)
    try:
        daemons.write_conf(work_dir, PAGES)
    finally:
        os.umask(before)
    assert mode(work_dir) == 0o700, "daemons write their logs here"
    assert mode(work_dir / "conf") == 0o700
    for file in ("driver.conf", "daemons.conf"):
        assert mode(work_dir / "conf" / file) == 0o600
        assert properties(work_dir, file)["spark.authenticate"] == "true"
        assert len(properties(work_dir, file)["spark.authenticate.secret"]) == 64
    key = "spark.org.apache.spark.ui.JWSFilter.param.secretKey"
    assert properties(work_dir, "daemons.conf")[key] == PAGES.key
    assert properties(work_dir, "daemons.conf")["spark.ui.filters"] == "org.apache.spark.ui.JWSFilter"
    assert key not in properties(work_dir), "a driver that shows its own page has no key to it"


def test_every_cluster_has_its_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        daemons.write_conf(tmp_path / name, Pages.with_new_key())
    first, second = (properties(tmp_path / name, "daemons.conf") for name in ("a", "b"))
    alike = {name for name in first if first[name] == second[name]}
    assert alike - daemons.EXECUTOR_LOGS.keys() == {"spark.authenticate", "spark.ui.filters"}


def test_daemons_and_driver_find_them_and_no_command_line_shows_them(tmp_path: Path) -> None:
    cluster = StandaloneCluster(1, 1, 1, 2, tmp_path)
    daemons.write_conf(tmp_path, PAGES)
    secret = properties(tmp_path)["spark.authenticate.secret"]
    conf = tmp_path / "conf"
    driver = cluster.driver_environment()
    assert driver["PYSPARK_SUBMIT_ARGS"].split()[:2] == ["--properties-file", str(conf / "driver.conf")]
    environment = daemons.daemon_environment({}, tmp_path, "127.0.0.2")
    for told in (driver, environment):
        assert not Path(told["SPARK_CONF_DIR"]).exists(), "Spark puts it into the class path"
    commands = [
        daemons.worker_command("127.0.0.2", 1, 512, tmp_path, "spark://x:1"),
        daemons.master_command(tmp_path, "127.0.0.1"),
    ]
    for command in commands:
        assert command[command.index("--properties-file") + 1] == str(tmp_path / "conf" / "daemons.conf")
    shown = [
        *cluster.spark_conf().values(),
        *cluster.java_options().values(),
        *driver.values(),
        *environment.values(),
        *chain(*commands),
        repr(PAGES),
    ]
    assert not any(secret in word or PAGES.key in word for word in shown)


def test_a_token_is_signed_and_good_for_seconds() -> None:
    """As RFC 7515 has it, which is what Spark's filter reads."""
    header, payload, signature = PAGES.token(now=1000.5).split(".")

    def decoded(part: str) -> bytes:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))

    assert json.loads(decoded(header)) == {"alg": "HS256"}
    assert json.loads(decoded(payload)) == {"exp": 1030}
    key = base64.urlsafe_b64decode(PAGES.key)
    assert len(key) == 32
    assert hmac.new(key, f"{header}.{payload}".encode(), "sha256").digest() == decoded(signature)
    assert "=" not in PAGES.token(1.0)
    assert Pages.with_new_key().token(1000.5) != PAGES.token(1000.5)
