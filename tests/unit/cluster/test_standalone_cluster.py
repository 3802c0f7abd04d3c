"""The standalone cluster without Spark: a fake `spark-class` plays the daemons."""

import contextlib
import os
import sys
import time
from pathlib import Path

import pytest

from penstock.cluster import addresses, daemons, standalone
from penstock.cluster.ground import Loopback
from penstock.cluster.provider import Executor
from penstock.cluster.standalone import StandaloneCluster
from penstock.errors import PenstockError

SAYS_PORTS = """
case "$*" in
  *Master*)
    echo 'INFO Master: Starting Spark master at spark://127.0.0.1:7001'
    echo 'INFO MasterWebUI: Bound MasterWebUI to 127.0.0.1, and started at http://localhost:7002' ;;
  *127.0.0.3*) {third} ;;
esac
exec sleep 60
"""


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    """Install a script as spark-class."""
    script = tmp_path / "spark" / "bin" / "spark-class"
    script.parent.mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))

    def install(text: str) -> None:
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o755)

    install(SAYS_PORTS.format(third="true"))
    return install


@pytest.fixture
def cluster(tmp_path):
    cluster = StandaloneCluster(2, 2, cores=1, task_threads_per_slot=4, work_dir=tmp_path / "work")
    yield cluster
    cluster.stop()


def name_of(caught: pytest.ExceptionInfo[PenstockError]) -> str:
    return caught.value.name


def executors(*hosts: str) -> list[Executor]:
    return [Executor(str(i), host, 4) for i, host in enumerate(hosts)]


def test_machines_come_and_go_and_slots_are_bound(daemon, cluster):
    cluster.start()
    assert cluster.master_url == "spark://127.0.0.1:7001"
    assert [slot.name for slot in cluster.cluster.slots] == ["127.0.0.2/0", "127.0.0.2/1", "127.0.0.3/0", "127.0.0.3/1"]
    two = executors("127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.2")
    answers = [[], two[:2], two]
    bound = cluster.bind(lambda: answers.pop(0), 5.0)
    assert [who and who.id for who in bound.values()] == ["0", "3", "1", "2"]
    [new] = cluster.upcoming(1)
    assert new.name == "127.0.0.4"
    assert cluster.arrived(new) is None, "nobody asked for it"
    cluster.add_machine(new)
    assert cluster.arrived(new) is None, "its executors are still to come"
    three = [*two, *(Executor(str(number), "127.0.0.4", 4) for number in (4, 5))]
    cluster.bound(lambda: three)
    assert cluster.arrived(new) == {slot: slot for slot in new.slots}
    cluster.remove_machine("127.0.0.2")
    assert [machine.name for machine in cluster.cluster.machines] == ["127.0.0.3", "127.0.0.4"]
    assert cluster.upcoming(1)[0].name == "127.0.0.2", "the address of a machine that left is free again"
    cluster.stop()
    cluster.stop()
    assert cluster.cluster.machines == ()
    with pytest.raises(PenstockError) as caught:
        cluster.bind(list, 1.0)
    assert name_of(caught) == "CLUSTER_FAILED"


def test_slots_without_an_executor_are_named_with_the_executors_last_words(daemon, cluster, tmp_path):
    cluster.start()
    stderr = tmp_path / "work" / "127.0.0.3" / "app-1" / "0" / "stderr"
    stderr.parent.mkdir(parents=True)
    stderr.write_text("cannot allocate memory\n")
    with pytest.raises(PenstockError, match=r"127\.0\.0\.3/0, 127\.0\.0\.3/1.*\n(.*\n)*cannot allocate") as caught:
        cluster.bind(lambda: executors("127.0.0.2", "127.0.0.2"), 0.1)
    assert name_of(caught) == "CLUSTER_FAILED"


def test_a_worker_that_ends_is_reported_at_once(daemon, cluster):
    daemon(SAYS_PORTS.format(third="echo 'no such disk'; exit 2"))
    cluster.start()
    began = time.monotonic()
    with pytest.raises(PenstockError, match=r"127\.0\.0\.3 .*exit code 2[^$]*no such disk") as caught:
        cluster.bind(list, 60.0)
    assert name_of(caught) == "CLUSTER_FAILED"
    assert time.monotonic() < began + 30


def test_a_master_that_ends_is_reported_with_its_log(daemon, cluster):
    daemon("echo 'the port is taken'; exit 1")
    with pytest.raises(PenstockError, match="the port is taken") as caught:
        cluster.start()
    assert name_of(caught) == "CLUSTER_FAILED"


def test_a_master_that_says_nothing_is_given_up_and_ended(daemon, cluster, monkeypatch):
    daemon("exec sleep 60")
    monkeypatch.setattr(standalone, "START_SECONDS", 0.2)
    with pytest.raises(PenstockError) as caught:
        cluster.start()
    assert name_of(caught) == "CLUSTER_FAILED"
    assert cluster._master is None


