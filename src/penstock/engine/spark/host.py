"""Spark as a topology's host: a cluster that was started, a session on it, and which slot is which executor."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from pyspark.sql import SparkSession

from penstock.channels.origins import Origins
from penstock.cluster.class_archive import quoted
from penstock.cluster.java import check_java
from penstock.cluster.model import Cluster
from penstock.cluster.processes import GuardedFolder
from penstock.cluster.provider import Provider
from penstock.engine.spark.driver_jvm import close_callbacks, end_jvm, has_session
from penstock.engine.spark.internals import SparkInternals, missing
from penstock.engine.spark.session import open_session
from penstock.engine.spark.slots import Slots
from penstock.engine.spark.streams import PlacedStreams, Streams
from penstock.engine.spark.unplaced import UnplacedStreams
from penstock.errors import PenstockError
from penstock.logs import set_aside, traced
from penstock.privacy import for_owner_only
from penstock.settings import Settings

#: Environment variables that are set for the JVM and the workers below it.
CHANGED_VARIABLES = (
    "PYTHONPATH",
    "OPENBLAS_NUM_THREADS",
    "PYSPARK_PYTHON",
    "SPARK_LOCAL_IP",
    "SPARK_CONF_DIR",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_SUBMIT_OPTS",
)


class SparkHost:
    """A host is started once and can run one topology after the other. A process can have only one host open, because
    PySpark has one JVM."""

    def __init__(
        self,
        name: str,
        provider: Provider,
        settings: Settings,
        log_folder: Path,
        python_path: Sequence[str] = (),
        spark_conf: Mapping[str, str] | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.provider = provider
        self.settings = settings
        self.log = log_folder / "spark.log"
        self.python_path = python_path
        #: The user's own Spark settings: packages for Kafka, the event log, ...
        self.spark_conf = dict(spark_conf or {})
        #: Hears what is being started: a start takes many seconds, and a user waits.
        self.tell = tell
        #: Why bundles are not placed; empty if they are.
        self.unplaced_because = ""
        #: Where bundles fetch the segments of other machines; None: all read the store.
        self.origins = _origins(provider, settings)
        self._spark: SparkSession | None = None
        self._streams: Streams | None = None
        self._slots: Slots | None = None
        self._environment = dict(os.environ)
        #: The driver JVM's temporary files: it leaves sockets behind when it is not ended in order.
        self._temporary: GuardedFolder | None = None

    def start(self) -> SparkHost:
        check_java()
        if has_session():
            raise PenstockError(
                "BAD_CLUSTER", "this process already has a Spark session.", "Stop that session first: spark.stop()."
            )
        try:
            for_owner_only(str(self.log.parent))
            self.provider.start()
            self._temporary = GuardedFolder()
            if self._temporary.path is not None:
                temporary = quoted(f"-Djava.io.tmpdir={self._temporary.path}")
                os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {temporary}".strip()
            self.tell("starting Spark")
            conf = self.spark_conf
            if self.origins is not None:
                served = {f"spark.executorEnv.{name}": value for name, value in self.origins.as_variable().items()}
                conf = served | conf
            with _output_to(self.log):
                self._spark = open_session(self.name, self.provider, self.settings, self.python_path, conf)
            close_callbacks(self._spark)
            self._streams = self._choose_streams(self._spark)
            self._slots = Slots(self.provider, self._streams.internals)
            self.tell("waiting for the executors")
            self._slots.bind(self.settings.cluster_timeout)
        except BaseException:
            self.stop()
            raise
        return self

    def _choose_streams(self, spark: SparkSession) -> Streams:
        if self.settings.placement == "unplaced":
            self.unplaced_because = "the setting placement=unplaced says so"
        elif lacking := missing(spark):
            self.unplaced_because = f"this Spark lacks {', '.join(lacking)}"
        return UnplacedStreams() if self.unplaced_because else PlacedStreams(SparkInternals(spark))

    @property
    def spark(self) -> SparkSession:
        if self._spark is None:
            raise RuntimeError("the Spark host was not started")
        return self._spark

    @property
    def streams(self) -> Streams:
        if self._streams is None:
            raise RuntimeError("the Spark host was not started")
        return self._streams

    @property
    def cluster(self) -> Cluster:
        return self.provider.cluster

    @property
    def slots(self) -> Slots:
        """Which executors stand behind the slots; kept up to date while the host runs."""
        if self._slots is None:
            raise RuntimeError("the Spark host was not started")
        return self._slots

    def stop(self) -> None:
        """End the session, its JVM and the cluster, in this order; every step is tried whatever happened before."""
        try:
            if self._slots is not None:
                self._slots.close()
            if self._streams is not None:
                self._streams.close()
            if self._spark is not None:
                with traced("the Spark session could not be stopped", Exception):
                    self._spark.stop()
                self._spark = None
            end_jvm()
        finally:
            self.provider.stop()
            if self._temporary is not None:
                self._temporary.close()
                self._temporary = None
            for name in CHANGED_VARIABLES:
                if name in self._environment:
                    os.environ[name] = self._environment[name]
                else:
                    os.environ.pop(name, None)

    def __enter__(self) -> SparkHost:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _origins(provider: Provider, settings: Settings) -> Origins | None:
    wanted = settings.segment_origins
    if wanted == "off" or (wanted == "auto" and not provider.apart):
        return None
    return Origins.with_new_token(settings.segment_port, settings.segment_kept_mb << 20)


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Let the JVM that is started meanwhile inherit the log as its output: a terminal with a live table is no place for
    Spark's start-up messages."""
    set_aside(log)  # of a state that many runs go on from, it would grow without end
    sys.stdout.flush()
    sys.stderr.flush()
    with log.open("ab") as file:
        kept = [(number, os.dup(number)) for number in (1, 2)]
        try:
            for number, _ in kept:
                os.dup2(file.fileno(), number)
            yield
        finally:
            for number, copy in kept:
                os.dup2(copy, number)
                os.close(copy)
