"""The Spark session that a topology runs on, and why each of its settings is as it is."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.cluster.provider import Provider
from penstock.settings import Settings

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])


def session_conf(settings: Settings) -> dict[str, str]:
    conf = {
        # A bundle belongs on its slot, so Spark must rather wait for the slot than go elsewhere.
        "spark.locality.wait": f"{int(settings.locality_wait * 1000)}ms",
        # One pool an operator: a busy operator does not starve the others.
        "spark.scheduler.mode": "FAIR",
        "spark.task.maxFailures": str(settings.task_retries),
        # The default manager forks a chmod for every file: 120 ms of a micro-batch instead of about 25.
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        # Over TCP, Nagle's algorithm and delayed acknowledgements add 40 ms to every Python task.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.worker.reuse": "true",
        # Rows that pass between Spark SQL and Python: fewer, larger batches.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.streaming.metricsEnabled": "false",
        # Spark's questions wait in the intake, so an empty answer need not be followed by a pause.
        "spark.sql.streaming.pollingDelay": "1ms",
        "spark.sql.streaming.stopTimeout": "30s",
        "spark.sql.streaming.numRecentProgressUpdates": "50",
        "spark.decommission.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": f"{settings.driver_memory_mb}m",
        "spark.log.level": "WARN",
    }
    if settings.state_store == "rocksdb":
        conf["spark.sql.streaming.stateStore.providerClass"] = _ROCKSDB
        # A commit writes what changed, not the whole store.
        conf["spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"] = "true"
    return conf


def open_session(
    name: str, provider: Provider, settings: Settings, python_path: Sequence[str], user_conf: Mapping[str, str]
) -> SparkSession:
    """A new session; there must be no other in this process, because Spark would hand that one out instead."""
    os.environ.update(provider.driver_environment())
    # Executors run this Python, unless the user has named another one for their machines.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    path = os.pathsep.join(dict.fromkeys([_PACKAGE_ROOT, *python_path]))
    builder = SparkSession.builder.appName(name).master(provider.master_url)
    penstock_conf = session_conf(settings) | provider.spark_conf() | {"spark.executorEnv.PYTHONPATH": path}
    conf = penstock_conf | dict(user_conf)
    for key, value in conf.items():
        builder = builder.config(key, value)
    os.environ["PYTHONPATH"] = path  # local mode forks its Python workers from this process' environment
    with _own_interrupt():
        return builder.getOrCreate()


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """PySpark takes over Ctrl-C when it starts (it cancels all jobs); what it means is for our caller to say."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