def test_an_address_that_cannot_be_had(daemon, cluster, monkeypatch):
    # 203.0.113.0/24 is for documentation: no computer has it.
    monkeypatch.setattr(Loopback, "free", lambda self, taken: addresses.free(taken, "203.0.113."))
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(PenstockError, match=r"ifconfig lo0 alias 203\.0\.113\.2") as caught:
        cluster.start()
    assert name_of(caught) == "BAD_CLUSTER"


def test_an_unknown_machine_cannot_be_removed(daemon, cluster):
    with pytest.raises(PenstockError) as caught:
        cluster.remove_machine("127.0.0.9")
    assert name_of(caught) == "NO_SUCH_MACHINE"


def test_slots_are_bound_one_by_one_when_executors_come_back(daemon, cluster):
    cluster.start()
    four = executors("127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3")
    cluster.bound(lambda: four)
    left = cluster.bound(lambda: four[:2])
    assert [slot.name for slot in left] == ["127.0.0.2/0", "127.0.0.2/1"]
    back = cluster.bound(lambda: [*four[:2], Executor("7", "127.0.0.3", 4)])
    ids = {slot.name: who.id for slot, who in back.items()}
    assert ids == {"127.0.0.2/0": "0", "127.0.0.2/1": "1", "127.0.0.3/0": "7"}


def test_daemons_that_end_are_started_again_but_not_without_end(daemon, cluster, monkeypatch):
    cluster.start()
    assert cluster.tend() == []
    cluster._workers["127.0.0.3"].process.terminate(0)
    [text] = cluster.tend()
    assert "127.0.0.3" in text
    assert cluster._workers["127.0.0.3"].process.alive
    cluster._master.terminate(0)
    [text] = cluster.tend()
    assert "master" in text
    assert cluster.master_url == "spark://127.0.0.1:7001", "on the port that workers and driver know"
    monkeypatch.setattr(standalone, "MOST_RESTARTS", 1)
    cluster._master.terminate(0)
    assert cluster.tend() == []
    with pytest.raises(PenstockError) as caught:
        cluster.bind(list, 1.0)
    assert name_of(caught) == "CLUSTER_FAILED"


def test_a_new_machine_whose_worker_ends_is_started_again_and_may_still_arrive(daemon, cluster, monkeypatch):
    cluster.start()
    [new] = cluster.upcoming(1)
    cluster.add_machine(new)
    cluster._workers[new.name].process.terminate(0)
    assert cluster.arrived(new) is None, "whoever looks first, the change or who tends the daemons: it is the same"
    [text] = cluster.tend()
    assert new.name in text
    assert cluster.arrived(new) is None
    cluster.bound(lambda: executors(new.name, new.name))
    assert cluster.arrived(new) == {slot: slot for slot in new.slots}
    monkeypatch.setattr(standalone, "MOST_RESTARTS", 1)
    cluster._workers[new.name].process.terminate(0)
    assert cluster.tend() == []
    with pytest.raises(PenstockError, match="has ended") as caught:
        cluster.arrived(new)
    assert name_of(caught) == "CLUSTER_FAILED"


def test_the_masters_log_is_read_until_it_listens_and_no_more(daemon, cluster, monkeypatch):
    cluster.start()
    assert cluster.tend() == []
    read, reads = daemons.Ports.read, []
    monkeypatch.setattr(daemons.Ports, "read", staticmethod(lambda log: reads.append(log) or read(log)))
    assert [cluster.tend() for _ in range(3)] == [[]] * 3
    assert reads == []
    cluster._master.terminate(0)
    cluster._workers["127.0.0.3"].process.terminate(0)
    [text] = cluster.tend()
    assert "master" in text
    while not (said := cluster.tend()):
        time.sleep(0.01)
    assert "127.0.0.3" in said[0]
    assert reads, "a master that is new has to say where it listens"


def test_of_machines_that_are_gone_the_last_executors_folders_stay(daemon, cluster, tmp_path):
    cluster.start()
    work = tmp_path / "work"
    for host, numbers in {"127.0.0.2": (0, 7), "127.0.0.3": (1, 3, 9, 10, 11)}.items():
        for number in numbers:
            (work / host / "app-2" / str(number)).mkdir(parents=True)
            (work / host / "app-2" / str(number) / "stderr").write_text("last words")
    (work / "127.0.0.9" / "app-1" / "12").mkdir(parents=True)  # of an earlier run
    cluster.remove_machine("127.0.0.3")

    def left(host):
        return sorted(int(one.name) for one in (work / host).glob("app-*/*"))

    assert left("127.0.0.3") == [9, 10, 11]
    assert left("127.0.0.2") == [0, 7], "that machine is there"
    assert list((work / "127.0.0.9").iterdir()) == []
    assert (work / "conf" / "daemons.conf").exists()


