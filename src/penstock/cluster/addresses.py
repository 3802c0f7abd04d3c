"""The addresses of a standalone cluster's machines: each has a loopback address of its own, and is named by it."""

from __future__ import annotations

import socket
import sys
from collections.abc import Collection, Sequence

from penstock.errors import PenstockError, Refusal

#: The first machine is 127.0.0.2: the driver and the master have 127.0.0.1.
FIRST = 2
LAST = 254
SUBNET = "127.0.0."
#: Why no more machines can come when all addresses are taken.
NO_MORE = Refusal(
    "BAD_CLUSTER", f"A cluster on one computer has at most {LAST - FIRST + 1} machines.", "Ask for fewer machines."
)


def free(taken: Collection[str], subnet: str = SUBNET) -> list[str]:
    """The addresses that no machine has, in the order in which machines get them."""
    addresses = (f"{subnet}{last}" for last in range(FIRST, LAST + 1))
    return [address for address in addresses if address not in taken]


def first(count: int, found: Sequence[str]) -> Sequence[str]:
    """The first of these addresses, so many; NO_MORE if there are fewer."""
    if count > len(found):
        raise NO_MORE.as_error()
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
