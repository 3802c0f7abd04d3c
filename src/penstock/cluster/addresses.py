"""The addresses of a standalone cluster's machines: each has a loopback address of its own, and is named by it."""

from __future__ import annotations

import socket
import sys
from collections.abc import Collection

from penstock.errors import PenstockError

#: The first machine is 127.0.0.2: the driver and the master have 127.0.0.1.
FIRST = 2
LAST = 254
SUBNET = "127.0.0."


def free(count: int, taken: Collection[str], subnet: str = SUBNET) -> list[str]:
    """The first addresses, so many, that no machine has."""
    addresses = [f"{subnet}{last}" for last in range(FIRST, LAST + 1)]
    found = [address for address in addresses if address not in taken]
    if len(found) < count:
        raise PenstockError(
            "BAD_CLUSTER",
            f"A cluster on one computer has at most {len(addresses)} machines.",
            "Ask for fewer machines.",
        )
    return found[:count]


def order(address: str) -> int:
    """By what machines are sorted: 127.0.0.10 comes after 127.0.0.9."""
    return int(address.rpartition(".")[2])


def require(host: str) -> None:
    """Refuse an address that no process can listen on; on macOS only 127.0.0.1 is there until more are added."""
    try:
        with socket.socket() as probe:
            probe.bind((host, 0))
    except OSError as problem:
        hint = "Use one machine less, the local cluster, or attach to a master on real hosts."
        if sys.platform == "darwin":
            hint = f"Add the address with: sudo ifconfig lo0 alias {host} up (once for each machine, until a restart)."
        raise PenstockError("BAD_CLUSTER", f"Address {host} for a machine cannot be used: {problem}.", hint) from None