def test_of_earlier_runs_the_last_executors_folders_stay(daemon, cluster, tmp_path):
    """Also those of machines that this run has again: the machines of a state folder have the same names every time."""
    for run in range(5):
        folder = tmp_path / "work" / "127.0.0.2" / f"app-{run}" / "0"
        folder.mkdir(parents=True)
        (folder / "stderr").write_text("last words")
        os.utime(folder / "stderr", (1000 + run, 1000 + run))
    cluster.start()
    assert sorted(one.name for one in (tmp_path / "work" / "127.0.0.2").iterdir()) == ["app-2", "app-3", "app-4"]


def test_workers_keep_the_newest_of_what_executors_print(daemon, cluster, tmp_path):
    cluster.start()
    conf = (tmp_path / "work" / "conf" / "daemons.conf").read_text()
    assert "spark.executor.logs.rolling.strategy size\n" in conf
    assert "spark.executor.logs.rolling.maxRetainedFiles 3\n" in conf


def test_there_are_only_so_many_addresses(daemon, cluster):
    with pytest.raises(PenstockError) as caught:
        cluster.upcoming(254)
    assert name_of(caught) == "BAD_CLUSTER"


@pytest.mark.parametrize("wrong", [{"machines": 0}, {"slots": 0}, {"executor_memory_mb": 100}])
def test_a_cluster_that_cannot_be(wrong, tmp_path):
    right = {"machines": 1, "slots": 1, "cores": 1, "task_threads_per_slot": 1, "work_dir": tmp_path}
    with pytest.raises(PenstockError) as caught:
        StandaloneCluster(**(right | wrong))
    assert name_of(caught) == "BAD_CLUSTER"


def test_task_threads_are_sparks_cores(daemon, cluster, tmp_path):
    conf = cluster.spark_conf()
    assert conf["spark.executor.cores"] == "4"
    network = [value for name, value in conf.items() if name.endswith((".io.serverThreads", ".io.clientThreads"))]
    assert network == ["2"] * 4, "they are for connections, and not for tasks"
    command = daemons.worker_command("127.0.0.2", 8, 1024, tmp_path, "spark://m:1")
    assert command[command.index("--cores") + 1] == "8"
    assert command[command.index("--memory") + 1] == "1024m"
    assert command[-1] == "spark://m:1"


def test_a_daemon_gets_no_foreign_spark_settings_and_absolute_paths(daemon, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inherited = {"SPARK_WORKER_CORES": "1", "SPARK_PUBLIC_DNS": "elsewhere", "HOME": "/h", "PYTHONPATH": "src"}
    environment = daemons.daemon_environment(inherited, tmp_path, "127.0.0.2")
    assert "SPARK_WORKER_CORES" not in environment
    assert "SPARK_PUBLIC_DNS" not in environment
    assert environment["HOME"] == "/h"
    assert environment["PYSPARK_PYTHON"] == sys.executable
    package, user = environment["PYTHONPATH"].split(os.pathsep)
    assert (Path(package) / "penstock").is_dir()
    assert user == str(tmp_path / "src")


def test_what_a_cluster_leaves_in_its_scratch_folder_is_deleted(daemon, cluster, tmp_path):
    left = tmp_path / "work" / "scratch" / "127.0.0.2" / "left-by-one-that-was-killed"
    left.mkdir(parents=True)
    cluster.start()
    assert not left.exists()
    left.mkdir(parents=True)
    cluster.stop()
    assert not (tmp_path / "work" / "scratch").exists()


class RecordedGround(Loopback):
    """Loopback addresses, and a record of what was asked of them."""

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "asked", [])

    def settle(self, name):
        self.asked.append(f"settle {name}")

    def leave(self, name):
        self.asked.append(f"leave {name}")

    @contextlib.contextmanager
    def within(self, name):
        self.asked.append(f"into {name}")
        yield

    def environment(self, name):
        return {"GROUND": name}

    def close(self):
        self.asked.append("close")


def test_processes_are_started_on_the_ground_and_the_ground_goes_last(daemon, tmp_path):
    ground = RecordedGround()
    cluster = StandaloneCluster(1, 1, cores=1, task_threads_per_slot=4, work_dir=tmp_path / "work", ground=ground)
    daemon(SAYS_PORTS.format(third="true").replace("exec sleep", "echo ground $GROUND; exec sleep"))
    try:
        cluster.start()
        [new] = cluster.upcoming(1)
        cluster.add_machine(new)
        log = cluster._workers[new.name].process.log
        while "ground" not in log.read_text():
            time.sleep(0.02)
        assert f"ground {new.name}" in log.read_text()
        cluster.remove_machine(new.name)
    finally:
        cluster.stop()
    assert ground.asked == [
        "into 127.0.0.1",
        *("settle 127.0.0.2", "into 127.0.0.2"),
        *("settle 127.0.0.3", "into 127.0.0.3", "leave 127.0.0.3"),
        "close",
    ]
