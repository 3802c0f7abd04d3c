"""The `attached` cluster: someone else runs its Spark master, and its executors say which machines and slots it has."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from penstock.cluster import class_archive
from penstock.cluster.binding import cluster_of, discover_slots, start_order
from penstock.cluster.java import check_java
from penstock.cluster.model import Cluster, ComingMachines, Machine, Slot
from penstock.cluster.provider import (
    DRIVER_JAVA,
    Executor,
    Executors,
    ListExecutors,
    cluster_failed,
    no_such_machine,
    require_at_least_one,
)
from penstock.cluster.readings import MachineReading
from penstock.errors import PenstockError, Refusal

#: Seconds between two looks at the executors.
POLL_SECONDS = 0.1
#: How many seconds executors may take to leave.
DRAIN_SECONDS = 60.0
#: The most machines that can be asked for at once.
AT_ONCE = 256
MORE_AT_ONCE = Refusal(
    "FIXED_MACHINES", f"at most {AT_ONCE} machines can be asked for at once.", "Ask for fewer, and for more later."
)


@dataclass(frozen=True)
class _Asked:
    """A machine that was asked for: the slots that are not for it, how many it is to have, and those of them that were
    there already with nothing placed on them."""

    others: frozenset[Slot]
    slots: int
    idle: frozenset[Slot]

    @property
    def requested(self) -> int:
        """How many executors the cluster's manager was asked for."""
        return self.slots - len(self.idle)


