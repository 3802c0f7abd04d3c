"""Whether this computer lets us have a lab: tried out with a throwaway network and group before anything is set up."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from penstock.cluster.lab.groups import Groups, find_groups
from penstock.cluster.lab.links import link_lines, shaping
from penstock.cluster.lab.networks import Network
from penstock.cluster.lab.owners import Owner
from penstock.cluster.lab.sizes import LabShape
from penstock.errors import PenstockError

WITHOUT = "Without a lab, --cluster standalone has machines that share all cores and one loopback."
_PROGRAMS = (
    "Install iproute2 (Debian/Ubuntu: sudo apt-get install iproute2; Fedora: sudo dnf install iproute iproute-tc)."
)
#: Without the groups of the host, a container sees only its own group, which has processes and so no room for limits.
_CONTAINER = "in a container with --privileged --cgroupns=host"
_ROOT = f"Run it as root, {_CONTAINER}, or as root of a user namespace"
_UNSHARE = "unshare --user --map-root-user --net sh -c 'ip link set lo up; penstock run ...'"
#: Settings of the kernel by which a system gives its users no namespaces of their own, each with the value that does.
_NO_USER_NAMESPACES = {
    "user/max_user_namespaces": "0",
    "kernel/unprivileged_userns_clone": "0",
    "kernel/apparmor_restrict_unprivileged_userns": "1",
}
_GROUPS = (
    "Penstock must be able to write below /sys/fs/cgroup, with the controllers cpu and memory: run as root, "
    f"{_CONTAINER}, or below a group that was handed over to you (systemd-run --user --scope -p Delegate=yes)."
)


def require_lab(shape: LabShape, machines: int, owner: Owner) -> Groups:
    """Raise LAB_NOT_ALLOWED unless networks, links and groups like these can be made. Nothing of the trial is left."""
    if sys.platform != "linux":
        raise _refused(f"a lab needs Linux, and this is {sys.platform}.", WITHOUT)
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            raise _refused(f"the program {program} is missing.", _PROGRAMS)
    _try_links(shape, machines)
    return _try_groups(shape, machines, owner)


def root_hint(settings: Path = Path("/proc/sys")) -> str:
    """What a user can do who may not make networks; a user namespace only where this system gives users any."""
    for name, refusing in _NO_USER_NAMESPACES.items():
        with suppress(OSError):  # most kernels have only the first of them
            if (settings / name).read_text().strip() == refusing:
                setting = f"{name.replace('/', '.')}={refusing}"
                return f"{_ROOT}; this system gives users none ({setting}), so that needs its administrator."
    return f"{_ROOT}: {_UNSHARE}."


def _try_links(shape: LabShape, machines: int) -> None:
    try:
        network, other = Network(), None
    except OSError as problem:
        raise _refused(f"a network namespace cannot be made: {problem.strerror}.", root_hint()) from None
    try:
        other = Network()
        _try(network, "ip", ["link add br0 type bridge"], "a bridge")
        _try(network, "ip", link_lines("10.77.0.254", "m254", other), "a pair of virtual interfaces")
        for size in dict.fromkeys(shape.of(index) for index in range(max(machines, len(shape.sizes)) + 1)):
            lines = shaping("eth0", size, shape.latency)
            _try(network, "tc", lines[:1], f"a link of {size.link_bits_per_second / 1e6:g} Mbit/s (tc tbf)")
            if lines[1:]:
                _try(network, "tc", lines[1:], "a latency (tc netem)", "Leave it out: --latency none.")
            _try(network, "tc", ["qdisc del dev eth0 root"], "a link without a limit")
    finally:
        network.close()
        if other is not None:
            other.close()


def _try(network: Network, program: str, lines: Sequence[str], what: str, instead: str = "") -> None:
    try:
        network.run(program, lines)
    except OSError as problem:
        raise _refused(f"the system does not allow {what}: {problem}.", instead or root_hint()) from None


def _try_groups(shape: LabShape, machines: int, owner: Owner) -> Groups:
    groups = find_groups()
    if groups is None:
        raise _refused("no control groups for CPU and memory are mounted.", _GROUPS)
    try:
        for index in range(max(machines, len(shape.sizes)) + 1):
            trial = groups.make(owner, "trial", shape.of(index))
            try:
                trial.use()
            finally:
                trial.remove(1.0)
    except (OSError, KeyError) as problem:
        where = ", ".join(str(folder) for folder in groups.folders)
        raise _refused(f"a control group cannot be made below {where}: {problem}.", _GROUPS) from None
    finally:
        groups.switch_off()
    return groups


def _refused(message: str, hint: str) -> PenstockError:
    return PenstockError("LAB_NOT_ALLOWED", message, hint)
