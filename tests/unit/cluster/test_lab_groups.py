"""Control groups of both versions, in folders that look like them, and whose they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cluster.lab import groups as lab_groups
from penstock.cluster.lab.groups import ControlGroup, GroupUse, find_groups
from penstock.cluster.lab.owners import Owner, owner_of
from penstock.cluster.lab.sizes import MachineSize

SIZE = MachineSize(0.25, 600)


def found(folder: Path, mounts: str, own: str) -> lab_groups.Groups | None:
    (folder / "mountinfo").write_text(mounts)
    (folder / "cgroup").write_text(own)
    return find_groups(folder / "mountinfo", folder / "cgroup")


def test_version_1_groups_go_below_our_own(tmp_path):
    for controller, own in (("cpu,cpuacct", "low"), ("memory", "box/inner")):
        (tmp_path / controller / own).mkdir(parents=True)
    mounts = (
        f"30 20 0:26 / {tmp_path}/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        f"31 20 0:27 / {tmp_path}/memory rw - cgroup cgroup rw,memory\n"
        f"32 20 0:28 / {tmp_path}/unified rw - cgroup2 cgroup2 rw\n"
    )
    groups = found(tmp_path, mounts, "2:memory:/box/inner\n1:cpu,cpuacct:/low\n0::/\n")
    assert groups is not None
    assert groups.version == 1
    assert groups.folders == (tmp_path / "cpu,cpuacct/low", tmp_path / "memory/box/inner")
    group = groups.make("one", SIZE)
    cpu, memory = group.places["cpu"], group.places["memory"]
    assert (cpu / "cpu.cfs_quota_us").read_text() == "5000"
    assert (cpu / "cpu.cfs_period_us").read_text() == "20000"
    assert (memory / "memory.limit_in_bytes").read_text() == str(600 << 20)
    (cpu / "cpu.stat").write_text("nr_periods 4\nnr_throttled 2\nthrottled_time 1500000000\n")
    (cpu / "cpuacct.usage").write_text("2500000000\n")
    (memory / "memory.usage_in_bytes").write_text("4096\n")
    assert group.use() == GroupUse(2.5, 1.5, 4096)


def test_what_a_container_sees_of_the_hierarchy_is_taken_off(tmp_path):
    for controller in ("cpu", "cpuacct", "memory"):
        (tmp_path / controller / "inner").mkdir(parents=True)
    mounts = "".join(
        f"3{index} 20 0:26 /docker/abc {tmp_path}/{name} rw - cgroup cgroup rw,{name}\n"
        for index, name in enumerate(("cpu", "cpuacct", "memory"))
    )
    groups = found(tmp_path, mounts, "3:memory:/docker/abc\n2:cpuacct:/\n1:cpu:/docker/abc/inner\n")
    assert groups is not None
    assert groups.parents == {
        "cpu": tmp_path / "cpu/inner",
        "cpuacct": tmp_path / "cpuacct",
        "memory": tmp_path / "memory",
    }


def test_version_2_groups_go_where_limits_may_be_set(tmp_path):
    own = tmp_path / "user.slice" / "session.scope"
    own.mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu memory pids\n")
    (own / "cgroup.subtree_control").mkdir()  # as good as EBUSY: it has processes, so it cannot be written
    (own.parent / "cgroup.subtree_control").write_text("cpu memory pids\n")
    groups = found(tmp_path, f"30 20 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw\n", "0::/user.slice/session.scope\n")
    assert groups is not None
    assert (groups.version, groups.folders) == (2, (own.parent,))
    group = groups.make("one", MachineSize(2, 1024))
    [folder] = group.folders
    assert (folder / "cpu.max").read_text() == "40000 20000"
    assert (folder / "memory.max").read_text() == str(1 << 30)
    (folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\nthrottled_usec 1500000\n")
    (folder / "memory.current").write_text("4096\n")
    assert group.use() == GroupUse(2.5, 1.5, 4096)


def test_no_controllers_no_groups(tmp_path):
    assert found(tmp_path, f"30 20 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw\n", "0::/\n") is None


def test_a_group_that_could_not_get_its_limits_is_not_left(tmp_path):
    groups = lab_groups.Groups(2, dict.fromkeys(lab_groups.CONTROLLERS, tmp_path), (tmp_path,))
    (tmp_path / "one").touch()
    with pytest.raises(FileExistsError):
        groups.make("one", SIZE)
    assert [child.name for child in tmp_path.iterdir()] == ["one"]


def test_only_groups_of_owners_that_are_gone_are_leftovers(tmp_path):
    me = Owner.this_process()
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        pass
    gone = Owner(me.namespace, ended.pid, 1)
    before = Owner(me.namespace, me.process, me.started - 1)
    stranger = Owner(me.namespace + 1, ended.pid, 1)
    for owner in (me, gone, before, stranger):
        (tmp_path / "inner" / owner.name("2")).mkdir(parents=True)
    (tmp_path / "penstock-lab-of-somebody").mkdir()
    groups = lab_groups.Groups(1, {}, (tmp_path,))
    assert sorted(folder.name for folder in groups.leftovers()) == sorted([gone.name("2"), before.name("2")])
    for folder in groups.leftovers():
        assert lab_groups.clear(folder)
    assert groups.leftovers() == []
    assert len(list((tmp_path / "inner").iterdir())) == 2


def test_a_name_says_whose_a_group_is():
    me = Owner.this_process()
    assert (me.process, me.is_gone) == (os.getpid(), False)
    assert owner_of(me.name("2")) == me
    assert owner_of("penstock-lab-2") is None
    assert owner_of("system.slice") is None


def test_a_group_that_has_something_in_it_stays(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "file").touch()
    group = ControlGroup(2, {"cpu": tmp_path / "one"})
    assert group.remove(0.1) is False
    (tmp_path / "one" / "file").unlink()
    assert group.remove(0.1) is True
    assert group.remove(0.1) is True, "it is gone already"
