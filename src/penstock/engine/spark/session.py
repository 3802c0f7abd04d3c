"""The Spark session that a topology runs on, and why each of its settings is as it is."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from pyspark.sql import SparkSession

from penstock.cluster.provider import DRIVER_JAVA, Provider
from penstock.engine.spark.driver_jvm import start_jvm
from penstock.settings import Settings

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[3])

#: How many finished batches a checkpoint can still be read at. Penstock needs the last two; the others are for whoever
#: looks into a checkpoint with Spark's state reader.
BATCHES_KEPT = 20


def session_conf(settings: Settings) -> dict[str, str]:
    """The Spark settings of every session, whatever cluster it is on."""
    conf = {
        # A bundle belongs on its slot, so Spark must rather wait for the slot than go elsewhere.
        "spark.locality.wait": f"{int(settings.locality_wait * 1000)}ms",
        # One pool an operator: a busy operator does not starve the others.
        "spark.scheduler.mode": "FAIR",
        "spark.task.maxFailures": str(settings.task_retries),
        # The default manager forks a chmod for every file: 120 ms of a micro-batch instead of about 25.
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        # Over TCP, a Python task was seen to wait 38 ms for its first bytes (Nagle's algorithm and delayed
        # acknowledgements would explain it). Over a Unix socket it does not wait.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.worker.reuse": "true",
        # Workers are forked with everything loaded: a new one is ready in milliseconds, not in a second.
        "spark.python.daemon.module": "penstock.engine.executor.worker_daemon",
        # Rows that pass between Spark SQL and Python: fewer, larger batches.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.streaming.metricsEnabled": "false",
        # Spark's questions wait in the intake, so an empty answer need not be followed by a pause.
        "spark.sql.streaming.pollingDelay": "1ms",
        "spark.sql.streaming.stopTimeout": "30s",
        # A start goes on from the last batch, and compares that one with the catalog. By default Spark keeps the files
        # of 100 batches and more: of the soak's one keyed operator some 2,500.
        "spark.sql.streaming.minBatchesToRetain": str(BATCHES_KEPT),
        "spark.sql.streaming.numRecentProgressUpdates": "50",
        "spark.decommission.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": f"{settings.driver_memory_mb}m",
        "spark.log.level": "WARN",
        # Spark's records of what has run: of the last batch of every operator, and not of hours. By default the heap
        # grows until it has a thousand plans.
        "spark.ui.retainedJobs": "400",
        "spark.ui.retainedStages": "800",
        "spark.ui.retainedDeadExecutors": "10",
        "spark.sql.ui.retainedExecutions": "20",
        # Spark deletes the files of old shuffles when the driver has collected its garbage, which a driver with little
        # to do does only when it is told to: by default every half hour.
        "spark.cleaner.periodicGC.interval": "5min",
    }
    if settings.state_store == "rocksdb":
        conf["spark.sql.streaming.stateStore.providerClass"] = _ROCKSDB
        # A commit writes what changed, not the whole store.
        conf["spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"] = "true"
        # How many commits until the next snapshot. By default they are 10, a few seconds, and each snapshot is a
        # checkpoint of RocksDB on the executor's disk. So they are as many as the longest batches make in a minute.
        longest = settings.longest_batch
        conf["spark.sql.streaming.stateStore.minDeltasForSnapshot"] = str(max(10, min(50, int(60 / longest))))
        # How often the newest snapshot is uploaded. Who loads the state, at a move or a repartition, reads all changes
        # since: by default up to a minute of them. As often, executors drop the state of tasks that are elsewhere.
        conf["spark.sql.streaming.stateStore.maintenanceInterval"] = "30s"
    return conf


def open_session(
    name: str, provider: Provider, settings: Settings, python_path: Sequence[str], user_conf: Mapping[str, str]
) -> SparkSession:
    """A new session; there must be no other in this process, because Spark would hand that one out instead."""
    os.environ.update(provider.driver_environment())
    # Executors run this Python, unless the user has named another one for their machines.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    own = [str(Path(entry).absolute()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    path = os.pathsep.join(dict.fromkeys([_PACKAGE_ROOT, *python_path, *own]))
    # A bundle's parallelism is its instances: numpy shall not start threads of its own below them, nor in the daemon
    # that forks the workers.
    environment = {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": os.environ.get("OPENBLAS_NUM_THREADS", "1")}
    for_executors = {f"spark.executorEnv.{name}": value for name, value in environment.items()}
    named = {"spark.app.name": name, "spark.master": provider.master_url}
    conf = named | session_conf(settings) | provider.spark_conf() | for_executors | dict(user_conf)
    conf, for_driver = with_java_options(conf, provider.java_options())
    if for_driver:
        os.environ["SPARK_SUBMIT_OPTS"] = f"{for_driver} {os.environ.get('SPARK_SUBMIT_OPTS', '')}".strip()
    os.environ.update(environment)  # the Python workers of local mode get it from here
    with _undisturbed():
        start_jvm(conf)
        builder = SparkSession.builder
        for key, value in conf.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()


def with_java_options(conf: Mapping[str, str], options: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """The settings with a cluster's options of Java before the user's own, and the options of the driver's JVM, which
    go into its environment. As a setting they would take the place of what spark-defaults.conf says."""
    merged = dict(conf)
    for setting, own in options.items():
        if own and setting != DRIVER_JAVA:
            merged[setting] = f"{own} {conf.get(setting, '')}".strip()
    return merged, options.get(DRIVER_JAVA, "")


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back while PySpark starts: a start that is cut off before PySpark knows its JVM would
    leave a JVM that nobody can end. PySpark also takes over Ctrl-C for good, to cancel all jobs; what Ctrl-C means is
    for our caller to say, so the handlers of before are put back. A second request is not held back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def keep(number: int, frame: FrameType | None) -> None:
        came.append(number)
        handler = before[number]
        if len(came) > 1 and callable(handler):
            handler(number, frame)

    before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # what is ignored must not take the place of what is not
            signal.signal(number, keep)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
    for number in came[:1]:
        signal.raise_signal(number)
