"""A machine keeps segments of a run until the last daemon of the run has ended there, and no longer."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import penstock
from penstock.channels import kept_folder
from penstock.channels.origins import Origins

HOST = "127.0.0.4"
DAEMON = """
import os, time
from penstock.channels.origins import Origins
from penstock.channels.segment_server import start_one_for_the_machine
server = start_one_for_the_machine("127.0.0.4", Origins.of_environment(os.environ))
if not os.fork():
    time.sleep(300)  # a worker that outlives its daemon
print(server.pid if server else 0, flush=True)
time.sleep(300)
"""


@pytest.fixture(autouse=True)
def nothing_in_use() -> Iterator[None]:
    yield
    kept_folder.leave()


@pytest.fixture
def origins(tmp_path, monkeypatch) -> Origins:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with socket.create_server((HOST, 0)) as probe:
        return Origins.with_new_token(probe.getsockname()[1], 1 << 20)


@contextmanager
def daemon(origins: Origins) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The parent of an executor's Python workers, and the number of the server that it has started, or 0."""
    environment = {
        **os.environ,
        **origins.as_variable(),
        "PYTHONPATH": str(Path(penstock.__file__).parents[1]),
        "TMPDIR": tempfile.gettempdir(),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", DAEMON], env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.wait()


def soon(holds, seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def listens(origins: Origins) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex((HOST, origins.port)) == 0


def runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_server_deletes_the_folder_when_the_last_daemon_of_the_machine_is_gone(origins):
    other = Origins.with_new_token(origins.port, 1)
    kept_folder.use(other.folder)
    with daemon(origins) as (first, server):
        assert server
        with daemon(origins) as (second, another):
            assert another == 0, "a machine has one server"
            (origins.folder / "one.piece").write_bytes(b"rows")
            assert soon(lambda: listens(origins))
            first.kill()
            first.wait()
            assert not soon(lambda: not listens(origins), 2.0), "the second daemon has use for the server"
            assert (origins.folder / "one.piece").exists()
            second.kill()
            assert soon(lambda: not origins.folder.exists())
            assert soon(lambda: not runs(server))
    assert other.folder.exists(), "the folder of another run"


def test_a_server_that_is_told_to_end_deletes_the_folder_after_its_daemon(origins):
    with daemon(origins) as (process, server):
        assert soon(lambda: listens(origins))
        os.kill(server, signal.SIGTERM)
        assert soon(lambda: not listens(origins)), "it serves no more"
        assert origins.folder.exists(), "the daemon has use for the folder"
        process.kill()
        assert soon(lambda: not origins.folder.exists())
        assert soon(lambda: not runs(server))


def test_a_server_whose_port_is_taken_deletes_the_folder(origins):
    with socket.create_server((HOST, origins.port)), daemon(origins) as (process, server):
        assert server
        assert not soon(lambda: not runs(server), 3.0)
        process.kill()
        assert soon(lambda: not origins.folder.exists())


def test_a_folder_that_is_in_use_stays(tmp_path):
    folder = tmp_path / "kept"
    kept_folder.use(folder)
    assert not kept_folder.deleted(folder)
    assert folder.exists()
    kept_folder.leave()
    assert kept_folder.deleted(folder)
    assert not folder.exists()
    assert kept_folder.deleted(folder), "it is gone already"


def test_a_folder_that_was_deleted_meanwhile_is_made_again(tmp_path, monkeypatch):
    folder, original, times = tmp_path / "kept", kept_folder.fcntl.flock, []

    def late(handle: int, how: int) -> None:
        original(handle, how)
        if not times:
            times.append(1)
            (folder / kept_folder.USERS).unlink()
            folder.rmdir()

    monkeypatch.setattr(kept_folder.fcntl, "flock", late)
    kept_folder.use(folder)
    assert not kept_folder.deleted(folder)
    kept_folder.leave()
