"""What a fault campaign does to the machines of a lab, and what it finds of them afterwards. Without Spark: a machine
is a network namespace with processes that sleep."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import fault_lab
import psutil
import pytest
from fault_campaign import Campaign, Scenario
from fault_kinds import LAB, LAB_KINDS
from fault_lab import OwnLab, existing_networks, groups_of, inside, mounts, network_of, port_of
from fault_scenarios import scenario_of
from lab_here import needs_a_lab

from penstock.cluster.lab.owners import Owner

Machine = subprocess.Popen[str]
#: A shell, two processes of it, and one that has left its session.
SLEEPERS = "setsid sleep 60 & sleep 60 & {before}echo ready; wait"


@pytest.fixture
def machines() -> Iterator[list[Machine]]:
    """Ends what a test has started in namespaces of its own."""
    started: list[Machine] = []
    yield started
    for machine in started:
        for process in inside(network_of(machine.pid) or -1):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        assert machine.stdout is not None
        machine.stdout.close()
        machine.kill()
        machine.wait()


def machine(machines: list[Machine], before: str = "") -> Machine:
    command = ["unshare", "--net", "sh", "-c", SLEEPERS.format(before=before)]
    machines.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    assert machines[-1].stdout is not None
    assert machines[-1].stdout.readline() == "ready\n"
    return machines[-1]


def gone(network: int) -> bool:
    deadline = time.monotonic() + 10
    while network in set(existing_networks()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@needs_a_lab()
def test_every_process_of_a_machine_is_killed_and_nobody_else(machines: list[Machine]) -> None:
    struck, other = machine(machines), machine(machines)
    networks = [network_of(one.pid) for one in (struck, other)]
    assert None not in networks
    assert network_of(os.getpid()) not in networks
    lab = OwnLab()
    assert lab.kill_machine(psutil.Process(struck.pid), spared=()) == 3
    assert inside(networks[0] or 0) == []
    assert len(inside(networks[1] or 0)) == 3
    assert struck.wait(10) == -signal.SIGKILL


@needs_a_lab()
def test_a_process_that_is_spared_stays(machines: list[Machine]) -> None:
    struck = machine(machines)
    assert OwnLab().kill_machine(psutil.Process(struck.pid), spared=[struck.pid]) == 2
    assert psutil.Process(struck.pid).is_running()


def test_our_own_network_is_no_machine() -> None:
    with pytest.raises(psutil.NoSuchProcess):
        OwnLab().kill_machine(psutil.Process(), spared=())


@needs_a_lab()
def test_a_link_is_down_for_a_while_and_up_again(machines: list[Machine]) -> None:
    switch = machine(machines, "ip link add m7 type bridge; ip link set m7 up; ")
    worker = SimpleNamespace(cmdline=lambda: ["java", "Worker", "--host", "10.77.0.7", "--port", "0"])

    def is_up() -> bool:
        command = ["nsenter", f"--net=/proc/{switch.pid}/ns/net", "ip", "-o", "link", "show", "m7"]
        return ",UP" in subprocess.run(command, capture_output=True, text=True, check=True).stdout

    seen: list[bool] = []
    assert is_up()
    OwnLab().cut(worker, psutil.Process(switch.pid), lambda: seen.append(is_up()))  # type: ignore[arg-type]
    assert seen == [False]
    assert is_up()
    elsewhere = SimpleNamespace(cmdline=lambda: ["java", "Worker", "--host", "10.77.0.8"])
    with pytest.raises(AssertionError, match="m8 cannot be set down"):
        OwnLab().cut(elsewhere, psutil.Process(switch.pid), lambda: None)  # type: ignore[arg-type]


@needs_a_lab()
def test_a_machine_that_a_change_removed_meanwhile_is_no_failure(machines: list[Machine]) -> None:
    switch = machine(machines, "ip link add m7 type bridge; ")
    worker = SimpleNamespace(cmdline=lambda: ["java", "Worker", "--host", "10.77.0.7"])

    def remove() -> None:
        subprocess.run(["nsenter", f"--net=/proc/{switch.pid}/ns/net", "ip", "link", "del", "m7"], check=True)

    OwnLab().cut(worker, psutil.Process(switch.pid), remove)  # type: ignore[arg-type]


@needs_a_lab()
def test_a_network_that_somebody_still_holds_is_left(machines: list[Machine]) -> None:
    struck = machine(machines)
    network = network_of(struck.pid)
    assert network is not None
    held = os.open(f"/proc/{struck.pid}/ns/net", os.O_RDONLY)
    lab = OwnLab()
    lab.start()
    lab.notice([psutil.Process(struck.pid), psutil.Process()])
    lab.kill_machine(psutil.Process(struck.pid), spared=())
    struck.wait()
    assert lab.left(drivers=()) == [f"network namespace net:[{network}]"]
    os.close(held)
    assert gone(network)
    assert lab.left(drivers=()) == []


def test_groups_are_left_if_a_driver_of_the_campaign_made_them(tmp_path: Path) -> None:
    mine, others = Owner(1, 77, 5).name("2"), Owner(1, 78, 5).name("2")
    for name in (mine, others, "penstock-lab-strange"):
        (tmp_path / name).mkdir()
    assert groups_of(tmp_path.iterdir(), [77]) == [str(tmp_path / mine)]
    assert groups_of(tmp_path.iterdir(), []) == []


def test_mounts_of_namespaces_and_groups_are_seen() -> None:
    before = "22 1 0:21 / /proc rw - proc proc rw\n30 1 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup rw\n"
    after = before + "99 1 0:4 net:[4026532001] /run/netns/m2 rw - nsfs nsfs rw\n40 1 0:5 / /tmp rw - tmpfs tmpfs rw\n"
    assert mounts(after) - mounts(before) == {"/run/netns/m2"}


def test_the_port_of_a_machine_is_named_by_its_address() -> None:
    assert port_of(["java", "-cp", "x", "Worker", "--host", "10.77.0.13", "--port", "0"]) == "m13"


# Campaigns


def test_twenty_faults_on_a_lab_are_of_all_kinds() -> None:
    scenario = scenario_of(11, 20, cluster=LAB)
    assert scenario.cluster == LAB
    assert scenario.catalog == "sqlite"
    counts = {kind: scenario.kinds.count(kind) for kind in LAB_KINDS}
    assert counts == {kind: one.weight for kind, one in LAB_KINDS.items()}, "20 is the sum of the weights"
    assert counts["machine killed"] >= 5
    assert counts["link down for 20 s"] >= 3
    assert scenario_of(11, 20, cluster=LAB) == scenario
    assert scenario_of(12, 20, cluster=LAB).kinds != scenario.kinds


def test_a_campaign_has_a_lab_where_its_cluster_is_one(tmp_path: Path) -> None:
    on_lab = Campaign(tmp_path / "lab", 1, 100, Scenario("counted", "sqlite", ("executor killed",), LAB))
    assert on_lab.lab is not None
    assert on_lab.config("faulty", "counted", on_lab.scenario.cluster)["cluster"] == "lab"
    standalone = Campaign(tmp_path / "standalone", 1, 100, Scenario("counted", "sqlite", ("executor killed",)))
    assert standalone.lab is None
    for campaign in (on_lab, standalone):
        campaign.temporary.rmdir()


def test_without_nsenter_there_are_no_faults_of_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_lab.shutil, "which", lambda program: None)
    assert "nsenter" in OwnLab.lacking()
