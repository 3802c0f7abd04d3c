"""The server of a machine that gives others the segments that were written there. It speaks Arrow Flight.

    python -m penstock.channels.segment_server HOST

The parent of an executor's Python workers starts it, one for a machine: whoever holds the lock. When the last of these
parents on the machine has ended, the server deletes what the machine has kept, and ends. A request names rows of
segments, and groups of keys: only these go over the link.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

import pyarrow as pa

from penstock.channels import kept_folder
from penstock.channels.keys import slice_of_groups
from penstock.channels.origins import Origins
from penstock.channels.segments import SegmentStore
from penstock.errors import PenstockError

#: Rows of a piece go in parts of about this size, so that who waits sees that they come, also on a slow link.
PART_BYTES = 1 << 16
ANSWER = pa.schema([("piece", pa.int32()), ("rows", pa.large_binary())])
#: How often the server looks whether it has to end, and how often once it was told to.
ALIVE_SECONDS, TOLD_SECONDS = 0.2, 0.05
#: A worker that outlives its parent for a moment may write to the folder once more.
LAST_SECONDS = 2.0


def parts(store_of: Callable[[str], SegmentStore], pieces: list[list[Any]]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """What a request is answered with: which of its pieces, and rows of it."""
    for index, (path, start, stop, first_group, stop_group) in enumerate(pieces):
        for batch in store_of(path).read(path, start, stop):
            chosen = slice_of_groups(batch, first_group, stop_group) if stop_group else batch
            step = max(1, chosen.num_rows * PART_BYTES // max(chosen.nbytes, 1))
            for first in range(0, chosen.num_rows, step):
                yield index, chosen.slice(first, step)


def packed(index: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as bytes that say themselves what they are: pieces of one request may have different columns, and
    dictionaries of their own."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    content = sink.getvalue()
    offsets = pa.py_buffer(b"\0" * 8 + len(content).to_bytes(8, "little"))
    # Not pa.array([bytes]): that would copy once more.
    return pa.record_batch(
        [pa.array([index], pa.int32()), pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, content])],
        schema=ANSWER,
    )


def near(origins: Origins, root: str, path: str) -> SegmentStore:
    """Where a segment is read here: from the copy that the machine kept because the store is far, or from the store."""
    kept = SegmentStore(str(origins.folder))
    return kept if kept.has(path) else SegmentStore(root)


def serve(host: str, origins: Origins) -> Any:
    """A server that listens and answers; `shutdown` ends it."""
    from pyarrow import flight

    class Server(flight.FlightServerBase):  # type: ignore[misc]
        def do_get(self, context: Any, ticket: Any) -> Any:
            asked = json.loads(ticket.ticket)
            if not hmac.compare_digest(str(asked["token"]), origins.token):
                raise flight.FlightUnauthenticatedError("the token is not that of this run")
            return flight.GeneratorStream(ANSWER, self._answer(asked["root"], asked["pieces"]))

        def _answer(self, root: str, pieces: list[list[Any]]) -> Iterator[pa.RecordBatch]:
            try:
                for index, rows in parts(lambda path: near(origins, root, path), pieces):
                    yield packed(index, rows)
            except PenstockError as error:
                raise flight.FlightServerError(str(error)) from error

    address = _to_listen_on(host)
    return Server(f"grpc://{address}:{origins.port}")


def _to_listen_on(host: str) -> str:
    """The address to listen on. Where the machine's own name means only itself, as Debian's does (127.0.1.1), others
    find the machine by another address: the server listens on all of them."""
    if host == "localhost":  # so it was wanted
        return host
    with suppress(ValueError):
        return f"[{host}]" if ip_address(host).version == 6 else host
    with suppress(OSError):
        found = {ip_address(each[4][0]) for each in socket.getaddrinfo(host, None, socket.AF_INET)}
        if found and all(each.is_loopback for each in found):
            return "0.0.0.0"  # noqa: S104 - the token protects it
    return host


def start_one_for_the_machine(host: str, origins: Origins) -> subprocess.Popen[bytes] | None:
    """Start the server unless this machine has one; the lock is the server's as long as it lives. The server, whoever
    has started it, lives as long as this process does."""
    kept_folder.use(origins.folder)
    lock = os.open(origins.folder / "server.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return subprocess.Popen(
            [sys.executable, "-m", "penstock.channels.segment_server", host],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            pass_fds=(lock,),
            start_new_session=True,  # PySpark's daemon collects the children of its own group
        )
    except BlockingIOError:
        return None
    finally:
        os.close(lock)


def main(host: str) -> int:
    origins = Origins.of_environment(os.environ)
    if origins is None:
        return 2
    told = list[int]()
    # The folder has to be deleted all the same, after the last of its users. No event: who sets one may be the one who
    # waits for it.
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    users = kept_folder.Users(origins.folder)
    server = None
    try:
        server = serve(host, origins)
    except (OSError, ImportError, pa.ArrowException) as problem:
        sys.stderr.write(f"penstock: {host} cannot serve segments on port {origins.port}: {problem}\n")
    while users.remain():
        if told:
            _end(server)
            server = None
        time.sleep(TOLD_SECONDS if told else ALIVE_SECONDS)
    _end(server)
    users.delete_folder()
    last = time.monotonic() + LAST_SECONDS
    while not told and time.monotonic() < last:
        time.sleep(ALIVE_SECONDS)
    kept_folder.delete_leftovers(origins.folder)
    return 0


def _end(server: Any) -> None:
    """End the server, if there is one. A server of a new parent needs its port. Readers that are slow are not waited
    for."""
    if server is not None:
        threading.Thread(target=server.shutdown, daemon=True).start()


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stderr.flush()
    os._exit(code)  # not sys.exit: it would wait for the threads that still answer slow readers
