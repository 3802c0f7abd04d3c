"""A real standalone cluster: four executors on two machines, and no process left whichever way its owner ends.

The owner is a process of its own, so that the test process keeps no JVM. Everything below it, Spark's Python workers
too, inherits an environment variable that marks it.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from foreground import hearing_ctrl_c

import penstock

pytestmark = pytest.mark.timeout(180)

MARK = "PENSTOCK_TEST_MARK"
OWNER = """
import os, signal, sys, time
from pathlib import Path
from penstock.cluster.provider import Executor
from penstock.cluster.standalone import StandaloneCluster

def leave(*_):
    raise SystemExit(0)

signal.signal(signal.SIGTERM, leave)

def connect(cluster):
    os.environ.update(cluster.driver_environment())
    from pyspark.sql import SparkSession
    builder = SparkSession.builder.master(cluster.master_url)
    conf = cluster.spark_conf() | {"spark.ui.enabled": "false", "spark.driver.extraJavaOptions": QUICK}
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()

def executors(spark):
    found = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    found = [found.apply(i) for i in range(found.size())]
    return [Executor(e.id(), e.hostPort().rpartition(":")[0], e.totalCores()) for e in found if e.id() != "driver"]

def host(_):
    return [os.environ["SPARK_LOCAL_IP"]]

def say(*words):
    print(*words, flush=True)

# These sessions live for seconds: compiling less halves what starting them costs.
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
machines, slots = int(sys.argv[2]), int(sys.argv[3])
cluster = StandaloneCluster(machines, slots, 1, 2, Path(sys.argv[1]), executor_java_options=QUICK)
try:
    cluster.start()
    {body}
finally:
    cluster.stop()
"""
JOB_THEN_END = """
    spark = connect(cluster)
    for slot, executor in cluster.bind(lambda: executors(spark), 120).items():
        say("slot", slot, executor.id, executor.host, executor.cores)
    say("ran", *sorted(spark.sparkContext.parallelize(range(16), 16).mapPartitions(host).distinct().collect()))
    cluster.remove_machine("127.0.0.2")
    say("left", *sorted({executor.host for executor in executors(spark)}))
    spark.stop()
"""
JOB_THAT_RUNS = """
    spark = connect(cluster)
    cluster.bind(lambda: executors(spark), 120)
    sign = Path(sys.argv[1], "busy")
    def busy(_):
        sign.touch()
        time.sleep(120)
    import threading
    threading.Thread(target=spark.sparkContext.parallelize([0, 1], 2).foreach, args=[busy], daemon=True).start()
    while not sign.exists():
        time.sleep(0.05)
    say("ready")
    time.sleep(120)
"""
JUST_WAIT = 'say("ready"); time.sleep(120)'
RAISE = 'say("ready"); raise RuntimeError("on purpose")'


class Owner:
    """A process that runs a cluster, and the means to see what is left of it."""

    def __init__(self, work_dir: Path, body: str, machines: int = 1, slots: int = 1) -> None:
        self.mark = uuid.uuid4().hex
        self.log = work_dir / "owner.log"
        environment = os.environ | {"PYTHONPATH": str(Path(penstock.__file__).parents[1]), MARK: self.mark}
        script = OWNER.replace("{body}", body.strip())
        with self.log.open("wb") as log, hearing_ctrl_c():
            self.process = subprocess.Popen(
                [sys.executable, "-c", script, str(work_dir), str(machines), str(slots)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def lines(self) -> list[list[str]]:
        """All it says until it ends."""
        output, _ = self.process.communicate(timeout=150)
        assert self.process.returncode == 0, self.log.read_text()
        return [line.split() for line in output.splitlines()]

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n", self.log.read_text()

    def marked(self) -> list[str]:
        """The command lines of every running process that came from it."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(process.cmdline()))
        return found

    def assert_nothing_is_left(self, within: float) -> None:
        deadline = time.monotonic() + within
        while left := self.marked():
            assert time.monotonic() < deadline, "\n".join(left)
            time.sleep(0.05)


@pytest.fixture
def start(tmp_path) -> Iterator[type[Owner]]:
    owners = []

    def start(*args, **kwargs):
        owners.append(Owner(tmp_path, *args, **kwargs))
        return owners[-1]

    yield start
    for owner in owners:
        owner.process.kill()
        owner.process.communicate()


@pytest.mark.live
def test_two_machines_with_two_slots_each_run_a_job_lose_one_and_leave_nothing(start):
    owner = start(JOB_THEN_END, machines=2, slots=2)
    lines = owner.lines()
    first, second = "127.0.0.2", "127.0.0.3"
    slots = {words[1]: (words[3], words[4]) for words in lines if words[0] == "slot"}
    assert slots == {f"{host}/{index}": (host, "2") for host in (first, second) for index in (0, 1)}
    assert ["ran", first, second] in lines
    assert ["left", second] in lines
    owner.assert_nothing_is_left(within=1.0)


def test_sigkill_leaves_neither_executors_nor_python_workers(start):
    owner = start(JOB_THAT_RUNS)
    owner.wait_until_ready()
    running = "\n".join(owner.marked())
    for part in ("guard.py", "deploy.master.Master", "deploy.worker.Worker", "CoarseGrainedExecutor", "pyspark.daemon"):
        assert part in running
    owner.process.kill()
    owner.assert_nothing_is_left(within=15.0)


@pytest.mark.parametrize(
    ("body", "number"),
    [(RAISE, None), (JUST_WAIT, signal.SIGTERM), (JUST_WAIT, signal.SIGINT)],
    ids=["exception", "SIGTERM", "SIGINT"],
)
def test_an_owner_that_cleans_up_leaves_nothing(start, body, number):
    owner = start(body)
    owner.wait_until_ready()
    if number:
        owner.process.send_signal(number)
    owner.process.wait(30)
    owner.assert_nothing_is_left(within=1.0)
