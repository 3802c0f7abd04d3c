"""How a master and a worker of Spark's standalone cluster are launched, and how they are spoken to."""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.cluster.provider import LOOPBACK

#: The daemons do little and should be up soon: compiling less and collecting simply halves their start (9 s to 4 s on
#: two cores).
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: Executors run for long and do work, so the compiler stays; their heaps are small, and a slot is often one core.
EXECUTOR_JVM = "-XX:+UseSerialGC"
DECOMMISSION = "-Dspark.decommission.enabled=true"
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


def spark_home() -> Path:
    """The same Spark that the driver uses."""
    # Imported late: to know what a cluster looks like needs no pyspark.
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())


def master_command(ports: Ports | None = None) -> list[str]:
    """A master on free ports, or on those of the one that it replaces: workers and drivers know no others."""
    service, ui = (ports.service, ports.ui) if ports else (0, 0)
    return _spark_class("master.Master", {"--host": LOOPBACK, "--port": service, "--webui-port": ui})


def worker_command(host: str, cores: int, memory_mb: int, work_dir: Path, master_url: str) -> list[str]:
    addresses: dict[str, object] = {"--host": host, "--port": 0, "--webui-port": 0}
    size = {"--cores": cores, "--memory": f"{memory_mb}m", "--work-dir": work_dir}
    return [*_spark_class("worker.Worker", addresses | size), master_url]


def _spark_class(name: str, options: Mapping[str, object]) -> list[str]:
    words = [str(word) for option in options.items() for word in option]
    return [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]


def daemon_environment(inherited: Mapping[str, str], work_dir: Path, host: str) -> dict[str, str]:
    """The environment of a daemon, and so of the executors and Python workers below it."""
    # What a user set for another cluster (SPARK_WORKER_CORES, SPARK_PUBLIC_DNS, ...) would quietly change this one.
    environment = {name: value for name, value in inherited.items() if not name.startswith("SPARK_")}
    # A relative PYTHONPATH means something else in an executor's folder; the package itself must be found in any case.
    package = str(Path(__file__).parents[2])
    paths = [package, *filter(None, inherited.get("PYTHONPATH", "").split(os.pathsep))]
    return environment | {
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": host,
        "SPARK_CONF_DIR": str(conf_folder(work_dir)),
        "SPARK_LOCAL_DIRS": str(scratch_folder(work_dir) / host),
        "SPARK_LAUNCHER_OPTS": QUICK_JVM,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
        "SPARK_MASTER_OPTS": " ".join(_master_options(work_dir)),
        "SPARK_WORKER_OPTS": DECOMMISSION,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(str(Path(path).absolute()) for path in paths)),
    }


def _master_options(work_dir: Path) -> list[str]:
    return [
        DECOMMISSION,
        # The server for submitting applications would take a fixed port, and nobody needs it.
        "-Dspark.master.rest.enabled=false",
        # Every user of this computer can open the master's page: nobody may end the application there.
        "-Dspark.ui.killEnabled=false",
        # A master that is started again finds the application and the workers of the one before it.
        "-Dspark.deploy.recoveryMode=FILESYSTEM",
        f"-Dspark.deploy.recoveryDirectory={_quoted(work_dir / 'recovery')}",
        # How long it waits then for those that do not answer: by default a minute, in which nobody gets an executor.
        "-Dspark.worker.timeout=15",
    ]


def _quoted(path: Path) -> str:
    """These options are cut at blanks by Spark's launcher, which understands quotes."""
    return f'"{path}"' if " " in str(path) else str(path)


def write_conf(work_dir: Path) -> None:
    """The configuration folder that the daemons, their executors and the driver read instead of the installation's.

    It holds a secret of this cluster alone: loopback addresses are open to every user of this computer, and whoever may
    speak to an executor or a driver may have it run anything. A file, since command lines can be read by all."""
    conf = conf_folder(work_dir)
    for folder in (conf, work_dir / "recovery"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (conf / "log4j2.properties").write_text(LOG4J)
    defaults = conf / "spark-defaults.conf"
    defaults.touch(mode=0o600)
    defaults.write_text(f"spark.authenticate true\nspark.authenticate.secret {secrets.token_hex(32)}\n")


def scratch_folder(work_dir: Path) -> Path:
    """What nobody needs when the cluster has ended: shuffle files and local copies of state."""
    return work_dir / "scratch"


def conf_folder(work_dir: Path) -> Path:
    return work_dir / "conf"


def decommission(master_ui: int, host: str) -> None:
    """Tell the master that a machine is to leave: its executors take no more tasks and go."""
    _ask(f"http://{LOOPBACK}:{master_ui}/workers/kill/?host={host}", "POST")


def running_executors(host: str, worker_ui: int) -> int:
    """How many executors a worker runs now."""
    return len(json.loads(_ask(f"http://{host}:{worker_ui}/json/", "GET"))["executors"])


def _ask(url: str, method: str) -> bytes:
    # A proxy set in the environment knows nothing about this computer's loopback addresses.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(urllib.request.Request(url, method=method), timeout=10) as answer:  # noqa: S310
        content: bytes = answer.read()
    return content
