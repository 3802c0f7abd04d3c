"""Loads the classes that Spark's JVMs need, and has Java write an archive of them: `python -m ... FILE`.

One JVM is driver, master and worker at once, and does what queries of Penstock do: Arrow functions, files, state in
RocksDB. Its executor loads few classes that this JVM does not have.
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from penstock.cluster.class_archive import quoted
from penstock.cluster.daemons import QUICK_JVM
from penstock.cluster.provider import own_driver_conf, own_driver_environment
from penstock.engine.spark.driver_jvm import start_jvm
from penstock.engine.spark.session import session_conf
from penstock.settings import Settings

#: A master and one worker in the driver's JVM, with an executor of two threads and 600 MB.
MASTER = "local-cluster[1,2,600]"
BATCHES = 3
#: Java writes the archive when it ends.
WRITING_SECONDS = 300


def main(file: str) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-classes-") as folder:
        # No folder in the class path: with one, Java writes no archive.
        os.environ.pop("PYSPARK_SUBMIT_ARGS", None)  # it may name other options of Java, or another class path
        os.environ.update(own_driver_environment() | {"SPARK_CONF_DIR": str(Path(folder) / "none")})
        spark = _session(file)
        gateway: Any = SparkContext._gateway
        _work(spark, Path(folder))
        spark.stop()
        gateway.proc.stdin.close()  # the JVM ends with its standard input
        gateway.proc.wait(WRITING_SECONDS)


def _session(file: str) -> SparkSession:
    archive = quoted(f"-XX:ArchiveClassesAtExit={file}")
    options = f"{QUICK_JVM} {archive} -Xlog:disable -Xlog:all=error:stderr"
    conf = session_conf(Settings()) | own_driver_conf()
    conf |= {
        "spark.master": MASTER,
        "spark.app.name": "penstock-prepare",
        "spark.executor.memory": "500m",
        "spark.driver.extraJavaOptions": options,
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.authenticate": "true",
        "spark.authenticate.secret": secrets.token_hex(32),  # everybody on this computer can reach its ports
        "spark.sql.shuffle.partitions": "1",
        "spark.python.daemon.module": "pyspark.daemon",
    }
    start_jvm(conf)
    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _work(spark: SparkSession, folder: Path) -> None:
    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches

    spark.range(10).mapInArrow(same, "id long").write.parquet(str(folder / "rows"))
    for batch in range(BATCHES):
        spark.range(10).write.parquet(str(folder / "input" / str(batch)))
    rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 2).parquet(str(folder / "input" / "*"))
    counts = rows.mapInArrow(same, "id long").groupBy("id").count()
    query = (
        counts.writeStream.outputMode("update")
        .foreachBatch(_collect)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _collect(frame: DataFrame, _: int) -> None:
    frame.collect()


if __name__ == "__main__":
    main(sys.argv[1])
