"""The ground of a lab: each machine a network of its own behind a link, its work in a control group of its own."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from penstock.clock import run_time
from penstock.cluster import addresses
from penstock.cluster.lab import networks, sweeper
from penstock.cluster.lab.groups import ControlGroup, Groups, clear
from penstock.cluster.lab.links import BRIDGE, link_lines, shaping, switch_lines
from penstock.cluster.lab.networks import Network
from penstock.cluster.lab.owners import Owner
from penstock.cluster.lab.permission import require_lab
from penstock.cluster.lab.sizes import LabShape, MachineSize
from penstock.cluster.provider import cluster_failed
from penstock.cluster.readings import MachineReading
from penstock.logs import LOGGER, traced

SUBNET = "10.77.0."
#: What the daemon of an executor's Python workers reads: the control groups that it is to join.
GROUPS_VARIABLE = "PENSTOCK_LAB_GROUPS"
#: How long the processes of a machine may take to leave its group once they were ended.
EMPTY_SECONDS = 15.0


@dataclass(frozen=True)
class Plot:
    """What a machine is."""

    size: MachineSize
    network: Network
    group: ControlGroup


class LabGround:
    """A switch, which is the network of driver and master, and the machines linked to it."""

    driver_host = f"{SUBNET}1"
    apart = True

    def __init__(self, shape: LabShape) -> None:
        self.shape = shape
        self._owner: Owner | None = None
        self._groups: Groups | None = None
        self._switch: Network | None = None
        self._sweeper: subprocess.Popen[bytes] | None = None
        self._plots: dict[str, Plot] = {}
        self._lock = threading.Lock()

    def open(self, machines: int) -> None:
        addresses.first(machines, self.free(taken=()))
        owner = self._owner = Owner.this_process()
        groups = require_lab(self.shape, machines, owner)
        for folder in groups.leftovers():
            LOGGER.info("the control group %s of a run that is gone: %s", folder, _word(clear(folder)))
        self._groups = groups
        self._sweeper = subprocess.Popen(
            [sys.executable, "-I", "-S", sweeper.__file__, owner.prefix, *map(str, groups.folders)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        with _named("The network of the lab could not be made"):
            self._switch = Network()
            self._switch.run("ip", switch_lines(self.driver_host))
            networks.move_in(self._switch)

    def free(self, taken: Collection[str]) -> list[str]:
        return addresses.free(taken, SUBNET)

    def settle(self, name: str) -> None:
        with self._lock:
            if name in self._plots:
                return
            owner, groups, switch = self._opened()
            number = addresses.order(name)
            size, port = self.shape.of(number - addresses.FIRST), _port(name)
            with ExitStack() as undo, _named(f"The machine {name} could not be made"):
                group = groups.make(owner, str(number), size)
                undo.callback(group.remove, 1.0)
                network = Network()
                undo.callback(network.close)
                network.run("ip", link_lines(name, port, switch))
                network.run("tc", shaping("eth0", size, self.shape.latency))
                switch.run("tc", shaping(port, size, self.shape.latency))
                switch.run("ip", [f"link set {port} master {BRIDGE} up"])
                undo.pop_all()
            self._plots[name] = Plot(size, network, group)

    def leave(self, name: str) -> None:
        with self._lock:
            plot = self._plots.pop(name, None)
            if plot is None:
                return
            _, _, switch = self._opened()
            self._unmake(name, plot, switch)

    def _unmake(self, name: str, plot: Plot, switch: Network) -> None:
        try:
            switch.run("ip", [f"link del {_port(name)}"])
        except OSError as problem:
            LOGGER.warning("the link of %s could not be removed: %s", name, problem)
        plot.network.close()
        if not plot.group.remove(EMPTY_SECONDS):
            LOGGER.warning("processes of %s are still in %s", name, ", ".join(map(str, plot.group.folders)))

    @contextmanager
    def within(self, name: str) -> Iterator[None]:
        _, _, switch = self._opened()
        network = switch if name == self.driver_host else self._plots[name].network
        with network.entered():
            yield

    def environment(self, name: str) -> Mapping[str, str]:
        plot = self._plots.get(name)
        return {GROUPS_VARIABLE: ":".join(map(str, plot.group.folders))} if plot else {}

    def readings(self) -> Mapping[str, MachineReading]:
        with self._lock:
            if self._switch is None:
                return {}
            ports, now = self._switch.counters(), run_time()
            found = {}
            for name, plot in self._plots.items():
                # A group that somebody else has removed costs its figures, and nothing else.
                with traced(f"the counters of {name} cannot be read", OSError, KeyError):
                    found[name] = _reading(now, plot, ports[_port(name)])
            return found

    def close(self) -> None:
        with self._lock:
            networks.move_out()
            if self._switch is not None:
                for name, plot in self._plots.items():
                    self._unmake(name, plot, self._switch)
                self._switch.close()
                self._switch = None
            self._plots.clear()
            if self._sweeper is not None:
                assert self._sweeper.stdin is not None
                self._sweeper.stdin.close()
                self._sweeper.wait()
                self._sweeper = None

    def _opened(self) -> tuple[Owner, Groups, Network]:
        if self._owner is None or self._groups is None or self._switch is None:
            raise cluster_failed("The lab is not open.")
        return self._owner, self._groups, self._switch


def _port(name: str) -> str:
    """The end of a machine's link at the switch."""
    return f"m{addresses.order(name)}"


def _reading(now: float, plot: Plot, port: tuple[int, int]) -> MachineReading:
    use, size = plot.group.use(), plot.size
    received_by_switch, sent_by_switch = port
    return MachineReading(
        at=now,
        cpu_seconds=use.cpu_seconds,
        throttled_seconds=use.throttled_seconds,
        memory_bytes=use.memory_bytes,
        received_bytes=sent_by_switch,
        sent_bytes=received_by_switch,
        cores=size.cores,
        memory_limit=size.memory_mb << 20,
        link_bytes_per_second=size.link_bits_per_second / 8,
    )


@contextmanager
def _named(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise cluster_failed(f"{what}: {problem}.") from problem


def _word(cleared: bool) -> str:
    return "removed" if cleared else "could not be removed"
