"""An `attached` cluster: a Spark master someone else runs; its machines and slots are read off its executors."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.cluster.binding import cluster_of, discover_slots
from penstock.cluster.java import check_java
from penstock.cluster.model import Cluster, Machine, Slot
from penstock.cluster.provider import (
    Executor,
    Executors,
    ListExecutors,
    cluster_failed,
    no_such_machine,
    require_at_least_one,
)
from penstock.errors import PenstockError

POLL_SECONDS = 0.1
#: How long executors that are to leave may take.
DRAIN_SECONDS = 60.0


@dataclass(frozen=True)
class _Asked:
    """A machine that was asked for: the slots there were before, and how many it is to have."""

    before: frozenset[Slot]
    slots: int


class AttachedCluster:
    """A machine is a host, named by it; a slot is an executor there, with `cores` as its CPU share.

    Machines are added by asking the cluster's manager for more executors: it alone decides on which hosts. So a machine
    that is still to come is planned as `new-1`, `new-2`, ...; its slots are those that came, wherever they are.
    """

    def __init__(self, master_url: str, cores: int, settle_seconds: float = 2.0) -> None:
        require_at_least_one(cores=cores)
        if master_url.startswith("local"):
            raise PenstockError(
                "BAD_CLUSTER",
                f"{master_url} is no master to attach to: it has no executors.",
                "Give the URL of a running master (spark://..., k8s://..., yarn), or choose the local cluster.",
            )
        self.master_url = master_url
        self._cores = cores
        self._settle_seconds = settle_seconds
        self._bound: dict[Slot, Executor] = {}
        #: Names that were ever given, and the machines that were asked for and are not gone again.
        self._names: set[str] = set()
        self._asked: dict[str, _Asked] = {}
        self._came: dict[str, Mapping[Slot, Slot]] = {}
        self._lock = threading.RLock()

    @property
    def cluster(self) -> Cluster:
        with self._lock:
            return cluster_of(self._bound)

    def start(self) -> None:
        check_java()

    def driver_environment(self) -> dict[str, str]:
        # Addresses and the Python of remote machines are the user's to say: SPARK_LOCAL_IP, PYSPARK_PYTHON.
        return {}

    def spark_conf(self) -> dict[str, str]:
        # Executors that leave hand over their shuffle files, and do so at once (see StandaloneCluster).
        return {
            "spark.storage.decommission.enabled": "true",
            "spark.storage.decommission.replicationReattemptInterval": "1s",
        }

    def bind(self, list_executors: ListExecutors, deadline_seconds: float) -> dict[Slot, Executor | None]:
        executors = self._settled(list_executors, deadline_seconds)
        return self.bound(lambda: list(executors))

    def bound(self, list_executors: ListExecutors) -> dict[Slot, Executor | None]:
        executors = list_executors()
        with self._lock:
            self._bound = discover_slots(executors, self._bound, self._cores)
            return dict(self._bound)

    def upcoming(self, count: int) -> tuple[Machine, ...]:
        with self._lock:
            # A machine like most of those there are.
            sizes = Counter(len(machine.slots) for machine in self.cluster.machines)
            slots = max(sizes, key=lambda size: (sizes[size], -size), default=1)
            first = len(self._names) + 1
            return Cluster.of([f"new-{first + i}" for i in range(count)], slots, self._cores).machines

    def add_machine(self, machine: Machine, spark: Executors) -> None:
        with self._lock:
            self._names.add(machine.name)
            self._asked[machine.name] = _Asked(frozenset(self._bound) | self._taken(), len(machine.slots))
            waiting = self._waiting()
        spark.request_executors(len(spark.executors()) + waiting)

    def arrived(self, machine: Machine) -> Mapping[Slot, Slot] | None:
        with self._lock:
            if machine.name not in self._asked or machine.name in self._came:
                return self._came.get(machine.name)
            fresh = sorted(self._fresh(machine.name))
            if len(fresh) < len(machine.slots):
                return None
            came = self._came[machine.name] = dict(zip(sorted(machine.slots), fresh, strict=False))
            return came

    def _taken(self) -> set[Slot]:
        return {slot for came in self._came.values() for slot in came.values()}

    def _fresh(self, name: str) -> set[Slot]:
        """What came since a machine was asked for, and is not counted for another."""
        return set(self._bound) - self._asked[name].before - self._taken()

    def _waiting(self) -> int:
        """Slots that were asked for and have not come."""
        return sum(asked.slots for name, asked in self._asked.items() if name not in self._came)

    def slots_of(self, name: str) -> frozenset[Slot]:
        with self._lock:
            if name in self._came:
                return frozenset(self._came[name].values())
            if name in self._asked:
                return frozenset(self._fresh(name))
            return frozenset(slot for slot in self._bound if slot.machine == name)

    def remove_machine(self, name: str, spark: Executors) -> None:
        with self._lock:
            leaving = {self._bound[slot].id for slot in self.slots_of(name) if slot in self._bound}
            never_came = name in self._asked and name not in self._came
            if not leaving and name not in self._asked:
                raise no_such_machine(name, self.cluster.names)
            self._asked.pop(name, None)
            self._came.pop(name, None)
        if leaving:
            self._decommission(name, leaving, spark)
        if never_came:
            # Whoever manages the cluster is no longer to look for it.
            spark.request_executors(len(spark.executors()) + self._waiting())
        self.bound(spark.executors)

    def _decommission(self, name: str, leaving: set[str], spark: Executors) -> None:
        spark.decommission(leaving)
        deadline = time.monotonic() + DRAIN_SECONDS
        while leaving & {executor.id for executor in spark.executors()}:
            if time.monotonic() > deadline:
                raise cluster_failed(f"The executors of {name} did not leave within {DRAIN_SECONDS:g} s.")
            time.sleep(POLL_SECONDS)

    def tend(self) -> list[str]:
        return []  # its processes are someone else's

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
