"""The parent of an executor's Python workers: PySpark's own daemon, with what workers need loaded before it forks.

PySpark's daemon forks first and lets every worker import pyarrow and the rest by itself: about half a second of CPU
and 75 MB each, paid by the first bundles of every operator on a new executor. Here a worker starts with all of it,
shared with its siblings. `spark.python.daemon.module` names this module.

PySpark forks first because some libraries start threads when they are imported, which do not survive a fork. numpy is
told not to (OPENBLAS_NUM_THREADS, see session.py); pyarrow starts one, its allocator's, which is made for forks.
No other thread may run here: `prepare` counts them.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from zipimport import zipimporter

from penstock.channels.origins import Origins
from penstock.channels.segment_server import start_one_for_the_machine
from penstock.engine.executor.worker import host_name

#: What workers run. A worker gets work of one operator after the other, so sooner or later each of them has loaded all
#: of this: loaded here, it is in memory once, and the memory of workers does not grow for hours until all have had it.
OUR_OWN = (
    "penstock.engine.executor.bundle",
    "penstock.engine.executor.standing",
    "penstock.sources",
    "penstock.sinks",
)
#: Loaded at their first use, these would cost every worker a third of a second: Arrow looks for pandas at the first
#: list that it makes an array of.
OF_OTHERS = (
    "pandas",
    "pyarrow.pandas_compat",
    "pyarrow.parquet",
    "pyspark.sql.pandas.serializers",
    "pyspark.worker",
)
#: Threads that may be there when workers are forked: our own, and the allocator's of pyarrow.
MOST_THREADS = 2


def prepare() -> None:
    """Load what workers need, and say on standard error if something has started a thread that a fork would lose."""
    for module in (*OF_OTHERS, *OUR_OWN):
        importlib.import_module(module)

    tasks = Path("/proc/self/task")
    if tasks.exists() and (count := len(list(tasks.iterdir()))) > MOST_THREADS:
        sys.stderr.write(f"penstock: the daemon has {count} threads before its first fork: Python workers may hang\n")
    _read_archives_once()
    # What is loaded stays: out of the collector's sight, its pages stay shared with the workers.
    gc.collect()
    gc.freeze()


def _read_archives_once() -> None:
    """Keep workers from reading what is in pyspark.zip and in Spark's own jar, which Spark puts on Python's path: each
    worker would do it at its first task, because PySpark then adds a folder to the path and has all importers look
    again. It was 0.27 s of CPU and 23 MB for each worker. An importer that is made anew finds what this process has
    read. That must not hold for an archive of a user which is replaced while the executor runs: workers that come later
    read that one again, because what is known of the old one would lead them to the wrong places of the new one."""
    archives = set()
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            archives.add(importer.archive)
            del sys.path_importer_cache[path]
    read = {archive: _stamp(archive) for archive in archives}
    os.register_at_fork(after_in_child=lambda: _read_again(read))


def _read_again(read: Mapping[str, tuple[int, ...]]) -> None:
    """Forget what was read of archives that have changed since."""
    for archive, stamp in read.items():
        if _stamp(archive) != stamp:
            with suppress(ImportError):  # it is gone, or no archive any more
                zipimporter(archive).invalidate_caches()


def _stamp(archive: str) -> tuple[int, ...]:
    """It changes when the file is replaced or written to; empty if there is none."""
    try:
        found = Path(archive).stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def join_groups() -> None:
    """Join the control groups of the machine, if it is one of a lab: what workers do counts there from their first
    moment. What was loaded before was not theirs, and cost the machine nothing."""
    for folder in filter(None, os.environ.get("PENSTOCK_LAB_GROUPS", "").split(":")):
        Path(folder, "cgroup.procs").write_text(str(os.getpid()))


def serve_segments() -> None:
    """Start the server that gives others the segments of this machine, if bundles fetch them. It does not count among
    the work of the machine, as Spark's own processes do not."""
    if (origins := Origins.of_environment(os.environ)) is None:
        return
    try:
        start_one_for_the_machine(host_name(), origins)
    except OSError as problem:  # a temporary folder without locks, say: others read from the store
        sys.stderr.write(f"penstock: no server of segments could be started: {problem}\n")


if __name__ == "__main__":
    from pyspark.daemon import manager

    prepare()
    serve_segments()
    join_groups()
    manager()
