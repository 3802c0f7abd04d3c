"""What the soak counts of files and memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from soak_probe import MB, SERIES, Probe, _mapped, _own_memory, is_python_worker, living_bytes


def test_a_file_with_several_names_counts_once(tmp_path: Path) -> None:
    state, temporary = tmp_path / "state", tmp_path / "tmp"
    temporary.mkdir()
    files = {
        "checkpoints/count/1.changelog": 1,
        "segments/a/1.arrow": 2,
        "statistics.sqlite": 4,
        "cluster/scratch/127.0.0.2/StateStoreId(1)/000007.sst": 8,
        "cluster/scratch/127.0.0.2/StateStoreId(1)/MANIFEST-000005": 256,
        "cluster/scratch/127.0.0.2/blockmgr-1/0c/shuffle_0_1_0.data": 512,
        "cluster/127.0.0.2/app-1/0/stderr": 16,
        "cluster/master.log": 32,
        "logs/penstock.log": 64,
        "topology.json": 128,
    }
    for name, size in files.items():
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_bytes(b"x" * (size << 10))
    for number in range(3):
        sst = state / "cluster/scratch/127.0.0.2/StateStoreId(1)/000007.sst"
        os.link(sst, sst.with_name(f"{number}.sst"))
        os.link(state / "checkpoints/count/1.changelog", state / f"checkpoints/count/{number}.link")
    seen = Probe(os.getpid(), state, temporary)._files()
    assert seen.keys() <= SERIES.keys()
    in_kb = {name: value * MB / 1024 for name, value in seen.items() if name.endswith("MB")}
    assert in_kb == {
        "state without statistics, MB": 1 + 2 + 128,
        "statistics, MB": 4,
        "scratch files, MB": 8 + 256 + 512,
        "scratch files: of shuffles, MB": 512,
        "scratch files: MANIFEST of RocksDB, MB": 256,
        "scratch files: others of RocksDB, MB": 8,
        "logs, MB": 16 + 32 + 64,
    }
    counts = {name: value for name, value in seen.items() if not name.endswith("MB")}
    assert counts == {
        "files of checkpoints": 1,
        "files of segments": 1,
        "other files of the state": 1,
        "temporary files": 0,
    }


def test_segments_are_counted_by_themselves(tmp_path: Path) -> None:
    for name in ("segments/a/1.arrow", "segments/b/c/2.arrow", "checkpoints/3"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert Probe(os.getpid(), tmp_path, tmp_path).segments() == 2


def test_what_lives_in_a_heap_is_the_last_line_of_javas_list() -> None:
    listed = """123:
 num     #instances         #bytes  class name (module)
-------------------------------------------------------
   1:        123456       10485760  [B (java.base@17.0.15)
   2:          4000        2097152  java.lang.Total
Total       1077710       73843096
"""
    assert living_bytes(listed) == 73_843_096
    assert living_bytes("123:\njava.io.IOException: no such process") is None


#: Maps all of a file, says so, and stays until its standard input ends.
READER = """
import mmap, sys
file = open(sys.argv[1], "rb")
mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
sum(mapped[at] for at in range(0, len(mapped), 4096))
print("read", flush=True)
sys.stdin.read()
"""


@contextmanager
def reader(file: Path) -> Iterator[psutil.Process]:
    command = [sys.executable, "-c", READER, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "read\n"
        yield psutil.Process(process.pid)
        process.communicate()


def test_memory_does_not_grow_when_others_end_who_had_the_same_file(tmp_path: Path) -> None:
    file = tmp_path / "library"
    file.write_bytes(b"x" * (16 * MB))
    with reader(file) as one:
        with reader(file) as stranger:
            before = _own_memory(one)
            assert 0 < before < 16
            assert _mapped(stranger, tmp_path) == 16
        assert abs(_own_memory(one) - before) < 1
        file.unlink()
        assert _mapped(one, tmp_path) == 16, "a deleted file that is mapped takes room"
        assert _mapped(one, tmp_path / "elsewhere") == 0


def test_memory_of_one_who_has_ended_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with reader(tmp_path / "file") as one:
        pass
    assert _own_memory(one) == _mapped(one, tmp_path) == 0


def test_the_drivers_jvm_is_no_python_worker() -> None:
    """Spark's launcher writes all settings of the driver on its command line."""
    module = "penstock.engine.executor.worker_daemon"
    assert is_python_worker(f"/a/.venv/bin/python -m {module} pyspark.worker")
    assert not is_python_worker(
        f"/usr/lib/jvm/bin/java -cp jars org.apache.spark.deploy.SparkSubmit --conf spark.python.daemon.module={module}"
    )
    assert not is_python_worker("/a/.venv/bin/python -m penstock run topology.py")
