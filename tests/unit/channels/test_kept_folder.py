"""A machine keeps segments of a run until the last daemon of the run has ended there, and no longer."""

from __future__ import annotations

import json
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

import pyarrow as pa
import pytest
from pyarrow import flight

import penstock
from penstock.channels import kept_folder
from penstock.channels.origins import Origins
from penstock.channels.segment_server import _to_listen_on
from penstock.channels.segments import SegmentStore

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
        assert soon(lambda: not runs(server))


def test_a_reader_that_is_slow_does_not_keep_the_server(origins, tmp_path):
    store = SegmentStore(str(tmp_path / "store"))
    rows = pa.record_batch({"text": ["x" * 1000] * 50_000})
    written = store.write("channel", "0", [rows], rows.schema)
    ask = {"token": origins.token, "root": store.root, "pieces": [[written.path, 0, None, 0, 0]]}
    with daemon(origins) as (process, server):
        assert soon(lambda: listens(origins))
        with flight.connect(f"grpc://{HOST}:{origins.port}") as client:
            reader = client.do_get(flight.Ticket(json.dumps(ask).encode()))
            assert reader.read_chunk() is not None
            process.kill()
            assert soon(lambda: not runs(server)), "50 MB are under way, and nobody reads them"


def test_a_lock_whose_name_was_taken_away_still_counts(tmp_path):
    """Somebody clears old files of the temporary folder."""
    folder = tmp_path / "kept"
    kept_folder.use(folder)
    users = kept_folder.Users(folder)
    (folder / kept_folder.USERS).unlink()
    assert users.remain(), "who has it used it before"
    kept_folder.use(folder)
    assert users.remain(), "and who came later, too"
    kept_folder.leave()
    assert not users.remain()


def test_what_cannot_be_deleted_keeps_nobody(tmp_path, monkeypatch):
    """A network file system keeps a file under another name as long as somebody has it open."""
    folder = tmp_path / "kept"
    kept_folder.use(folder)
    users = kept_folder.Users(folder)
    kept_folder.leave()
    (folder / ".nfs1").write_bytes(b"")
    monkeypatch.setattr(Path, "rmdir", lambda self: (_ for _ in ()).throw(OSError("not empty")))
    assert not users.remain()
    users.delete_folder()
    kept_folder.delete_leftovers(folder)


def test_a_folder_that_is_in_use_stays(tmp_path):
    folder = tmp_path / "kept"
    kept_folder.use(folder)
    kept_folder.delete_leftovers(folder)
    assert folder.exists()
    kept_folder.leave()
    kept_folder.delete_leftovers(folder)
    assert not folder.exists()
    kept_folder.delete_leftovers(folder)
    assert not folder.exists(), "nor is it made for that"


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
    assert kept_folder.Users(folder).remain()
    kept_folder.leave()


def test_a_folder_that_cannot_be_made_is_an_error_and_no_endless_loop(tmp_path):
    (tmp_path / "kept").symlink_to(tmp_path / "nowhere" / "else")
    with pytest.raises(OSError, match="kept"):
        kept_folder.use(tmp_path / "kept")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.0.0.5", "10.0.0.5"),
        ("127.0.0.4", "127.0.0.4"),
        ("::1", "[::1]"),
        ("localhost", "localhost"),
        ("no.such.host.invalid", "no.such.host.invalid"),
    ],
)
def test_a_server_listens_where_others_find_its_machine(host, address):
    assert _to_listen_on(host) == address
