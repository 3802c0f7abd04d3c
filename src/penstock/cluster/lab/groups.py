"""Control groups: the share of the cores and of the memory that the work on a machine gets. Versions 1 and 2.

A machine's group is made below our own one where that is possible, so that whatever limits us limits the lab as well.
Version 2 lets no group have both processes and groups with limits below it, so there it is the next group above ours.
What a lab has to switch on in that one is switched off again after the last lab (sweeper.py).
"""

from __future__ import annotations

import errno
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.cluster.lab import sweeper
from penstock.cluster.lab.owners import Owner, owner_of
from penstock.cluster.lab.sizes import MachineSize

#: A short period keeps the pauses of a machine that has used up its share short: 15 ms at 0.25 cores.
PERIOD_MICROSECONDS = 20_000
CONTROLLERS = ("cpu", "cpuacct", "memory")
#: The controllers of version 2, where that for the CPU counts as well.
NEEDED = ("cpu", "memory")
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class GroupUse:
    """What the processes of a group have used so far."""

    cpu_seconds: float
    throttled_seconds: float
    memory_bytes: int


@dataclass(frozen=True)
class Groups:
    """Where groups can be made: for each controller the folder below which they go. In version 2 it is one folder."""

    version: int
    parents: Mapping[str, Path]
    #: Where the file systems of the groups are mounted.
    roots: tuple[Path, ...]

    @property
    def folders(self) -> tuple[Path, ...]:
        """The different ones of the parents."""
        return tuple(dict.fromkeys(self.parents.values()))

    def make(self, owner: Owner, what: str, size: MachineSize) -> ControlGroup:
        """A group with the limits of this size. Raises OSError; nothing is left of the group then. `switch_off` is for
        the caller, when it needs no more groups."""
        places = {controller: parent / owner.name(what) for controller, parent in self.parents.items()}
        group = ControlGroup(self.version, places)
        with ExitStack() as lock:
            if self.version == 2:
                for parent in self.folders:
                    # No other lab switches anything off before the group is there.
                    lock.enter_context(sweeper.locked(parent))
                    _switch_on(parent, owner)
            try:
                for folder in group.folders:
                    folder.mkdir()
                group.limit(size)
            except OSError:
                group.remove(0)
                raise
        return group

    def switch_off(self) -> None:
        """Take back what labs have switched on to make groups, unless a lab still has some."""
        for parent in self.folders:
            sweeper.switched_off(parent)

    def leftovers(self) -> list[Path]:
        """Groups of labs whose owners are gone, the innermost first, and marks last."""
        found = []
        for root in self.roots:
            for folder, names, _ in os.walk(root, topdown=False):
                found += [
                    Path(folder, name) for name in names if (owner := owner_of(name)) is not None and owner.is_gone
                ]
        return sorted(found, key=lambda folder: sweeper.is_mark(folder.name))


@dataclass(frozen=True)
class ControlGroup:
    """The group of one machine."""

    version: int
    #: By controller.
    places: Mapping[str, Path]

    @property
    def folders(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(self.places.values()))

    def limit(self, size: MachineSize) -> None:
        quota, memory = round(size.cores * PERIOD_MICROSECONDS), size.memory_mb << 20
        cpu, room = self.places["cpu"], self.places["memory"]
        if self.version == 1:
            (cpu / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
            (cpu / "cpu.cfs_quota_us").write_text(str(max(quota, 1000)))
            (room / "memory.limit_in_bytes").write_text(str(memory))
        else:
            (cpu / "cpu.max").write_text(f"{max(quota, 1000)} {PERIOD_MICROSECONDS}")
            (room / "memory.max").write_text(str(memory))

    def use(self) -> GroupUse:
        statistics = _table((self.places["cpu"] / "cpu.stat").read_text())
        room = self.places["memory"]
        if self.version == 1:
            used = int((self.places["cpuacct"] / "cpuacct.usage").read_text())
            memory = int((room / "memory.usage_in_bytes").read_text())
            return GroupUse(used / 1e9, statistics.get("throttled_time", 0) / 1e9, memory)
        memory = int((room / "memory.current").read_text())
        return GroupUse(statistics["usage_usec"] / 1e6, statistics.get("throttled_usec", 0) / 1e6, memory)

    def remove(self, seconds: float) -> bool:
        """Remove it once its processes have ended; whether it is gone after so many seconds."""
        gone = [_removed(folder, seconds) for folder in self.folders]
        return all(gone)


def clear(folder: Path) -> bool:
    """Remove a group whose owner is gone, with the processes that are still in it; whether that was done. What a mark
    tells of is switched off."""
    if sweeper.is_mark(folder.name):
        return sweeper.switched_off(folder.parent)
    for process in _members(folder):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)
    return _removed(folder, 5.0)


