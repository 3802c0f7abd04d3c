"""The control interface while it is open: a socket, a thread that serves it, and an entry where clients find it."""

from __future__ import annotations

import ipaddress
import logging
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import uvicorn

from penstock.api.discovery import Entry, Running, starting
from penstock.api.interface import Steerable, interface
from penstock.cluster.lab.networks import outside
from penstock.errors import PenstockError
from penstock.logs import LOGGER
from penstock.settings import Settings

#: How many seconds requests that still wait for something get when the interface is closed.
GRACE = 2
START_SECONDS = 10.0


class _IntoPenstocksLog(logging.Handler):
    """Problems of the web server go to Penstock's log, not to the terminal of whoever runs the topology."""

    def emit(self, record: logging.LogRecord) -> None:
        LOGGER.handle(record)


_OF_THE_SERVER = logging.getLogger("uvicorn.error")
_OF_THE_SERVER.addHandler(_IntoPenstocksLog())
_OF_THE_SERVER.propagate = False


@contextmanager
def served(
    steering: Steerable, topology: str, state: str, settings: Settings, entry: Entry | None = None
) -> Iterator[Running]:
    """Serve the interface until the block is left. Clients find it under `entry`, which the topology has from its
    start, or under a new entry."""
    token = secrets.token_urlsafe(32)
    with outside():  # a driver in a lab is steered from this computer all the same
        listener = _listening(settings.control_host, settings.control_port)
    with listener:
        config = uvicorn.Config(
            interface(steering, token),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=GRACE,
            server_header=False,
            ws="none",
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), name="penstock-control", daemon=True)
        thread.start()
        try:
            _await_start(server, thread)
            host, port = listener.getsockname()[:2]
            url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
            with ExitStack() as until_the_end:
                entry = entry or until_the_end.enter_context(starting(topology))
                until_the_end.callback(entry.ending)
                yield entry.opened(url, token, state)
        finally:
            server.should_exit = True
            thread.join()


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        raise PenstockError(
            "BAD_SETTING",
            f'control_host="{host}" is not an IP address.',
            "Give an IP address: 127.0.0.1 is this computer.",
        ) from None
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise PenstockError(
            "CONTROL_FAILED",
            f"the control interface cannot listen on {host}, port {port}: {error}.",
            "Choose another port with --set control_port=P, or 0 for any that is free.",
        ) from None
    return listener


def _await_start(server: uvicorn.Server, thread: threading.Thread) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise PenstockError(
                "CONTROL_FAILED", "the control interface did not start.", "Run with --set control=off to do without it."
            )
        time.sleep(0.005)
