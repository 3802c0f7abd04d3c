"""How a master and a worker of Spark's standalone cluster are launched; pages.py is how they are spoken to."""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.cluster import class_archive
from penstock.cluster.class_archive import quoted
from penstock.cluster.pages import Pages
from penstock.cluster.spark_home import spark_home

#: The daemons do little and should be up soon: compiling less and collecting simply halves their start (9 s to 4 s on
#: two cores).
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: A heap that begins small grows only as far as what lives in it needs. By default it begins with a 64th of the
#: machine's memory: from 16 GB on that is all that a daemon may have, and it fills up before anything is collected.
SMALL_HEAP = "-Xms32m"
#: Executors run for long and do work, so the compiler stays; their heaps are small, and a slot is often one core.
EXECUTOR_JVM = "-XX:+UseSerialGC"
DECOMMISSION = "-Dspark.decommission.enabled=true"
#: How many seconds a master that was started again waits for workers that do not answer: by default it is a minute, in
#: which nobody gets an executor. Workers must know it too: they send a heartbeat four times in this time. A worker with
#: the default would send one every 15 seconds, and the master would drop a machine whose heartbeat is a little late.
WORKER_TIMEOUT = "-Dspark.worker.timeout=15"
#: Workers write down what their executors print, and keep the newest of it: by default all of it, for ever.
EXECUTOR_LOGS = {
    "spark.executor.logs.rolling.strategy": "size",
    "spark.executor.logs.rolling.maxSize": str(1 << 20),
    "spark.executor.logs.rolling.maxRetainedFiles": "3",
}
#: The daemons say where they listen at INFO; everything else, executors too, would fill the disk at that level.
LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
logger.deploy.name = org.apache.spark.deploy
logger.deploy.level = info
"""


@dataclass(frozen=True)
class Ports:
    """Where a daemon listens, read from its log: with port 0 the system picks a free one."""

    service: int
    ui: int

    @staticmethod
    def read(log: str) -> Ports | None:
        service = re.search(r"(?:Starting Spark master at spark://|Starting Spark worker )[^\s:]+:(\d+)", log)
        ui = re.search(r"Bound (?:Master|Worker)WebUI to .* started at http://\S+:(\d+)", log)
        return Ports(int(service[1]), int(ui[1])) if service and ui else None


def master_command(work_dir: Path, host: str, ports: Ports | None = None) -> list[str]:
    """A master on free ports, or on those of the one that it replaces: workers and drivers know no others."""
    service, ui = (ports.service, ports.ui) if ports else (0, 0)
    addresses: dict[str, object] = {"--host": host, "--port": service, "--webui-port": ui}
    return _spark_class("master.Master", addresses | {"--properties-file": daemon_properties(work_dir)})


def worker_command(host: str, cores: int, memory_mb: int, work_dir: Path, master_url: str) -> list[str]:
    """A worker on free ports, for so many task threads and so much memory of executors."""
    addresses: dict[str, object] = {"--host": host, "--port": 0, "--webui-port": 0}
    size = {"--cores": cores, "--memory": f"{memory_mb}m", "--work-dir": work_dir / host}
    properties = {"--properties-file": daemon_properties(work_dir)}
    return [*_spark_class("worker.Worker", addresses | size | properties), master_url]


def _spark_class(name: str, options: Mapping[str, object]) -> list[str]:
    words = [str(word) for option in options.items() for word in option]
    return [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]


def daemon_environment(inherited: Mapping[str, str], work_dir: Path, host: str) -> dict[str, str]:
    """The environment of a daemon, and so of the executors and Python workers below it."""
    # Variables that a user set for another cluster (SPARK_WORKER_CORES, ...) would quietly change this one.
    environment = {name: value for name, value in inherited.items() if not name.startswith("SPARK_")}
    # A relative PYTHONPATH means something else in an executor's folder; the package itself must be found in any case.
    package = str(Path(__file__).parents[2])
    paths = [package, *filter(None, inherited.get("PYTHONPATH", "").split(os.pathsep))]
    return environment | {
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": host,
        "SPARK_CONF_DIR": str(no_conf_folder(work_dir)),
        "SPARK_LOCAL_DIRS": str(scratch_folder(work_dir) / host),
        "SPARK_LAUNCHER_OPTS": QUICK_JVM,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_JVM} {SMALL_HEAP} {java_options(work_dir)}",
        "SPARK_MASTER_OPTS": " ".join(_master_options(work_dir)),
        "SPARK_WORKER_OPTS": f"{DECOMMISSION} {WORKER_TIMEOUT}",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(str(Path(path).absolute()) for path in paths)),
    }


def _master_options(work_dir: Path) -> list[str]:
    return [
        DECOMMISSION,
        # The server for submitting applications would take a fixed port, and nobody needs it.
        "-Dspark.master.rest.enabled=false",
        # Nobody needs to end the application on the master's page.
        "-Dspark.ui.killEnabled=false",
        # A master that is started again finds the application and the workers of the one before it.
        "-Dspark.deploy.recoveryMode=FILESYSTEM",
        quoted(f"-Dspark.deploy.recoveryDirectory={work_dir / 'recovery'}"),
        WORKER_TIMEOUT,
    ]


def java_options(work_dir: Path) -> str:
    """The options of every JVM of a cluster: which classes it finds in an archive, and what it logs."""
    log = (conf_folder(work_dir) / "log4j2.properties").as_uri()
    return f"{class_archive.java_options()} -Dlog4j2.configurationFile={log}".strip()


def write_conf(work_dir: Path, pages: Pages) -> None:
    """Write the files that the daemons, their executors and the driver are configured by, instead of the
    installation's.

    It holds secrets of this cluster alone: loopback addresses are open to every user of this computer, and whoever may
    speak to an executor or a driver may have it run anything. The secrets are in files, since everybody can read
    command lines."""
    conf = conf_folder(work_dir)
    work_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    work_dir.chmod(0o700)  # the logs of daemons and executors are here too, and the master's memory
    for folder in (conf, work_dir / "recovery"):
        folder.mkdir(mode=0o700, exist_ok=True)
    (conf / "log4j2.properties").write_text(LOG4J)
    shared = {"spark.authenticate": "true", "spark.authenticate.secret": secrets.token_hex(32)}
    _write_secrets(driver_properties(work_dir), shared)
    _write_secrets(daemon_properties(work_dir), shared | pages.properties() | EXECUTOR_LOGS)


def _write_secrets(file: Path, properties: Mapping[str, str]) -> None:
    file.touch(mode=0o600)
    file.chmod(0o600)
    file.write_text("".join(f"{name} {value}\n" for name, value in properties.items()))


def scratch_folder(work_dir: Path) -> Path:
    """The folder of files that nobody needs when the cluster has ended: shuffle files and local copies of state."""
    return work_dir / "scratch"


def conf_folder(work_dir: Path) -> Path:
    """The configuration folder."""
    return work_dir / "conf"


def no_conf_folder(work_dir: Path) -> Path:
    """What Spark is told to be its configuration folder: a folder that is not there. Spark puts that folder into the
    class path, and a JVM with a folder in its class path can use no archive of classes (class_archive.py)."""
    return conf_folder(work_dir) / "none"


def driver_properties(work_dir: Path) -> Path:
    """The settings of the driver."""
    return conf_folder(work_dir) / "driver.conf"


def daemon_properties(work_dir: Path) -> Path:
    """The settings of master and workers: with the key to their pages, which the driver has no use for."""
    return conf_folder(work_dir) / "daemons.conf"
