"""What the system does not allow is said before anything is set up, with what to do."""

from __future__ import annotations

import errno

import pytest

from penstock.cluster.lab import permission
from penstock.cluster.lab.groups import CONTROLLERS, Groups
from penstock.cluster.lab.owners import Owner
from penstock.cluster.lab.sizes import LabShape
from penstock.errors import PenstockError


class FakeNetwork:
    """Does what it is told, except for lines with this word."""

    refuses = "nothing"
    opened = 0
    path = "/proc/1/fd/1"

    def __init__(self):
        type(self).opened += 1

    def run(self, program, lines):
        for line in lines:
            if self.refuses in line:
                raise OSError(f"{program}: Specified qdisc kind is unknown.")

    def close(self):
        type(self).opened -= 1


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A system that allows everything: a network class of its own, and groups in a folder."""
    network = type("Fake", (FakeNetwork,), {})
    groups = Groups(2, dict.fromkeys(CONTROLLERS, tmp_path), (tmp_path,))
    control = tmp_path / "cgroup.subtree_control"
    control.write_text("cpu memory")
    monkeypatch.setattr(permission, "Network", network)
    monkeypatch.setattr(permission.shutil, "which", lambda program: f"/sbin/{program}")
    monkeypatch.setattr(permission, "find_groups", lambda: groups)
    monkeypatch.setattr("penstock.cluster.lab.groups.ControlGroup.use", lambda self: None)
    monkeypatch.setattr("penstock.cluster.lab.groups.ControlGroup.limit", lambda self, size: None)
    yield network
    assert network.opened == 0, "a network of the trial is still open"
    assert list(tmp_path.iterdir()) == [control], "a group of the trial is left"


def refusal(shape: LabShape | None = None) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        permission.require_lab(shape or LabShape(), 2, Owner.this_process())
    assert caught.value.name == "LAB_NOT_ALLOWED"
    return caught.value


def test_a_system_that_allows_all_gives_its_groups(system, tmp_path):
    groups = permission.require_lab(LabShape(latency=0.005), 2, Owner.this_process())
    assert groups.folders == (tmp_path,)


def test_the_trial_switches_off_again_what_it_has_switched_on(system, tmp_path):
    control = tmp_path / "cgroup.subtree_control"
    control.write_text("cpu")
    permission.require_lab(LabShape(), 2, Owner.this_process())
    assert control.read_text() == "-memory"


def test_missing_programs_are_named_with_their_package(system, monkeypatch):
    monkeypatch.setattr(permission.shutil, "which", lambda program: None if program == "tc" else program)
    assert "the program tc is missing" in refusal().message
    assert "apt-get install iproute2" in refusal().hint


def test_who_may_not_make_networks_is_told_to_be_root(system, monkeypatch):
    def refused():
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(permission, "Network", refused)
    assert "Operation not permitted" in refusal().message
    assert "as root" in refusal().hint


def test_a_kernel_without_latencies_says_so_only_if_one_is_asked_for(system):
    system.refuses = "netem"
    permission.require_lab(LabShape(), 2, Owner.this_process())
    error = refusal(LabShape(latency=0.005))
    assert "a latency (tc netem)" in error.message
    assert error.hint == "Leave it out: --latency none."


def test_a_kernel_without_rates_is_refused(system):
    system.refuses = "tbf"
    assert "a link of 100 Mbit/s (tc tbf)" in refusal().message


def test_without_groups_there_is_no_lab(system, monkeypatch):
    monkeypatch.setattr(permission, "find_groups", lambda: None)
    assert "no control groups" in refusal().message


def test_groups_that_cannot_be_written_are_named(system, monkeypatch, tmp_path):
    def refused(self, size):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("penstock.cluster.lab.groups.ControlGroup.limit", refused)
    assert str(tmp_path) in refusal().message
    assert "Permission denied" in refusal().message


def test_a_container_with_groups_of_its_own_is_told_to_share_those_of_the_host(system, monkeypatch):
    def busy(group, owner):
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr("penstock.cluster.lab.groups._switch_on", busy)
    assert "Device or resource busy" in refusal().message
    assert "--privileged --cgroupns=host" in refusal().hint
    assert "--privileged --cgroupns=host" in permission.root_hint()


def test_other_systems_have_no_lab(system, monkeypatch):
    monkeypatch.setattr(permission.sys, "platform", "darwin")
    assert "a lab needs Linux" in refusal().message


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("user/max_user_namespaces", "0"),
        ("kernel/unprivileged_userns_clone", "0"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
    ],
)
def test_a_user_namespace_is_offered_only_where_the_system_gives_users_one(tmp_path, setting, value):
    file = tmp_path / setting
    file.parent.mkdir()
    file.write_text("5\n")
    assert "unshare --user --map-root-user" in permission.root_hint(tmp_path)
    file.write_text(f"{value}\n")
    assert f"gives users none ({setting.replace('/', '.')}={value})" in permission.root_hint(tmp_path)
    assert "unshare" not in permission.root_hint(tmp_path)


def test_who_may_not_make_networks_gets_the_hint(system, monkeypatch):
    def refused():
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(permission, "Network", refused)
    assert refusal().hint == permission.root_hint()