def find_groups(mountinfo: Path = Path("/proc/self/mountinfo"), own: Path = Path("/proc/self/cgroup")) -> Groups | None:
    """Where groups of ours can be made; None if no controller for CPU and memory is to be found. Nothing is changed."""
    mounts = list(_mounts(mountinfo.read_text()))
    ours = {
        name: path
        for line in own.read_text().splitlines()
        for number, names, path in [line.split(":", 2)]
        for name in (names.split(",") if names else [f"v2-{number}"])
    }
    old = {name: mount for mount in mounts if mount.version == 1 for name in CONTROLLERS if name in mount.options}
    if set(old) == set(CONTROLLERS):
        parents = {name: mount.folder_of(ours.get(name, "/")) for name, mount in old.items()}
        return Groups(1, parents, tuple(dict.fromkeys(mount.point for mount in old.values())))
    for mount in mounts:
        if mount.version == 2 and "cpu" in _words(mount.point / "cgroup.controllers"):
            parent = _with_controllers(mount.folder_of(ours.get("v2-0", "/")), mount.point)
            return Groups(2, dict.fromkeys(CONTROLLERS, parent), (mount.point,))
    return None


def _with_controllers(folder: Path, root: Path) -> Path:
    """The first group from ours upwards below which limits may be set; ours if there is none, and then `make` says
    why."""
    for parent in (folder, *folder.parents):
        if not parent.is_relative_to(root):
            break
        if set(NEEDED) <= _words(parent / "cgroup.subtree_control") or _can_switch_on(parent):
            return parent
    return folder


def _can_switch_on(group: Path) -> bool:
    """Whether the kernel should let us switch controllers on in a group: it has them, may be written, and has no
    processes. The group above all others, which alone has no type, may have processes."""
    is_top = not (group / "cgroup.type").exists()
    return (
        set(NEEDED) <= _words(group / "cgroup.controllers")
        and (is_top or not _words(group / "cgroup.procs"))
        and os.access(group / "cgroup.subtree_control", os.W_OK)
    )


def _switch_on(group: Path, owner: Owner) -> None:
    """Switch on the controllers that are off in a group. The mark is there before: whoever dies here has left it."""
    control = group / "cgroup.subtree_control"
    missing = [controller for controller in NEEDED if controller not in _words(control)]
    if not missing:
        return
    mark = group / owner.name(sweeper.MARK + "_".join(missing))
    mark.mkdir(exist_ok=True)
    try:
        control.write_text(" ".join(f"+{controller}" for controller in missing))
    except OSError:
        with suppress(OSError):
            mark.rmdir()
        raise


@dataclass(frozen=True)
class _Mount:
    version: int
    #: What of the hierarchy is mounted there: in a container mostly not all of it.
    root: str
    point: Path
    options: frozenset[str]

    def folder_of(self, path: str) -> Path:
        inner = path.removeprefix(self.root.rstrip("/")) if path.startswith(self.root) else ""
        folder = self.point / inner.lstrip("/")
        return folder if folder.is_dir() else self.point


def _mounts(text: str) -> Iterator[_Mount]:
    for line in text.splitlines():
        fields, _, kind = line.partition(" - ")
        words, [system, _, options] = fields.split(" "), kind.split(" ", 2)
        if system in ("cgroup", "cgroup2"):
            point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), words[4])
            yield _Mount(1 if system == "cgroup" else 2, words[3], Path(point), frozenset(options.split(",")))


def _words(file: Path) -> set[str]:
    try:
        return set(file.read_text().split())
    except OSError:
        return set()


def _table(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in text.splitlines())}


def _members(folder: Path) -> list[int]:
    return [int(word) for word in _words(folder / "cgroup.procs")]


def _removed(folder: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return True
        except OSError as problem:
            # A process that has just ended may count for a moment.
            if problem.errno not in (errno.EBUSY, errno.ENOTEMPTY) or time.monotonic() >= deadline:
                return False
            time.sleep(POLL_SECONDS)
        else:
            return True
