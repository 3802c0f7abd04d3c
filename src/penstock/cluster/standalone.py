"""The `standalone` cluster: Penstock starts a Spark master and workers, and each worker is a machine with an address of
its own. A `lab` is the same on another ground (ground.py): there the machines are really apart."""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.cluster import addresses, daemons
from penstock.cluster.binding import assign_slots
from penstock.cluster.executor_folders import forget_gone
from penstock.cluster.ground import Ground, Loopback
from penstock.cluster.java import check_java
from penstock.cluster.model import Cluster, ComingMachines, Machine, Slot
from penstock.cluster.pages import Pages
from penstock.cluster.processes import GuardedProcess, tail
from penstock.cluster.provider import (
    DRIVER_JAVA,
    EXECUTOR_JAVA,
    Executor,
    Executors,
    ListExecutors,
    cluster_failed,
    no_such_machine,
    own_driver_conf,
    own_driver_environment,
    require_at_least_one,
)
from penstock.cluster.readings import MachineReading
from penstock.errors import PenstockError
from penstock.logs import LOGGER, delete_folder, set_aside, traced

POLL_SECONDS = 0.05
#: How many seconds the master may take to start; a few are usual.
START_SECONDS = 60.0
GRACE_SECONDS = 3.0
#: A daemon that was started again so often within so many seconds is not started again for a while.
MOST_RESTARTS, RESTART_WINDOW = 6, 60.0
#: Spark refuses less: one and a half times the 300 MB that it keeps for itself.
LEAST_MEMORY_MB = 450
#: Spark would take one of each kind for every task thread, up to 8, and start it with the connection that needs it: for
#: a slot of a core or two these are too many, and a machine that comes after an hour would still make new ones. Only
#: executors have the first two; the threads that carry blocks cannot be set for executors alone.
NETWORK_THREADS = {
    "spark.executor.rpc.io.serverThreads": "2",
    "spark.executor.rpc.io.clientThreads": "2",
    "spark.shuffle.io.serverThreads": "2",
    "spark.shuffle.io.clientThreads": "2",
}


@dataclass(frozen=True)
class Worker:
    """A machine and the process that makes it one."""

    machine: Machine
    process: GuardedProcess