class AttachedCluster:
    """A machine is a host, named by it; a slot is an executor there, with `cores` as its CPU share.

    Machines are added by asking the cluster's manager for more executors: it alone decides on which hosts. So a machine
    that is still to come is planned as `new-1`, `new-2`, ...; its slots are those that came, wherever they are.
    Executors on which nothing is placed (somebody has added a machine) are taken in before more are asked for.

    The manager is told a total. That is counted by what is wanted, never by what is there: an executor that is lost is
    being replaced, and must go on being replaced. The manager may replace it on another host: the lost slot is then
    dropped.
    """

    def __init__(self, master_url: str, cores: int, settle_seconds: float = 2.0) -> None:
        require_at_least_one(cores=cores)
        if master_url.startswith("local"):
            raise PenstockError(
                "BAD_CLUSTER",
                f"{master_url} is not a master to attach to: it has no executors.",
                "Give the URL of a running master (spark://..., k8s://..., yarn), or choose the local cluster.",
            )
        self.master_url = master_url
        self._cores = cores
        self._settle_seconds = settle_seconds
        self._bound: dict[Slot, Executor] = {}
        #: Slots whose executors are gone without having been asked to: others come in their place.
        self._lost: set[Slot] = set()
        #: Slots whose executors have been sent away and may still be there.
        self._leaving: frozenset[Slot] = frozenset()
        #: How many executors there are to be, with those that are still to come.
        self._wanted = 0
        #: Names that were ever given, and the machines that were asked for and are not gone again.
        self._names: set[str] = set()
        self._asked: dict[str, _Asked] = {}
        self._came: dict[str, Mapping[Slot, Slot]] = {}
        self._lock = threading.RLock()

    @property
    def cluster(self) -> Cluster:
        with self._lock:
            return cluster_of(self._bound)

    @property
    def apart(self) -> bool:
        return False

    def start(self) -> None:
        check_java()

    def driver_environment(self) -> dict[str, str]:
        # Addresses and the Python of remote machines are the user's to say: SPARK_LOCAL_IP, PYSPARK_PYTHON.
        return {}

    def java_options(self) -> dict[str, str]:
        return {DRIVER_JAVA: class_archive.java_options()}

    def spark_conf(self) -> dict[str, str]:
        # Executors that leave hand over their shuffle files, and do so at once (see StandaloneCluster).
        return {
            "spark.storage.decommission.enabled": "true",
            "spark.storage.decommission.replicationReattemptInterval": "1s",
        }

    def bind(self, list_executors: ListExecutors, deadline_seconds: float) -> dict[Slot, Executor | None]:
        executors = self._settled(list_executors, deadline_seconds)
        with self._lock:
            self._wanted = max(self._wanted, len(executors))
        return self.bound(lambda: list(executors))

    def bound(self, list_executors: ListExecutors) -> dict[Slot, Executor | None]:
        executors = list_executors()
        with self._lock:
            before, self._bound = self._bound, discover_slots(executors, self._bound, self._cores)
            self._lost = (self._lost | before.keys()) - self._bound.keys() - self._leaving
            self._drop_replaced()
            return dict(self._bound)

    def _drop_replaced(self) -> None:
        """No more slots are lost than executors are missing: the others were replaced on other hosts."""
        missing = max(self._wanted - len(self._bound), 0)
        replaced = set(sorted(self._lost)[missing:])
        self._lost -= replaced
        self._drop_from_machines(replaced)

    def coming(self) -> ComingMachines:
        with self._lock:
            # The next machine is planned like most of those that are there.
            sizes = Counter(len(machine.slots) for machine in self.cluster.machines)
            slots = max(sizes, key=lambda size: (sizes[size], -size), default=1)
            first = len(self._names) + 1
            names = [f"new-{first + i}" for i in range(AT_ONCE)]
            spare = tuple(self._idle(self._bound.keys()))
            return ComingMachines(Cluster.of(names, slots, self._cores).machines, spare, MORE_AT_ONCE)

    def upcoming(self, count: int) -> tuple[Machine, ...]:
        return self.coming().first(count)

    def add_machine(self, machine: Machine, spark: Executors, idle: Collection[Slot] = ()) -> None:
        present = len(spark.executors())
        with self._lock:
            self._names.add(machine.name)
            spare = self._idle(idle)[: len(machine.slots)]
            others = (self._bound.keys() | self._taken() | self._lost) - set(spare)
            asked = _Asked(frozenset(others), len(machine.slots), frozenset(spare))
            self._asked[machine.name] = asked
            # More are there than were wanted if somebody has added machines: those are wanted too.
            total = self._wanted = max(self._wanted, present) + asked.requested
        if asked.requested:  # if not: a total is also a limit, and no more machines could come by themselves
            spark.request_executors(total)

    def _idle(self, unused: Collection[Slot]) -> list[Slot]:
        """Which of these slots, on which nothing is placed, the next machines take in; the first come first."""
        with self._lock:
            free = self._bound.keys() & set(unused) - self._taken()
            return sorted(free, key=lambda slot: start_order(self._bound[slot]))

    def arrived(self, machine: Machine) -> Mapping[Slot, Slot] | None:
        with self._lock:
            if machine.name not in self._asked:
                return None
            came = self._came.get(machine.name, {})
            # All slots are awaited at first; later, those whose executors were replaced on other hosts.
            awaited = sorted(set(machine.slots) - came.keys())
            idle = self._asked[machine.name].idle
            fresh = self._fresh(machine.name) - set(came.values())
            if len(fresh) < len(awaited):
                return None
            in_order = sorted(fresh, key=lambda slot: (slot not in idle, slot))
            came = self._came[machine.name] = {**came, **dict(zip(awaited, in_order, strict=False))}
            return came

    def _taken(self) -> set[Slot]:
        """The slots that count for a machine that was asked for."""
        came = {slot for came in self._came.values() for slot in came.values()}
        return came.union(*(asked.idle for asked in self._asked.values()))

    def _fresh(self, name: str) -> set[Slot]:
        """The slots of a machine that was asked for: those that were idle, and those that came since and count for no
        other machine."""
        asked = self._asked[name]
        return (self._bound.keys() - asked.others - self._taken()) | (self._bound.keys() & asked.idle)

    def slots_of(self, name: str) -> frozenset[Slot]:
        with self._lock:
            if name not in self._asked:
                return frozenset(slot for slot in self._bound if slot.machine == name)
            # Slots that were there before stay, also if the change that took them in is undone.
            slots = self._came[name].values() if name in self._came else self._fresh(name)
            return frozenset(slots) - self._asked[name].idle

    def remove_machine(self, name: str, spark: Executors) -> None:
        present = len(spark.executors())
        with self._lock:
            # Lost slots of the machine go too: no executor is to come in their place any more.
            slots = self.slots_of(name) | {slot for slot in self._lost if slot.machine == name}
            leaving = {self._bound[slot].id for slot in slots if slot in self._bound}
            asked = self._asked.get(name)
            if not leaving and asked is None:
                raise no_such_machine(name, self.cluster.names)
            # A machine that did not come, or not all of it, is waited for no longer.
            fewer = asked.requested if asked is not None and name not in self._came else len(slots)
            total = self._wanted = max(self._wanted, present) - fewer
            self._forget(name, slots)
            self._leaving = slots
            self._lost -= slots
        try:
            if fewer:
                # This comes first: or else the cluster's manager starts other executors in their place.
                spark.request_executors(total)
            if leaving:
                self._decommission(name, leaving, spark)
            self.bound(spark.executors)
        finally:
            self._leaving = frozenset()

    def _forget(self, name: str, slots: frozenset[Slot]) -> None:
        """Forget a machine, by the name under which it was planned or by that of its host; its slots may come again."""
        gone = {one for one, came in self._came.items() if slots and set(came.values()) <= slots}
        for one in gone | {name}:
            self._asked.pop(one, None)
            self._came.pop(one, None)
        self._drop_from_machines(slots)  # of a machine on several hosts, the other slots are left

    def _drop_from_machines(self, slots: Collection[Slot]) -> None:
        for one, asked in self._asked.items():
            self._asked[one] = replace(asked, idle=asked.idle.difference(slots))
            if one in self._came:
                self._came[one] = {old: came for old, came in self._came[one].items() if came not in slots}

    def _decommission(self, name: str, leaving: set[str], spark: Executors) -> None:
        spark.decommission(leaving)
        deadline = time.monotonic() + DRAIN_SECONDS
        while leaving & {executor.id for executor in spark.executors()}:
            if time.monotonic() > deadline:
                raise cluster_failed(f"The executors of {name} did not leave within {DRAIN_SECONDS:g} s.")
            time.sleep(POLL_SECONDS)

    def tend(self) -> list[str]:
        return []  # the processes of the cluster are someone else's

    def readings(self) -> Mapping[str, MachineReading]:
        return {}

    def stop(self) -> None:
        """Nothing to end: the cluster belongs to someone else."""

    def _settled(self, list_executors: ListExecutors, deadline_seconds: float) -> frozenset[Executor]:
        """The executors, once there are some and their set has not changed for a moment; if no time is given, those
        that are there now."""
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
