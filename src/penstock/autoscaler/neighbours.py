"""The neighbours of a topology: the other topologies on its cluster. One of them all changes at a time, and each sees
what the others use. `Alone` is for a topology that has its cluster for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from penstock.channels.leases import Neighbour
from penstock.errors import PenstockError
from penstock.monitor.snapshot import Snapshot


@dataclass(frozen=True)
class Change:
    """A change that needs the lease of the cluster."""

    #: Is told why the change waits, again and again.
    waits: Callable[[str], object]
    #: Waits so many seconds, and says whether nobody wants the change any more.
    given_up: Callable[[float], bool]
    #: Has the change that is under way rolled back; False if none is.
    stop: Callable[[], bool]


class Neighbours(Protocol):
    """What one topology asks of the line that it shares with its neighbours. Any thread may read."""

    def lease(self, change: Change) -> AbstractContextManager[None]:
        """The block is entered when this topology has the lease, or when the change is given up. Until the block is
        left, no neighbour changes anything. If the lease is lost in the middle, the change is stopped."""

    @property
    def lost(self) -> PenstockError | None:
        """Why this topology may not go on with its change; None if it may."""

    @property
    def seen(self) -> tuple[Neighbour, ...] | None:
        """The neighbours as they were seen last; None if the cluster is not shared."""


class Alone:
    """Implements `Neighbours` for a topology that has none: it always has the lease."""

    lost = None
    seen = None

    def lease(self, _: Change) -> AbstractContextManager[None]:
        return nullcontext()


ALONE = Alone()


def cores_used(snapshot: Snapshot) -> dict[str, float]:
    """The cores that a topology uses, by machine: the CPU time of its instances. An instance whose CPU time is not
    measured yet may use its whole slot, so it counts with all cores of it."""
    used = dict.fromkeys(snapshot.cluster.names, 0.0)
    for slot in snapshot.placement.slots:
        known = snapshot.slots.get(slot.name)
        share = None if known is None else known.cpu_utilisation
        used[slot.machine] = used.get(slot.machine, 0.0) + slot.cores * (1.0 if share is None else share)
    return used


def cores_of_all(neighbours: Iterable[Neighbour]) -> Mapping[str, float]:
    """The cores that all neighbours together use, by machine."""
    total: dict[str, float] = {}
    for one in neighbours:
        for machine, cores in one.uses.items():
            total[machine] = total.get(machine, 0.0) + cores
    return total
