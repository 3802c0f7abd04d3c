"""The `local` cluster: everything runs in the driver's JVM, on one machine, with slots that are only names."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.cluster import class_archive
from penstock.cluster.java import check_java
from penstock.cluster.model import Cluster, ComingMachines, Machine, Slot
from penstock.cluster.provider import (
    DRIVER_JAVA,
    Executor,
    Executors,
    ListExecutors,
    own_driver_conf,
    own_driver_environment,
    require_at_least_one,
)
from penstock.cluster.readings import MachineReading
from penstock.errors import Refusal

#: Why no machine can come or go.
ONE_MACHINE = Refusal(
    "FIXED_MACHINES", "a local cluster is one machine.", "Choose a standalone cluster, or attach to a master."
)


class LocalCluster:
    """One machine named `local` without processes of its own; nothing can be placed, so no slot has an executor."""

    def __init__(self, slots: int, cores: int, task_threads: int) -> None:
        require_at_least_one(slots=slots, cores=cores, task_threads=task_threads)
        self.cluster = Cluster.of(["local"], slots, cores)
        self.master_url = f"local[{task_threads}]"

    @property
    def apart(self) -> bool:
        return False

    def start(self) -> None:
        check_java()

    def driver_environment(self) -> dict[str, str]:
        return own_driver_environment()

    def spark_conf(self) -> dict[str, str]:
        # Loopback is open to every user of this computer; Spark makes up a secret for its one process.
        return own_driver_conf() | {"spark.authenticate": "true"}

    def java_options(self) -> dict[str, str]:
        return {DRIVER_JAVA: class_archive.java_options()}

    def bind(self, list_executors: ListExecutors, deadline_seconds: float) -> dict[Slot, Executor | None]:
        return dict.fromkeys(self.cluster.slots)

    def bound(self, list_executors: ListExecutors) -> dict[Slot, Executor | None]:
        return dict.fromkeys(self.cluster.slots)

    def coming(self) -> ComingMachines:
        return ComingMachines(refusal=ONE_MACHINE)

    def upcoming(self, count: int) -> tuple[Machine, ...]:
        return self.coming().first(count)

    def add_machine(self, machine: Machine, spark: Executors, idle: Collection[Slot] = ()) -> None:
        raise ONE_MACHINE.as_error()

    def arrived(self, machine: Machine) -> Mapping[Slot, Slot] | None:
        return None

    def slots_of(self, name: str) -> frozenset[Slot]:
        return frozenset()

    def remove_machine(self, name: str, spark: Executors) -> None:
        raise ONE_MACHINE.as_error()

    def tend(self) -> list[str]:
        return []

    def readings(self) -> Mapping[str, MachineReading]:
        return {}

    def stop(self) -> None:
        """Nothing to end: the driver's JVM belongs to the session."""
