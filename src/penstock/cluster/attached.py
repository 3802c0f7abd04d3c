"""An `attached` cluster: a Spark master someone else runs; its machines and slots are read off its executors."""

from __future__ import annotations

import time

from penstock.cluster.binding import cluster_of, discover_slots
from penstock.cluster.java import check_java
from penstock.cluster.model import Cluster, Slot
from penstock.cluster.provider import Executor, ListExecutors, cluster_failed, require_at_least_one
from penstock.errors import PenstockError

POLL_SECONDS = 0.1


class AttachedCluster:
    """A machine is a host, named by it; a slot is an executor there, with `cores` as its CPU share."""

    def __init__(self, master_url: str, cores: int, settle_seconds: float = 2.0) -> None:
        require_at_least_one(cores=cores)
        if master_url.startswith("local"):
            raise PenstockError(
                "BAD_CLUSTER",
                f"{master_url} is no master to attach to: it has no executors.",
                "Give the URL of a running master (spark://..., k8s://..., yarn), or choose the local cluster.",
            )
        self.master_url = master_url
        self.cluster = Cluster(())
        self._cores = cores
        self._settle_seconds = settle_seconds
        self._bound: dict[Slot, Executor] = {}

    def start(self) -> None:
        check_java()

    def driver_environment(self) -> dict[str, str]:
        # Addresses and the Python of remote machines are the user's to say: SPARK_LOCAL_IP, PYSPARK_PYTHON.
        return {}

    def spark_conf(self) -> dict[str, str]:
        return {}

    def bind(self, list_executors: ListExecutors, deadline_seconds: float) -> dict[Slot, Executor | None]:
        executors = self._settled(list_executors, deadline_seconds)
        self._bound = discover_slots(executors, self._bound, self._cores)
        self.cluster = cluster_of(self._bound)
        return dict(self._bound)

    def stop(self) -> None:
        """Nothing to end: the cluster belongs to someone else."""

    def _settled(self, list_executors: ListExecutors, deadline_seconds: float) -> frozenset[Executor]:
        """The executors, once there are some and their set has not changed for a moment; with no time, as it is now."""
        deadline = time.monotonic() + deadline_seconds
        settle_seconds = min(self._settle_seconds, deadline_seconds)
        executors, since = frozenset(list_executors()), time.monotonic()
        while not executors or time.monotonic() < since + settle_seconds:
            if time.monotonic() > deadline:
                seen = f"its executors keep changing ({len(executors)} now)" if executors else "it gave no executor"
                raise cluster_failed(f"{self.master_url}: {seen} within {deadline_seconds:g} s.")
            time.sleep(POLL_SECONDS)
            latest = frozenset(list_executors())
            if latest != executors:
                executors, since = latest, time.monotonic()
        return executors
