"""What a worker process of Spark knows of itself: its executor, its task, its memory, its threads."""

from __future__ import annotations

import functools
import gc
import os
import resource
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from penstock.freed_memory import FreedMemory, return_now

#: What an executor's command line says that matters here.
_TOLD = (b"--executor-id", b"--hostname")
#: The pool of threads by its size; there is one at most.
_pools: dict[int, ThreadPoolExecutor] = {}


@functools.cache
def prepare() -> None:
    """Take what is loaded now out of the garbage collector's sight, once in each worker process: it stays anyway, and
    PySpark collects garbage after every task, which takes tens of milliseconds with pandas and pyarrow loaded."""
    gc.collect()
    gc.freeze()


def executor_id() -> str | None:
    """The executor this worker belongs to; None where there is none, or it cannot be known."""
    found = executor()
    return found[0] if found else None


def executor() -> tuple[str, int] | None:
    """The executor's id and process; None where that cannot be known."""
    found = executor_command()
    return None if found is None else (found[0]["--executor-id"], found[1])


@functools.cache
def executor_command() -> tuple[Mapping[str, str], int] | None:
    """The options of the executor's command, and its process. Spark does not tell its Python workers which executor is
    theirs, but the executor's command line says it, two generations up (executor, daemon, worker); None where there is
    no such thing to read."""
    pid = os.getpid()
    for _ in range(4):
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        except OSError:  # the parent has ended meanwhile, or there is no /proc
            return None
        options = {name.decode(): value.decode() for name, value in pairwise(arguments) if name in _TOLD}
        if "--executor-id" in options:
            return options, pid
        pid = int(parent)
    return None


def resident_bytes(pid: int) -> int | None:
    """The resident memory of a process now (getrusage knows only the most there ever was); None where there is no
    /proc to say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return None


def threads(count: int) -> ThreadPoolExecutor:
    """At least so many threads, which run instances and stay for the next share. There is one pool, with as many as the
    largest share of this worker needed: a pool that a larger share has no use for ends. A worker does one share
    after the other, so nothing runs in a pool that ends."""
    if count > max(_pools, default=0):
        for smaller in _pools.values():
            smaller.shutdown(wait=False)
        _pools.clear()
        _pools[count] = ThreadPoolExecutor(count, thread_name_prefix="instance")
    return next(iter(_pools.values()))


def run_all(work: Sequence[Callable[[], None]]) -> None:
    """Run instances side by side, until all have ended: the worker's next share must not meet one of this share. Then
    raise the first error."""
    running = [threads(len(work)).submit(one) for one in work]
    wait(running)
    for one in running:
        one.result()


def relieve() -> None:
    """Give memory that nothing uses back to the system: for the end of something that rarely ends. Arrow keeps what it
    has freed, and a worker that was idle for hours would keep the memory of its busiest time."""
    gc.collect()
    _give_back()


def share_done() -> None:
    """Once in a while, give back what shares have freed: a turn is minutes long, and memory cannot wait for its end.
    Nobody waits for this worker now, because it has told what it did."""
    _freed_here().return_sometimes()


@functools.cache
def _freed_here() -> FreedMemory:
    """Of this process, from its first share on: not of the daemon that it was forked from."""
    return FreedMemory(give_back=_give_back)


def _give_back() -> bool:
    """Arrow and the C library each keep what was freed."""
    pa.default_memory_pool().release_unused()
    return return_now()


@functools.cache
def host_name() -> str:
    """The name or address of this machine by which Spark knows its executor, and by which slots are called; where there
    is no executor of its own, the address that Spark was told, or else the machine's own name."""
    command = executor_command()
    known = command[0].get("--hostname") if command is not None else None
    return known or os.environ.get("SPARK_LOCAL_IP") or socket.gethostname()


def running_task() -> tuple[int, int]:
    """(batch, partition) of the running Spark task."""
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("a bundle runs only inside a Spark task")
    return int(context.getLocalProperty("streaming.sql.batchId") or 0), context.partitionId()
