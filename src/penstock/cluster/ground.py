"""Where the processes of a standalone cluster run: on loopback addresses of this computer, or in a lab (lab/)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from penstock.cluster import addresses
from penstock.cluster.provider import LOOPBACK
from penstock.cluster.readings import MachineReading


class Ground(Protocol):
    """Makes and unmakes what a machine is before Spark runs on it."""

    @property
    def driver_host(self) -> str:
        """The address of the driver and the master."""

    @property
    def apart(self) -> bool:
        """Whether every machine has a link of its own."""

    def open(self, machines: int) -> None:
        """Make what all machines need. It raises, before it has made anything, if these machines cannot be."""

    def free(self, taken: Collection[str]) -> list[str]:
        """The addresses that no machine has, in the order in which machines get them."""

    def settle(self, name: str) -> None:
        """Make a machine, so that a worker can be started in it."""

    def leave(self, name: str) -> None:
        """Unmake a machine whose processes have ended."""

    def within(self, name: str) -> AbstractContextManager[None]:
        """Processes that are started in this block run in that machine; the driver's host is one, too."""

    def environment(self, name: str) -> Mapping[str, str]:
        """What processes of that machine must know."""

    def readings(self) -> Mapping[str, MachineReading]:
        """What the machines have used so far, where that can be said of a single machine."""

    def close(self) -> None:
        """Unmake everything; a second call does nothing."""


@dataclass(frozen=True)
class Loopback:
    """Each machine is a loopback address, which is there already. All of them share this computer."""

    driver_host: str = LOOPBACK
    apart: bool = False

    def open(self, machines: int) -> None:
        for address in addresses.first(machines, self.free(taken=())):
            addresses.require(address)

    def free(self, taken: Collection[str]) -> list[str]:
        return addresses.free(taken)

    def settle(self, name: str) -> None:
        addresses.require(name)

    def leave(self, name: str) -> None:
        """An address stays."""

    def within(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def environment(self, name: str) -> Mapping[str, str]:
        return {}

    def readings(self) -> Mapping[str, MachineReading]:
        return {}

    def close(self) -> None:
        """Nothing was made."""
