"""The lab that a campaign's faults happen to: its machines as they are seen from outside, and what is left of it.

A machine is a network namespace in which a worker runs. Nothing here asks Penstock: processes, namespaces, control
groups and mounts are read off the system.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from penstock.cluster.lab.groups import find_groups
from penstock.cluster.lab.owners import Owner, owner_of
from penstock.cluster.lab.permission import require_lab
from penstock.cluster.lab.sizes import LabShape
from penstock.errors import PenstockError

#: Half a core a machine: three of them, which is the most, still leave half a core of two to Spark.
SHAPE = LabShape.read(0.5, "1g")
#: How long all processes of a machine may take to be gone.
KILL_SECONDS = 10.0
_NETWORK = re.compile(r"net:\[(\d+)\]")


class OwnLab:
    """There is one while the campaign's driver runs; this remembers what it has seen of it."""

    def __init__(self) -> None:
        self._networks: set[int] = set()
        self._mounts: frozenset[str] = frozenset()

    @staticmethod
    def lacking() -> str:
        if shutil.which("nsenter") is None:
            return "the program nsenter is missing (apt-get install util-linux)"
        try:
            require_lab(SHAPE, 3, Owner.this_process())
        except PenstockError as error:
            return f"no lab can be had here: {error.message}"
        return ""

    def start(self) -> None:
        self._mounts = mounts(Path("/proc/self/mountinfo").read_text())

    def stop(self) -> None:
        """Nothing: the lab is the driver's."""

    def notice(self, processes: Iterable[psutil.Process]) -> None:
        """Remember the networks that processes of the campaign are in, but our own."""
        found = {network for one in processes if (network := network_of(one.pid)) is not None}
        self._networks |= found - {network_of(os.getpid())}

    def kill_machine(self, worker: psutil.Process, spared: Collection[int]) -> int:
        """End every process of the machine that this worker is on, all at once; how many there were."""
        network = network_of(worker.pid)
        if network is None or network == network_of(os.getpid()):
            raise psutil.NoSuchProcess(worker.pid)
        self._networks.add(network)
        killed: set[int] = set()
        for _ in range(2):  # a process may just have started another one
            for process in inside(network, spared):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                    killed.add(process)
        deadline = time.monotonic() + KILL_SECONDS
        # Those that come later are Penstock's answer: it starts the worker again.
        while left := killed & set(inside(network, spared)):
            assert time.monotonic() < deadline, f"processes of a machine cannot be killed: {left}"
            time.sleep(0.02)
        return len(killed)

    def cut(self, worker: psutil.Process, master: psutil.Process, while_down: Callable[[], None]) -> None:
        """Take the link of a worker's machine down at the switch, which is the master's network, and up again."""
        port = port_of(worker.cmdline())
        switch = os.open(f"/proc/{master.pid}/ns/net", os.O_RDONLY)
        try:
            _link(switch, port, "down")
            try:
                while_down()
            finally:
                _link(switch, port, "up", may_be_gone=True)
        finally:
            os.close(switch)

    def left(self, drivers: Collection[int]) -> list[str]:
        """What these drivers have left behind: networks, control groups, mounts."""
        groups = find_groups()
        folders = [found for folder in (groups.folders if groups else ()) for found in folder.glob("penstock-lab-*")]
        return [
            *(f"network namespace net:[{one}]" for one in sorted(self._networks & set(existing_networks()))),
            *(f"control group {one}" for one in groups_of(folders, drivers)),
            *(f"mount {one}" for one in sorted(mounts(Path("/proc/self/mountinfo").read_text()) - self._mounts)),
        ]


def network_of(process: int) -> int | None:
    """The number of the network namespace that a process is in; None if there is no such process."""
    try:
        return os.stat(f"/proc/{process}/ns/net").st_ino  # noqa: PTH116 - a Path would resolve the link
    except OSError:
        return None


def inside(network: int, spared: Collection[int] = ()) -> list[int]:
    """The processes in a network namespace."""
    return [process for process in psutil.pids() if process not in spared and network_of(process) == network]


def existing_networks() -> Iterator[int]:
    """Of every process and of each of its threads, and those that a process holds open or that are mounted."""
    for process in Path("/proc").glob("[0-9]*"):
        for pattern in ("task/*/ns/net", "fd/*"):
            with suppress(OSError):
                for one in process.glob(pattern):
                    with suppress(OSError):
                        if found := _NETWORK.fullmatch(os.readlink(one)):  # noqa: PTH115 - it is no path
                            yield int(found[1])
    yield from (int(one) for one in _NETWORK.findall(Path("/proc/self/mountinfo").read_text()))


def mounts(mountinfo: str) -> frozenset[str]:
    """Where something is mounted that a lab might have mounted: namespaces and control groups."""
    found = set()
    for line in mountinfo.splitlines():
        fields, _, kind = line.partition(" - ")
        if kind.split(" ")[0] in ("nsfs", "cgroup", "cgroup2", "sysfs"):
            found.add(fields.split(" ")[4])
    return frozenset(found)


def groups_of(folders: Iterable[Path], drivers: Collection[int]) -> list[str]:
    """The control groups that these processes made."""
    return sorted(
        str(folder) for folder in folders if (owner := owner_of(folder.name)) is not None and owner.process in drivers
    )


def port_of(worker_command: Sequence[str]) -> str:
    """The switch's end of the link of a worker's machine (penstock.cluster.lab.ground)."""
    host = worker_command[list(worker_command).index("--host") + 1]
    return f"m{host.rpartition('.')[2]}"


def _link(network: int, port: str, state: str, may_be_gone: bool = False) -> None:
    done = subprocess.run(
        ["nsenter", f"--net=/proc/self/fd/{network}", "ip", "link", "set", port, state],
        pass_fds=(network,),
        capture_output=True,
        text=True,
        check=False,
    )
    # A change may have removed the machine meanwhile, and its link with it.
    gone = may_be_gone and "Cannot find device" in done.stderr
    assert done.returncode == 0 or gone, f"the link {port} cannot be set {state}: {done.stderr}"
