"""Which topologies are neighbours: those that name the same master, and the same database to agree in. Without a
database of the user's, the topologies of one user on one computer agree in a file beside their entries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from penstock.api.discovery import registry_folder
from penstock.autoscaler.neighbours import ALONE, Neighbours
from penstock.autoscaler.shared_cluster import SharedCluster
from penstock.channels.leases import Leases
from penstock.cluster.choice import ATTACHED, ClusterChoice
from penstock.errors import PenstockError
from penstock.logs import traced
from penstock.running import RunningTopology
from penstock.settings import Settings

AUTO, OFF = "auto", "off"
FILE = "neighbours.sqlite"


@contextmanager
def leases_of(choice: ClusterChoice, topology: str, settings: Settings) -> Iterator[Leases | None]:
    """The leases that a topology on this cluster asks for; None if the cluster is not shared. A database that cannot be
    used is refused here, before Spark is started."""
    if choice.kind != ATTACHED or settings.neighbours == OFF:
        yield None
        return
    url = f"sqlite:///{registry_folder() / FILE}" if settings.neighbours == AUTO else settings.neighbours
    leases = Leases.open(url, cluster_name(choice.master or ""), topology)
    try:
        yield leases
    finally:
        with traced("the neighbours could not be told of the end", PenstockError):
            leases.close()


def neighbours_of(run: RunningTopology, leases: Leases | None) -> AbstractContextManager[Neighbours]:
    """The neighbours of a running topology, until the block is left."""
    return nullcontext(ALONE) if leases is None else SharedCluster(run, leases)


def cluster_name(master: str) -> str:
    """The name of a cluster, from the URL of its master. Several masters of one cluster may be in any order."""
    scheme, found, hosts = master.strip().rstrip("/").lower().partition("://")
    return scheme + found + ",".join(sorted(hosts.split(",")))
