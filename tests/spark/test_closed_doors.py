"""Other users of the same computer: whatever port of a running cluster they try, without a secret they change nothing
and read neither rows nor secrets; and of its files they see none."""

from __future__ import annotations

import os
import re
import stat
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import PASSWORD, TEST_SETTINGS
from doors import Door, command_lines, doors, family, sockets, status_of, try_everything_at, web
from steered import check_everything, steered
from written_rows import WAIT

from penstock.api.discovery import FOLDER_VARIABLE
from penstock.api.server import served
from penstock.api.steering import Steering
from penstock.engine.spark.host import SparkHost

#: Rows have a key like this one.
ROW = rb"key-\d"


def secrets_of(host: SparkHost, token: str) -> list[str]:
    """Everything that opens a door, as it is known to those who may."""
    conf = host.provider.work_dir / "conf"
    kept = [line.split(" ", 1)[1] for file in conf.glob("*.conf") for line in file.read_text().splitlines()]
    gateway = host.spark.sparkContext._gateway
    assert host.spark.sparkContext.getConf().get("spark.hadoop.tests.password") == PASSWORD, "those who may have it do"
    called = gateway.callback_server_parameters.auth_token or PASSWORD
    return [token, PASSWORD, called, gateway.gateway_parameters.auth_token, *(word for word in kept if len(word) >= 32)]


@pytest.mark.timeout(300)
def test_no_port_lets_a_stranger_in(
    standalone_host: SparkHost, running: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "running"))
    host = standalone_host
    with running(steered(tmp_path, 50), host) as run:
        steering = Steering(run, "standalone", lambda drain: pytest.fail("a stranger has stopped it"))
        with served(steering, "steered", "/state", TEST_SETTINGS) as found:
            before, bound = host.cluster, host.slots.bindings()
            names = {"app": host.spark.sparkContext.applicationId, "machine": host.cluster.names[0]}
            processes = family(psutil.Process())
            there = doors(processes)
            kinds = Counter(door.process for door in there)
            # Service and page; the driver's JVM also listens for Python, and Python for the JVM, for commands, and for
            # bundles that stand.
            assert kinds["master"] == 2
            assert kinds["worker"] == 4
            assert kinds["executor"] >= 4
            assert kinds["driver JVM"] == 3
            assert kinds["Python driver"] == 3
            assert kinds.keys() == {"master", "worker", "executor", "driver JVM", "Python driver"}
            assert {door.address.split(".")[0] for door in there} == {"127"}, there
            with ThreadPoolExecutor(len(there)) as strangers:
                tried = list(strangers.map(lambda door: try_everything_at(door, names), there))
            assert [one for door in tried for one in door.let_through] == []
            # The owner is let in: what was refused above was refused for want of a token.
            pages = [door for door in there if door.process in ("master", "worker")]
            deadline = time.monotonic() + WAIT  # a busy machine may take its time to answer
            while opened(host, pages, time.time()) != ["master", "worker", "worker"]:
                assert time.monotonic() < deadline
            assert opened(host, pages, time.time() - 3600) == [], "a token is good for seconds"
            told = b"\n".join(answer for door in tried for answer in door.heard)
            assert not re.search(ROW, told)
            shown = command_lines(processes)
            assert len(shown) > len(kinds)
            for secret in secrets_of(host, found.token):
                assert secret.encode() not in told
                assert [line for line in shown if secret in line] == []
            for path in sockets(processes):
                assert closed(Path(path)), f"{path} is open to others"
            assert host.cluster == before
            assert host.slots.bindings() == bound, "nobody has gone"
            seen = run.statistics.batches("counts")
            while run.statistics.batches("counts") < seen + 2:
                run.wait(0.05)
        steering.close()
        assert run.stop()
        check_everything(tmp_path, run.query("events").feeds[0].position)


def opened(host: SparkHost, pages: list[Door], now: float) -> list[str]:
    """Who lets in whoever has a token that was signed at this time."""
    token = host.provider._pages.token(now)
    return [door.process for door in pages if status_of(web(door, "GET", "/json/", token)[-1]) == 200]


def closed(path: Path, top: Path = Path("/")) -> bool:
    """Whether others can neither read nor write this, by its own mode or by that of a folder above it, up to `top`."""
    try:
        modes = {one: stat.S_IMODE(one.stat().st_mode) for one in (path, *path.parents) if one.is_relative_to(top)}
    except FileNotFoundError:
        return True  # Spark has renamed or deleted it
    return any(not mode & (0o077 if one == path else 0o011) for one, mode in modes.items())


# With segments and checkpoints elsewhere, the same files are in three folders.
@pytest.mark.parametrize("where", [pytest.param("in the state folder", marks=pytest.mark.live), "elsewhere"])
def test_only_their_owner_can_read_the_files_of_a_run(
    local_host: SparkHost, running: Any, tmp_path: Path, where: str
) -> None:
    elsewhere = {name: str(tmp_path / name) for name in ("segments", "checkpoints")}
    settings = replace(TEST_SETTINGS, **elsewhere) if where == "elsewhere" else TEST_SETTINGS
    state = tmp_path / "state-0"
    for folder in (state, *map(Path, elsewhere.values())):
        folder.mkdir(mode=0o755)  # its user had made it before
    before = os.umask(0)
    try:
        with running(steered(tmp_path / "out", 300), local_host, settings=settings) as run:
            while run.statistics.batches("counts") < 2:
                run.wait(0.05)
            tops = [state, *(Path(path) for path in elsewhere.values() if where == "elsewhere")]
            files = [(file, top) for top in tops for file in top.rglob("*") if file.is_file()]
            kinds = {file.relative_to(top).parts[0] for file, top in files}
            assert files
            open_to_others = [file for file, top in files if not closed(file, top)]
            assert open_to_others == [], kinds
    finally:
        os.umask(before)
