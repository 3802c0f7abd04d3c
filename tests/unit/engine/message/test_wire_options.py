"""The options of a bundle's connection to the driver."""

from __future__ import annotations

import errno
import socket

import pytest

from penstock.engine.message import wire


def test_a_kernel_without_an_option_has_connections_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, every bundle would take the driver for gone, and its task would fail."""
    seen = []

    class Socket(socket.socket):
        def setsockopt(self, level: int, option: int, value: object, *_: object) -> None:  # type: ignore[override]
            if option == getattr(socket, "TCP_USER_TIMEOUT", -1):
                raise OSError(errno.ENOPROTOOPT, "Protocol not available")
            seen.append(option)

    with Socket() as own:
        wire.notice_a_dead_network(own)
    assert socket.SO_KEEPALIVE in seen
