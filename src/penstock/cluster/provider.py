"""What the engine asks of a cluster, whatever kind it is: start it, connect to it, know its slots, stop it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.cluster.model import Cluster, ComingMachines, Machine, Slot
from penstock.cluster.readings import MachineReading
from penstock.errors import PenstockError

#: Where the driver listens when everything runs on this computer.
LOOPBACK = "127.0.0.1"
#: The settings of Spark that have the options of its JVMs.
DRIVER_JAVA, EXECUTOR_JAVA = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"


@dataclass(frozen=True)
class Executor:
    """A Spark executor as Spark reports it; `cores` are its task threads, not CPU cores."""

    id: str
    host: str
    cores: int


ListExecutors = Callable[[], list[Executor]]


class Executors(Protocol):
    """What Spark itself can be asked about executors, once there is a session."""

    def executors(self) -> list[Executor]:
        """The live executors; the driver is none of them."""

    def request_executors(self, total: int) -> None:
        """Tell the cluster's manager how many executors the application wants in all."""

    def decommission(self, ids: Collection[str]) -> None:
        """Have these executors finish their tasks, hand over what they hold, and go. Other executors come in their
        place unless fewer are wanted in all."""


class Provider(Protocol):
    """A cluster with a life cycle. `bind` may be called again whenever machines or executors have changed."""

    @property
    def master_url(self) -> str:
        """What Spark connects to; known once `start` has returned."""
        ...

    @property
    def cluster(self) -> Cluster:
        """The machines and slots as known so far."""
        ...

    @property
    def apart(self) -> bool:
        """Whether every machine has a link of its own, over which rows from other machines should come."""
        ...

    def start(self) -> None:
        """Start the processes of this cluster, if it has any of its own."""
        ...

    def driver_environment(self) -> dict[str, str]:
        """Environment variables that must be set before the driver's JVM starts."""
        ...

    def spark_conf(self) -> dict[str, str]:
        """The Spark settings this cluster needs."""
        ...

    def java_options(self) -> dict[str, str]:
        """Options of Java that stand before the user's own, by the Spark setting that has them."""
        ...

    def bind(self, list_executors: ListExecutors, deadline_seconds: float) -> dict[Slot, Executor | None]:
        """Wait for the executors and say which slot is which; None where slots are only logical."""
        ...

    def bound(self, list_executors: ListExecutors) -> dict[Slot, Executor | None]:
        """Which slot is which executor right now; a slot without one is left out."""
        ...

    def coming(self) -> ComingMachines:
        """The machines that could come now, and why no more than these."""
        ...

    def upcoming(self, count: int) -> tuple[Machine, ...]:
        """The machines that `add_machine` would give next; FIXED_MACHINES where the cluster cannot get any."""
        ...

    def add_machine(self, machine: Machine, spark: Executors, idle: Collection[Slot] = ()) -> None:
        """Ask for a machine, without waiting for it. Nothing is placed on the slots that are `idle`."""
        ...

    def arrived(self, machine: Machine) -> Mapping[Slot, Slot] | None:
        """The slots of a machine that was asked for, as they were planned and as they came; None while the machine is
        not all there, or if nobody asked for it. An error if the machine cannot come any more."""
        ...

    def slots_of(self, name: str) -> frozenset[Slot]:
        """The slots that go when this machine is removed; none if there is no such machine. A machine that was added is
        named as it was planned, and its slots are those that came for it."""
        ...

    def remove_machine(self, name: str, spark: Executors) -> None:
        """Decommission a machine and wait until it is gone. Nothing should be placed there any more. The cluster asks
        no longer for a machine that did not come."""
        ...

    def tend(self) -> list[str]:
        """Start those of this cluster's own processes again that have ended, and say in words which."""
        ...

    def readings(self) -> Mapping[str, MachineReading]:
        """What each machine has used so far; empty where the machines share what they use."""
        ...

    def stop(self) -> None:
        """End every process this cluster started and wait for their end; a second call does nothing."""
        ...


def own_driver_environment(host: str = LOOPBACK) -> dict[str, str]:
    """The driver's environment where driver and executors share this computer and this Python."""
    # Without SPARK_LOCAL_IP Spark announces whatever the host name resolves to, which may be unreachable.
    return {"SPARK_LOCAL_IP": host, "PYSPARK_PYTHON": sys.executable}


def own_driver_conf(host: str = LOOPBACK) -> dict[str, str]:
    """The driver's addresses where driver and executors share this computer."""
    return {"spark.driver.host": host, "spark.driver.bindAddress": host}


def require_at_least_one(**counts: int) -> None:
    """Refuse a cluster in which one of these numbers is below 1."""
    for what, count in counts.items():
        if count < 1:
            raise PenstockError("BAD_CLUSTER", f"A cluster cannot have {what}={count}.", f"Give {what} of at least 1.")


def cluster_failed(what: str, log_tail: str = "") -> PenstockError:
    """CLUSTER_FAILED, with the end of the log that tells why."""
    log = f" The end of its log:\n{log_tail}\n" if log_tail else ""
    return PenstockError("CLUSTER_FAILED", f"{what}{log}", "See the log for the cause, then start again.")


def no_such_machine(name: str, known: Collection[str]) -> PenstockError:
    """NO_SUCH_MACHINE, with the names of the machines that there are."""
    names = ", ".join(known) or "none"
    return PenstockError("NO_SUCH_MACHINE", f"there is no machine {name}.", f"The machines are: {names}.")
