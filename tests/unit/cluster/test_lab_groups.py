"""Control groups of both versions, in folders that look like them, and whose they are."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cluster.lab import groups as lab_groups
from penstock.cluster.lab import owners, sweeper
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
    group = groups.make(Owner.this_process(), "one", SIZE)
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
    group = groups.make(Owner.this_process(), "one", MachineSize(2, 1024))
    [folder] = group.folders
    assert (folder / "cpu.max").read_text() == "40000 20000"
    assert (folder / "memory.max").read_text() == str(1 << 30)
    (folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\nthrottled_usec 1500000\n")
    (folder / "memory.current").write_text("4096\n")
    assert group.use() == GroupUse(2.5, 1.5, 4096)


def test_no_controllers_no_groups(tmp_path):
    assert found(tmp_path, f"30 20 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw\n", "0::/\n") is None


def test_a_group_that_could_not_get_its_limits_is_not_left(tmp_path):
    groups = lab_groups.Groups(1, dict.fromkeys(lab_groups.CONTROLLERS, tmp_path), (tmp_path,))
    me = Owner.this_process()
    (tmp_path / me.name("one")).touch()
    with pytest.raises(FileExistsError):
        groups.make(me, "one", SIZE)
    assert [child.name for child in tmp_path.iterdir()] == [me.name("one")]


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


@pytest.fixture
def version_2(tmp_path, monkeypatch) -> lab_groups.Groups:
    """Groups in a folder that does what the kernel does: here the controller for memory is off, and there are no
    processes in it."""
    monkeypatch.setattr(Path, "rmdir", shutil.rmtree)
    write = Path.write_text

    def written(file: Path, text: str) -> int:
        if file.name != "cgroup.subtree_control":
            return write(file, text)
        if (file.parent / "busy").exists():
            raise OSError(errno.EBUSY, "Device or resource busy")
        on = file.read_text().split()
        for word in text.split():
            on = [one for one in on if one != word[1:]] + ([word[1:]] if word[0] == "+" else [])
        return write(file, " ".join(on))

    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    (tmp_path / "cgroup.subtree_control").write_text("cpu")
    monkeypatch.setattr(Path, "write_text", written)
    groups = found(tmp_path, f"30 20 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw\n", "0::/\n")
    assert groups is not None
    return groups


def switched_on(folder: Path) -> set[str]:
    return set((folder / "cgroup.subtree_control").read_text().split())


def folders_in(folder: Path) -> list[str]:
    return sorted(child.name for child in folder.iterdir() if child.is_dir())


def another_lab() -> Owner:
    me = Owner.this_process()
    return Owner(me.namespace, os.getppid(), 7)


def test_who_only_looks_for_groups_switches_nothing_on(version_2, tmp_path):
    assert version_2.folders == (tmp_path,)
    assert switched_on(tmp_path) == {"cpu"}


def test_a_group_switches_on_what_is_missing_and_it_is_switched_off_after_the_last_group(version_2, tmp_path):
    me = Owner.this_process()
    group = version_2.make(me, "2", SIZE)
    assert switched_on(tmp_path) == {"cpu", "memory"}
    assert not sweeper.switched_off(tmp_path), "the lab has a group there"
    assert switched_on(tmp_path) == {"cpu", "memory"}
    group.remove(0)
    assert sweeper.switched_off(tmp_path)
    assert switched_on(tmp_path) == {"cpu"}
    assert folders_in(tmp_path) == []
    version_2.make(me, "2", SIZE)
    assert switched_on(tmp_path) == {"cpu", "memory"}, "a machine may come later"


def test_what_one_lab_switched_on_stays_on_until_the_other_lab_is_gone(version_2, tmp_path):
    mine, other = version_2.make(Owner.this_process(), "2", SIZE), version_2.make(another_lab(), "2", SIZE)
    mine.remove(0)
    assert not sweeper.switched_off(tmp_path)
    assert switched_on(tmp_path) == {"cpu", "memory"}
    other.remove(0)
    assert sweeper.switched_off(tmp_path)
    assert switched_on(tmp_path) == {"cpu"}


def test_a_controller_by_which_somebody_else_has_a_limit_stays_on(version_2, tmp_path):
    group = version_2.make(Owner.this_process(), "2", SIZE)
    group.remove(0)
    (tmp_path / "other.scope").mkdir()
    (tmp_path / "other.scope" / "memory.low").write_text("0\n")
    (tmp_path / "other.scope" / "memory.max").write_text("1000000\n")
    assert sweeper.switched_off(tmp_path)
    assert switched_on(tmp_path) == {"cpu", "memory"}
    assert folders_in(tmp_path) == ["other.scope"]


def test_nothing_is_left_of_controllers_that_cannot_be_switched_on(version_2, tmp_path):
    (tmp_path / "busy").touch()
    with pytest.raises(OSError, match="busy"):
        version_2.make(Owner.this_process(), "2", SIZE)
    assert folders_in(tmp_path) == []


def test_controllers_of_an_owner_that_is_gone_are_leftovers_after_its_groups(version_2, tmp_path):
    gone = another_lab()
    version_2.make(gone, "2", SIZE)
    leftovers = version_2.leftovers()
    assert [folder.name for folder in leftovers] == [gone.name("2"), gone.name("on_memory")]
    assert [lab_groups.clear(folder) for folder in leftovers] == [True, True]
    assert switched_on(tmp_path) == {"cpu"}
    assert folders_in(tmp_path) == []


def test_controllers_are_not_switched_on_in_a_group_that_has_processes(tmp_path):
    own = tmp_path / "box" / "inner"
    own.mkdir(parents=True)
    for folder in (tmp_path, own.parent, own):
        (folder / "cgroup.controllers").write_text("cpu memory\n")
        (folder / "cgroup.subtree_control").write_text("\n")
        (folder / "cgroup.procs").write_text("7\n")
        if folder != tmp_path:
            (folder / "cgroup.type").write_text("domain\n")
    (own.parent / "cgroup.procs").write_text("")
    mounts = f"30 20 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw\n"
    for path, chosen in (("/box/inner", own.parent), ("/box", own.parent), ("/", tmp_path)):
        groups = found(tmp_path, mounts, f"0::{path}\n")
        assert groups is not None
        assert groups.folders == (chosen,)
    assert [file.read_text() for file in tmp_path.rglob("cgroup.subtree_control")] == ["\n"] * 3


def test_the_sweeper_switches_off_what_its_owner_switched_on(tmp_path):
    me = Owner.this_process()
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory")
    for name in ("2", "on_memory"):
        (tmp_path / me.name(name)).mkdir()
    command = [sys.executable, "-I", "-S", sweeper.__file__, me.prefix, str(tmp_path)]
    assert subprocess.run(command, stdin=subprocess.DEVNULL, check=False, timeout=60).returncode == 0
    assert folders_in(tmp_path) == []
    assert (tmp_path / "cgroup.subtree_control").read_text() == "-memory"


def test_the_sweeper_knows_how_names_of_labs_begin():
    assert f"{owners.PREFIX}-" == sweeper.LABS
