"""A real Redis server for tests (Debian: redis-server). It listens on this machine only."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

#: Ends the server when its standard input closes, as it does however pytest ends.
_WATCH = '"$@" </dev/null & server=$!; read -r _; kill -INT $server; wait $server'


def find_server() -> str | None:
    return shutil.which("redis-server") or shutil.which("redis-server", path="/usr/bin:/usr/local/bin:/usr/sbin")


@contextmanager
def redis_server(folder: Path, *options: str, port: int = 0) -> Iterator[str]:
    """The URL of a server that lives as long as the block. It keeps nothing on disk, unless the options say so. Where
    there is no server, or no package redis, the test is skipped."""
    pytest.importorskip("redis")
    program = find_server()
    if program is None:
        pytest.skip("no Redis server: redis-server is not in PATH (Debian: apt-get install redis-server)")
    port = port or free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder), *options]
    with (folder / "redis.log").open("wb") as log:
        watch = ["sh", "-c", _WATCH, "sh", *command]
        process = subprocess.Popen(watch, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline, (folder / "redis.log").read_text()
                time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.communicate(timeout=30)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