@dataclass(eq=False)
class StandaloneCluster:
    """Machines 127.0.0.2, 127.0.0.3, ... with `slots` executors each; a machine is named by its address.

    `cores` is the CPU share of a slot. `task_threads_per_slot` is how many tasks Spark may run at once in an executor,
    which Spark calls cores: bundles of several operators must run side by side on a slot even where it has one core.
    """

    machines: int
    slots: int
    cores: int
    task_threads_per_slot: int
    work_dir: Path
    executor_memory_mb: int = 512
    executor_java_options: str = daemons.EXECUTOR_JVM
    ground: Ground = field(default_factory=Loopback)

    def __post_init__(self) -> None:
        require_at_least_one(
            machines=self.machines,
            slots=self.slots,
            cores=self.cores,
            task_threads_per_slot=self.task_threads_per_slot,
        )
        if self.executor_memory_mb < LEAST_MEMORY_MB:
            raise PenstockError(
                "BAD_CLUSTER",
                f"Executors cannot run with executor_memory_mb={self.executor_memory_mb}.",
                f"Spark needs at least {LEAST_MEMORY_MB}.",
            )
        self.work_dir = self.work_dir.absolute()
        self._master: GuardedProcess | None = None
        self._ports: daemons.Ports | None = None
        #: The master that is known to listen.
        self._listening: GuardedProcess | None = None
        self._pages = Pages.with_new_key()
        self._workers: dict[str, Worker] = {}
        #: Machines that are being removed: no longer part of the cluster, but processes still to be ended.
        self._leaving: dict[str, Worker] = {}
        self._bound: dict[Slot, Executor] = {}
        #: When a daemon was started again because it had ended.
        self._restarts: dict[str, list[float]] = {}
        # Machines come and go on the controller's thread while the engine reads and stops the cluster on its own.
        self._lock = threading.RLock()

    @property
    def master_url(self) -> str:
        return f"spark://{self.ground.driver_host}:{self._master_ports().service}"

    @property
    def cluster(self) -> Cluster:
        with self._lock:
            hosts = sorted(self._workers, key=addresses.order)
            return Cluster(tuple(self._workers[host].machine for host in hosts))

    @property
    def apart(self) -> bool:
        return self.ground.apart

    def start(self) -> None:
        """Start the master and, once it listens, the workers.

        It does not wait for the workers: they come up while the driver does, and `bind` waits for their executors. They
        cannot be started earlier: a worker that finds no master tries again only after 5 to 15 s.
        """
        check_java()
        self._clear_scratch()  # a driver that was killed could not delete its own
        # The notes of an earlier run's master: with them, this master would wait for workers that are gone.
        delete_folder(self.work_dir / "recovery")
        forget_gone(self.work_dir, machines=())  # all executors that have a folder now are of earlier runs
        daemons.write_conf(self.work_dir, self._pages)
        try:
            self.ground.open(self.machines)
            self._master = self._launch_master()
            self._ports = _await_ports(self._master, START_SECONDS)
            for machine in self.upcoming(self.machines):
                self.add_machine(machine)
        except BaseException:
            self.stop()
            raise

    def driver_environment(self) -> dict[str, str]:
        properties = shlex.quote(str(daemons.driver_properties(self.work_dir)))
        arguments = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
        return own_driver_environment(self.ground.driver_host) | {
            "SPARK_CONF_DIR": str(daemons.no_conf_folder(self.work_dir)),
            "PYSPARK_SUBMIT_ARGS": f"--properties-file {properties} {arguments}",
        }

    def java_options(self) -> dict[str, str]:
        options = daemons.java_options(self.work_dir)
        return {DRIVER_JAVA: options, EXECUTOR_JAVA: options}

    def spark_conf(self) -> dict[str, str]:
        return own_driver_conf(self.ground.driver_host) | {
            "spark.executor.cores": str(self.task_threads_per_slot),
            "spark.executor.memory": f"{self.executor_memory_mb}m",
            EXECUTOR_JAVA: self.executor_java_options,
            "spark.decommission.enabled": "true",
            "spark.storage.decommission.enabled": "true",
            # An executor leaves only after a second look for blocks to hand over: by default 30 s after the first.
            "spark.storage.decommission.replicationReattemptInterval": "1s",
            **NETWORK_THREADS,
        }

    def bind(self, list_executors: ListExecutors, deadline_seconds: float) -> dict[Slot, Executor | None]:
        deadline = time.monotonic() + deadline_seconds
        while True:
            bound = self.bound(list_executors)
            with self._lock:
                self._require_alive()
                if len(bound) == len(self.cluster.slots):
                    return bound
                if time.monotonic() > deadline:
                    raise self._unbound(deadline_seconds)
            time.sleep(POLL_SECONDS)

    def bound(self, list_executors: ListExecutors) -> dict[Slot, Executor | None]:
        executors = list_executors()
        with self._lock:
            self._bound = assign_slots(self.cluster, executors, self._bound)
            return dict(self._bound)

    def coming(self) -> ComingMachines:
        with self._lock:
            free = self.ground.free(taken={*self._workers, *self._leaving})
        return ComingMachines(Cluster.of(free, self.slots, self.cores).machines, refusal=addresses.NO_MORE)

    def upcoming(self, count: int) -> tuple[Machine, ...]:
        return self.coming().first(count)

    def add_machine(self, machine: Machine, spark: Executors | None = None, idle: Collection[Slot] = ()) -> None:
        """Start one more worker, without waiting for it: Spark gives the running application its executors."""
        with self._lock:
            self.ground.settle(machine.name)
            self._workers[machine.name] = Worker(machine, self._launch_worker(machine.name))

    def arrived(self, machine: Machine) -> Mapping[Slot, Slot] | None:
        with self._lock:
            worker = self._workers.get(machine.name)
            if worker is None:
                return None
            # `tend` starts a worker again that has ended, as long as that may help.
            if not worker.process.alive and not self._recent_restarts(machine.name) < MOST_RESTARTS:
                raise _ended(f"The worker of machine {machine.name}", worker.process)
            slots = {slot: slot for slot in worker.machine.slots}
            return slots if slots.keys() <= self._bound.keys() else None

    def slots_of(self, name: str) -> frozenset[Slot]:
        with self._lock:
            worker = self._workers.get(name)
            return frozenset(worker.machine.slots) if worker is not None else frozenset()

    def remove_machine(self, name: str, spark: Executors | None = None, drain_seconds: float = 30.0) -> None:
        """Decommission a machine, wait until its executors have gone, and end its worker.

        What runs there should have been placed elsewhere before: executors finish the tasks they have, within
        `drain_seconds`, and hand over their shuffle files.
        """
        with self._lock:
            if name not in self._workers:
                raise no_such_machine(name, self._workers)
            worker = self._leaving[name] = self._workers.pop(name)
        try:
            # A master or worker that does not answer cannot decommission: the machine goes all the same, and Spark runs
            # again elsewhere what it had there.
            with traced(f"{name} could not be decommissioned", OSError):
                self._drain(worker, drain_seconds)
        finally:
            worker.process.terminate(GRACE_SECONDS)
            self.ground.leave(name)
            with self._lock:
                self._leaving.pop(name, None)
                forget_gone(self.work_dir, {*self._workers, *self._leaving})

    def tend(self) -> list[str]:
        """Start a master or worker again that has ended, as the init system of a real machine would. The application
        goes on meanwhile: without its master it gets no new executors, and a lost worker's executors are lost."""
        with self._lock:
            if self._master is None or self._ports is None:
                return []
            done = []
            if not self._master.alive:
                if self._may_restart("master"):
                    done.append(
                        f"the master had ended (exit code {self._master.exit_code}), and Penstock started it again"
                    )
                    self._master.terminate(0)  # nothing is left to end but our line to its guard
                    self._master = self._launch_master(self._ports)
                return done
            if not self._master_listens(self._master):
                return []  # a worker that finds no master tries again only after 5 to 15 s
            for host, worker in self._workers.items():
                if not worker.process.alive and self._may_restart(host):
                    ended = worker.process.exit_code
                    done.append(f"the worker of {host} had ended (exit code {ended}), and Penstock started it again")
                    worker.process.terminate(0)
                    self._workers[host] = Worker(worker.machine, self._launch_worker(host))
            return done

    def _master_listens(self, master: GuardedProcess) -> bool:
        """Whether a master has said where it listens. This is asked several times a second, and a log only grows: of a
        master that has said it once, it is not read again."""
        if self._listening is not master and daemons.Ports.read(master.log.read_text(errors="replace")) is not None:
            self._listening = master
        return self._listening is master

    def _may_restart(self, name: str) -> bool:
        """Whether a daemon may be started again: one that ends as soon as it is started has a reason that a restart
        does not mend."""
        if self._recent_restarts(name) >= MOST_RESTARTS:
            return False
        self._restarts[name].append(time.monotonic())
        return True

    def _recent_restarts(self, name: str) -> int:
        since = time.monotonic() - RESTART_WINDOW
        recent = self._restarts[name] = [at for at in self._restarts.get(name, ()) if at > since]
        return len(recent)

    def stop(self) -> None:
        with self._lock:
            processes = [worker.process for worker in [*self._workers.values(), *self._leaving.values()]]
            if self._master:
                processes.append(self._master)
            for process in processes:
                process.ask_to_end(GRACE_SECONDS)
            for process in processes:
                process.terminate(GRACE_SECONDS)
            self._workers.clear()
            self._bound.clear()
            self._master = self._ports = self._listening = None
            if processes:
                self._clear_scratch()
            self.ground.close()

    def _clear_scratch(self) -> None:
        delete_folder(daemons.scratch_folder(self.work_dir))

    def _drain(self, worker: Worker, seconds: float) -> None:
        """Decommission a machine and wait until its executors have gone, if they go in time."""
        ports = daemons.Ports.read(worker.process.log.read_text(errors="replace"))
        if ports is None or not worker.process.alive:
            return  # the worker never came up, or is gone: it has nothing to hand over
        host, deadline = worker.machine.name, time.monotonic() + seconds
        self._pages.decommission(self._master_ports().ui, host)
        while self._pages.running_executors(host, ports.ui):
            if time.monotonic() >= deadline:
                LOGGER.warning("the executors of %s did not leave within %g s: they are ended", host, seconds)
                return
            time.sleep(POLL_SECONDS)

    def readings(self) -> Mapping[str, MachineReading]:
        return self.ground.readings()

    def _launch_master(self, ports: daemons.Ports | None = None) -> GuardedProcess:
        host = self.ground.driver_host
        return self._launch("master", host, daemons.master_command(self.work_dir, host, ports))

    def _launch_worker(self, host: str) -> GuardedProcess:
        command = daemons.worker_command(
            host,
            cores=self.slots * self.task_threads_per_slot,
            memory_mb=self.slots * self.executor_memory_mb,
            work_dir=self.work_dir,
            master_url=self.master_url,
        )
        return self._launch(f"worker-{host}", host, command)

    def _launch(self, name: str, host: str, command: list[str]) -> GuardedProcess:
        environment = daemons.daemon_environment(os.environ, self.work_dir, host) | dict(self.ground.environment(host))
        log = self.work_dir / f"{name}.log"
        set_aside(log)  # the ports are read from it: an earlier process's would be taken for this one's
        with self.ground.within(host):
            return GuardedProcess(command, log, environment, GRACE_SECONDS)

    def _master_ports(self) -> daemons.Ports:
        if self._ports is None:
            raise cluster_failed("The cluster does not run: it was not started, or has been stopped.")
        return self._ports

    def _require_alive(self) -> None:
        """Say at once that a process has ended, rather than wait for what cannot come any more."""
        self._master_ports()
        processes = {f"The worker of machine {name}": worker.process for name, worker in self._workers.items()}
        for name, process in [("The master", self._master), *processes.items()]:
            if process is not None and not process.alive:
                raise _ended(name, process)

    def _unbound(self, deadline_seconds: float) -> PenstockError:
        missing = [slot for slot in self.cluster.slots if slot not in self._bound]
        host = missing[0].machine
        # An executor that starts and dies says why in its own log, not in the worker's.
        executor_logs = sorted((self.work_dir / host).glob("*/*/stderr"), key=lambda log: log.stat().st_mtime)
        logs = [self._workers[host].process.log, *executor_logs[-1:]]
        names = ", ".join(slot.name for slot in missing)
        return cluster_failed(
            f"No executor came up within {deadline_seconds:g} s for {names}.", "\n".join(tail(log, 20) for log in logs)
        )


def _await_ports(master: GuardedProcess, deadline_seconds: float) -> daemons.Ports:
    """Wait until the master says where it listens."""
    deadline = time.monotonic() + deadline_seconds
    while time.monotonic() < deadline:
        if ports := daemons.Ports.read(master.log.read_text(errors="replace")):
            return ports
        if not master.alive:
            raise _ended("The master", master)
        time.sleep(POLL_SECONDS)
    raise cluster_failed(f"The master did not come up within {deadline_seconds:g} s.", master.log_tail())


def _ended(name: str, process: GuardedProcess) -> PenstockError:
    return cluster_failed(f"{name} has ended (exit code {process.exit_code}).", process.log_tail())
