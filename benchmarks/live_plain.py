"""The live benchmark's other side: what a user of Structured Streaming has today, in a process of its own.

Spark's defaults, on the same cluster, with RocksDB and changelogs as Penstock has them: a machine comes (and gets no
state), the query is stopped and started again (so that it does), the machine is decommissioned, and the state is
repartitioned between a stop and a start.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import live_gaps
from live_bars import ADD, DECOMMISSION
from live_gaps import Measured, Output
from live_load import CORES, MACHINES, MEMORY_MB, SLOTS, TASK_THREADS, Load, Shape, count
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from penstock.cluster.standalone import StandaloneCluster
from penstock.engine.spark.driver_jvm import end_jvm
from penstock.engine.spark.internals import SparkInternals
from penstock.engine.spark.state_partitions import StatePartition, repartition_state, state_folder
from penstock.engine.state.sizes import state_bytes

HERE = str(Path(__file__).parent)
#: By default Spark's executors look for blocks to hand over again after 30 s, and go only then.
DRAIN = 90.0
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
Say = Callable[[str], None]


class PlainStream:
    """The query, started and stopped as a user would, and its batches as they end."""

    def __init__(self, spark: Any, load: Load, checkpoint: str) -> None:
        self.spark = spark
        self._load = load
        self.checkpoint = checkpoint
        self.query: Any = None
        self._ended: list[tuple[float, int]] = []
        #: By batch: when it began, its rows, its load of state.
        self._batches: dict[int, tuple[float, int, float]] = {}

    def start(self, rows_a_second: int, first: int, at_once: bool = False) -> None:
        """Row numbers from `first` on: by these, the load tells the rows that fill the state from the others. With
        `at_once`, only what is there now is read."""
        from pyspark.sql import functions as F

        rows = self.spark.readStream.format("rate").option("rowsPerSecond", rows_a_second).load()
        numbered = rows.select((F.col("value") + F.lit(first)).alias("id"))
        shaped = numbered.mapInArrow(Shape(self._load.keys, self._load.text).each, "key long, text string")
        writer = count(shaped).writeStream.outputMode("update").foreachBatch(self._write)
        writer = writer.option("checkpointLocation", self.checkpoint)
        self.query = (writer.trigger(availableNow=True) if at_once else writer).start()

    def stop(self) -> None:
        """Between two batches, which the repartition insists on: right after one has been committed."""
        seen = self._newest()
        live_gaps.until(self, lambda: self._newest() > seen, 60, "a batch to end")
        self.query.stop()
        self._note()

    def _write(self, frame: Any, batch: int) -> None:
        frame.write.format("noop").mode("overwrite").save()
        self._ended.append((time.time(), batch))

    def _newest(self) -> int:
        progress = self.query.lastProgress
        return int(progress["batchId"]) if progress else -1

    def _note(self) -> None:
        for one in self.query.recentProgress:
            if one["numInputRows"]:
                began = datetime.fromisoformat(one["timestamp"]).timestamp()
                self._batches[one["batchId"]] = (began, one["numInputRows"], live_gaps.load_of(one))

    @property
    def keys(self) -> int:
        """How many keys there are in the state."""
        progress = self.query.lastProgress
        return progress["stateOperators"][0]["numRowsTotal"] if progress else 0

    def outputs(self) -> list[Output]:
        self._note()
        return [Output(at, self._batches.get(batch, (0.0, 0))[1]) for at, batch in list(self._ended)]

    def times(self) -> list[float]:
        return [at for at, _ in list(self._ended)]

    def loads(self) -> list[tuple[float, float]]:
        self._note()
        return [(began, load) for began, _, load in self._batches.values()]

    @property
    def calm(self) -> bool:
        progress = self.query.lastProgress
        return bool(progress) and progress["numInputRows"] <= 3 * self._load.rate

    def check(self) -> None:
        problem = self.query.exception()
        if problem is not None:
            raise problem


def measure(load: Load, folder: Path, wait: str, say: Say, actions: type[Actions] | None = None) -> dict[str, Any]:
    """`wait` is spark.locality.wait; empty leaves it at Spark's default. With the actions of a benchmark of its own, or
    with all that there are."""
    provider = StandaloneCluster(MACHINES, SLOTS, CORES, TASK_THREADS, folder / "cluster", MEMORY_MB)
    spark = None
    try:
        say("starting a cluster")
        folder.mkdir(parents=True, exist_ok=True)
        provider.start()
        spark = session(provider, wait, load.tasks)
        internals = SparkInternals(spark)
        provider.bind(internals.executors, 90)
        stream = PlainStream(spark, load, str(folder / "checkpoint"))
        say(f"filling the state: {load.keys:,} keys")
        stream.start(int(load.keys / load.filling) + 1, 0)
        live_gaps.until(stream, lambda: stream.keys >= load.keys, 300 + 5 * load.filling, "the state to be filled")
        stream.stop()
        stream.start(load.rate, load.keys)
        live_gaps.until(stream, lambda: stream.calm, live_gaps.CALM, "the backlog to be worked off")
        live_gaps.rest(stream, load.warm_up)
        sizes = state_bytes(stream.checkpoint, load.tasks)
        found = (actions or Actions)(stream, internals, load, provider, say).all(repartition=not wait)
        stream.query.stop()
        return {"actions": [vars(one) for one in found], "state_bytes": sizes}
    finally:
        if spark is not None:
            spark.stop()
        end_jvm()
        provider.stop()


def session(provider: StandaloneCluster, wait: str, tasks: int) -> Any:
    from pyspark.sql import SparkSession

    os.environ.update(provider.driver_environment())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # What a cluster of Penstock's has beyond Spark's defaults to let machines go quickly, plain has not.
    theirs = {name: value for name, value in provider.spark_conf().items() if not name.endswith("ReattemptInterval")}
    conf = theirs | {
        "spark.executorEnv.PYTHONPATH": os.pathsep.join([HERE, str(Path(HERE).parent / "src")]),
        "spark.sql.shuffle.partitions": str(tasks),
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.driver.memory": f"{MEMORY_MB}m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if wait:
        conf["spark.locality.wait"] = wait
    builder = SparkSession.builder.appName("live-plain").master(provider.master_url)
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Actions:
    """Each action once."""

    def __init__(
        self, stream: PlainStream, internals: SparkInternals, load: Load, provider: StandaloneCluster, say: Say
    ) -> None:
        self._stream = stream
        self._internals = internals
        self._load = load
        self._provider = provider
        self._say = say

    def all(self, repartition: bool) -> list[Measured]:
        [machine] = self._provider.upcoming(1)
        found = [
            self._measure(ADD, lambda: self._add(machine)),
            self._measure("stop and start", self._restart),
            self._measure(DECOMMISSION, lambda: self._decommission(machine.name)),
        ]
        if repartition:
            found.append(self._measure(self._load.plain_cut, self._repartition))
        return found

    def _add(self, machine: Any) -> int:
        self._provider.add_machine(machine)
        here = machine.name

        def came() -> bool:
            return here in {one.host for one in self._internals.executors()}

        live_gaps.until(self._stream, came, 120, "the new machine's executor")
        return 0

    def _restart(self) -> int:
        self._stream.stop()
        self._stream.start(self._load.rate, self._load.keys)
        return self._load.tasks

    def _decommission(self, name: str) -> int:
        held = self._held(name)
        if not held:
            raise RuntimeError(f"machine {name} holds no state, so its end would show nothing")
        self._provider.remove_machine(name, drain_seconds=DRAIN)
        return held

    def _repartition(self) -> int:
        stream, load = self._stream, self._load
        stream.stop()
        try:
            repartition_state(stream.spark, stream.checkpoint, load.more_tasks)
        except (PySparkException, Py4JError) as error:
            if "LAST_BATCH_FAILED" not in str(error):
                raise
            # The next batch had begun already. What Spark advises: finish it with a trigger that ends by itself.
            stream.start(load.rate, load.keys, at_once=True)
            stream.query.awaitTermination()
            repartition_state(stream.spark, stream.checkpoint, load.more_tasks)
        stream.start(load.rate, load.keys)
        return load.more_tasks

    def _held(self, name: str) -> int:
        """How many of the query's state partitions are on a machine."""
        query = self._stream.query
        root = state_folder(query)
        stores = [StatePartition(root, 0, task, "default") for task in range(self._load.tasks)]
        places = [self._internals.state_location(query, store) or "" for store in stores]
        return sum(f"_{name}_" in place for place in places)

    def _measure(self, name: str, act: Callable[[], int]) -> Measured:
        self._say(name)
        found = live_gaps.measure(self._stream, name, lambda: (act(), 0.0), self._load.before, self._load.after)
        self._say(
            f"  longest gap {found.longest_gap:.2f} s, median before {found.median_gap:.2f} s, "
            f"load {found.load:.2f} s, {found.moved} tasks elsewhere"
        )
        return found
