"""What a running topology holds, seen from outside: memory, open files and threads of its processes, and its files."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

MB = 1 << 20
#: More than a catalog has in which nothing was published yet.
FIRST_ROWS = 60
#: How long Spark may take to drop, after a collection, what it found unused.
CLEANING_SECONDS = 3.0
#: The kinds of series: may grow by percent (memory, sizes), by percent or by a little (sizes of which there is little),
#: not at all (things that are counted), or is only shown.
MEMORY, SMALL, COUNTED, SHOWN = "memory", "small", "counted", "shown"
HEAP = "what lives in the driver JVM's heap, MB"
SEGMENTS = "files of segments"
SERIES = {
    "driver Python, MB": MEMORY,
    "driver JVM, MB": MEMORY,
    HEAP: MEMORY,
    "the two oldest executors' JVMs, MB": MEMORY,
    "Python workers, MB": MEMORY,
    #: Segments that bundles read; those that were deleted meanwhile still take room on the disk.
    "files of the state that Python workers map, MB": SHOWN,
    #: Of one process, and pages that it shares count in full: it grows if a worker keeps ever more, and not if workers
    #: copy pages that they shared, or if there are more of them.
    "the median Python worker, MB resident": SHOWN,
    "daemons (master, workers, guards), MB": MEMORY,
    "Python workers": COUNTED,
    "driver Python threads": COUNTED,
    "driver JVM threads": COUNTED,
    "driver Python open files": COUNTED,
    "driver JVM open files": COUNTED,
    "executors' threads": COUNTED,
    "executors' open files": COUNTED,
    "catalog rows": COUNTED,
    "catalog MB": MEMORY,
    "files of checkpoints": COUNTED,
    SEGMENTS: COUNTED,
    "other files of the state": COUNTED,
    "state without statistics, MB": MEMORY,
    "statistics, MB": SHOWN,  # they are kept for hours by design
    "logs, MB": SMALL,
    "scratch files, MB": SMALL,
    "scratch files: of shuffles, MB": SHOWN,
    "scratch files: MANIFEST of RocksDB, MB": SHOWN,
    "scratch files: others of RocksDB, MB": SHOWN,
    "temporary files": COUNTED,
}


@dataclass(frozen=True)
class Probe:
    """Looks at the topology of one driver process."""

    driver: int
    state: Path
    temporary: Path

    def look(self) -> dict[str, float]:
        seen: dict[str, float] = {}
        # A process that ends in the middle of it is looked at no further.
        with contextlib.suppress(psutil.Error):
            seen |= self._processes()
        return seen | self._catalog() | self._files()

    @property
    def has_begun(self) -> bool:
        """Whether batches have been published."""
        return self._catalog().get("catalog rows", 0) > FIRST_ROWS

    def heap(self) -> dict[str, float]:
        """What lives in the heap of the driver's JVM, by JDK tools, where there are any. It collects twice: after the
        first collection Spark drops the broadcasts that nobody uses any more, a tenth of a MB for every micro-batch,
        and the second one, which comes with the list of what lives, frees them. The list is of one moment: how much of
        the heap is used grows by some MB until a second command can ask for it. It is right only if the collector moves
        everything together (EXACT_HEAP in the Makefile): what stays dead in its place is listed as arrays of int."""
        jvm = self._jvm(psutil.Process(self.driver))
        if jvm is None:
            return {}
        try:
            _ask_jvm(jvm, "GC.run")
            time.sleep(CLEANING_SECONDS)
            lives = living_bytes(_ask_jvm(jvm, "GC.class_histogram"))
        except (OSError, subprocess.SubprocessError):
            return {}
        return {} if lives is None else {HEAP: lives / MB}

    def segments(self) -> int:
        """How many files of segments there are now. They come and go by the hundred."""
        return sum(1 for _ in _files_below(self.state / "segments"))

    def _jvm(self, driver: psutil.Process) -> psutil.Process | None:
        below = driver.children(recursive=True)
        return next((one for one in below if _is_java(one) and "deploy.SparkSubmit" in _words(one)), None)

    def _processes(self) -> dict[str, float]:
        driver = psutil.Process(self.driver)
        below = driver.children(recursive=True)
        jvm = self._jvm(driver)
        executors = [one for one in below if _is_java(one) and "CoarseGrainedExecutorBackend" in _words(one)]
        workers = [one for one in below if is_python_worker(_words(one))]
        named = {driver.pid, *(one.pid for one in [*executors, *workers]), *([jvm.pid] if jvm else [])}
        oldest = sorted(executors, key=psutil.Process.create_time)[:2]
        seen = {
            "driver Python, MB": _own_memory(driver),
            "driver Python threads": driver.num_threads(),
            "driver Python open files": driver.num_fds(),
            "the two oldest executors' JVMs, MB": sum(map(_memory, oldest)),
            "executors' threads": sum(one.num_threads() for one in oldest),
            "executors' open files": sum(one.num_fds() for one in oldest),
            "Python workers": len(workers),
            "Python workers, MB": sum(map(_own_memory, workers)),
            "files of the state that Python workers map, MB": sum(_mapped(one, self.state) for one in workers),
            "the median Python worker, MB resident": statistics.median(map(_memory, workers)) if workers else 0.0,
            "daemons (master, workers, guards), MB": sum(_memory(one) for one in below if one.pid not in named),
        }
        if jvm is not None:
            seen |= {
                "driver JVM, MB": _memory(jvm),
                "driver JVM threads": jvm.num_threads(),
                "driver JVM open files": jvm.num_fds(),
            }
        return seen

    def _catalog(self) -> dict[str, float]:
        file = self.state / "catalog.sqlite"
        try:
            with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=5)) as connection:
                tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
                rows = sum(connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in tables)
        except sqlite3.Error:
            return {}  # not there yet, or busy
        return {"catalog rows": rows, "catalog MB": sum(_size(one) for one in self.state.glob("catalog.sqlite*")) / MB}

    def _files(self) -> dict[str, float]:
        by_part: dict[str, int] = {}
        sizes: dict[str, int] = {}
        scratch_of: dict[str, int] = {}
        for file, size in _sizes_below(self.state):
            kind = _kind_of(file.relative_to(self.state))
            by_part[kind] = by_part.get(kind, 0) + 1
            sizes[kind] = sizes.get(kind, 0) + size
            if kind == "scratch":
                scratch_of[_maker_of(file)] = scratch_of.get(_maker_of(file), 0) + size
        logs, scratch, of_statistics = (sizes.pop(kind, 0) for kind in ("logs", "scratch", "statistics"))
        return {
            "files of checkpoints": by_part.get("checkpoints", 0),
            SEGMENTS: by_part.get("segments", 0),
            "other files of the state": by_part.get("other", 0),
            "state without statistics, MB": sum(sizes.values()) / MB,
            "statistics, MB": of_statistics / MB,
            "logs, MB": logs / MB,
            "scratch files, MB": scratch / MB,
            "scratch files: of shuffles, MB": scratch_of.get("shuffles", 0) / MB,
            "scratch files: MANIFEST of RocksDB, MB": scratch_of.get("manifest", 0) / MB,
            "scratch files: others of RocksDB, MB": scratch_of.get("rocksdb", 0) / MB,
            "temporary files": sum(1 for _ in _files_below(self.temporary)),
        }


def _ask_jvm(jvm: psutil.Process, command: str) -> str:
    asked = ["jcmd", str(jvm.pid), command]
    return subprocess.run(asked, check=True, capture_output=True, text=True, timeout=60).stdout


def living_bytes(histogram: str) -> int | None:
    """The last line of a list of classes: `Total`, objects, bytes."""
    found = re.search(r"^Total\s+\d+\s+(\d+)\s*$", histogram, re.MULTILINE)
    return int(found[1]) if found else None


def _files_below(folder: Path) -> Iterator[Path]:
    """Those that are still there when they are looked at: files come and go all the time."""
    with contextlib.suppress(OSError):
        for one in list(folder.iterdir()):
            if one.is_dir() and not one.is_symlink():
                yield from _files_below(one)
            elif one.exists():
                yield one


def _sizes_below(folder: Path) -> Iterator[tuple[Path, int]]:
    """Every file once, with its size: RocksDB links a file into every snapshot that has it."""
    seen: set[tuple[int, int]] = set()
    for file in _files_below(folder):
        try:
            found = file.lstat()
        except OSError:
            continue
        if (identity := (found.st_dev, found.st_ino)) not in seen:
            seen.add(identity)
            yield file, found.st_size


def _kind_of(file: Path) -> str:
    """What a file of the state folder is for; `file` begins there."""
    first, *more = file.parts
    if first == "cluster":  # executors work in scratch, and everything else there is what daemons and executors print
        return "scratch" if more[:1] == ["scratch"] else "logs"
    if first.startswith("statistics"):
        return "statistics"
    return first if first in ("checkpoints", "segments", "logs") else "other"


def _maker_of(file: Path) -> str:
    """Of a scratch file: who writes it."""
    if any(part.startswith("StateStoreId") for part in file.parts):
        return "manifest" if file.name.startswith("MANIFEST") else "rocksdb"
    return "shuffles" if any(part.startswith("blockmgr") for part in file.parts) else "others"


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def is_python_worker(words: str) -> bool:
    """Of a command line. The driver's JVM has the module of the daemon among its settings, and is none."""
    return not _starts_java(words) and ("worker_daemon" in words or "pyspark.daemon" in words)


def _is_java(process: psutil.Process) -> bool:
    return _starts_java(_words(process))


def _starts_java(words: str) -> bool:
    return Path(words.partition(" ")[0]).name == "java"


def _memory(process: psutil.Process) -> float:
    try:
        return process.memory_info().rss / MB
    except psutil.Error:
        return 0.0


def _own_memory(process: psutil.Process) -> float:
    """The fair share that a process has of memory without a file: a page that several have since a fork counts in
    parts that add up to one. So the sum over forked processes is what they take together, and it does not jump when
    one of them ends, as the sum of what is theirs alone (USS) does. Libraries are not in it: other programs on the
    computer map the same files, and the share of whoever goes on grows when they end."""
    try:
        shares = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    except OSError:  # the process has ended
        return 0.0
    return sum(int(size) for size in re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB", shares, re.MULTILINE)) / 1024


def _mapped(process: psutil.Process, folder: Path) -> float:
    """What a process maps of the files in a folder, also of those that have been deleted since."""
    try:
        maps = Path(f"/proc/{process.pid}/maps").read_text()
    except OSError:
        return 0.0
    found = re.findall(rf"^(\w+)-(\w+) \S+ \S+ \S+ \S+\s+{re.escape(str(folder))}/", maps, re.MULTILINE)
    return sum(int(end, 16) - int(start, 16) for start, end in found) / MB
