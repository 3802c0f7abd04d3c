"""What a worker process keeps: one pool of threads, and no memory of a turn that is over."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from penstock.engine.executor import standing, task_rows, worker
from penstock.engine.message.program import PackedProgram
from penstock.freed_memory import RETURN_SECONDS, FreedMemory


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pools: dict[int, ThreadPoolExecutor] = {}
    monkeypatch.setattr(worker, "_pools", pools)
    yield
    for pool in pools.values():
        pool.shutdown()


def at_once(count: int) -> set[threading.Thread]:
    """Run so many instances, each of which waits for all others; the threads that did it."""
    met = threading.Barrier(count, timeout=10)
    return set(worker.threads(count).map(lambda _: (met.wait(), threading.current_thread())[1], range(count)))


def test_shares_of_all_sizes_use_the_same_threads() -> None:
    smaller = at_once(2) | at_once(3)
    largest = at_once(5)
    for count in (4, 2, 5, 3):
        assert at_once(count) <= largest
    for thread in smaller:
        thread.join(10)
    assert not any(thread.is_alive() for thread in smaller), "a worker has one pool"


def test_a_turn_that_is_over_leaves_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    happened = []
    monkeypatch.setattr(standing, "_stand", lambda *_: happened.append("turn") or 7)
    monkeypatch.setattr(worker, "prepare", lambda: None)
    monkeypatch.setattr(worker, "relieve", lambda: happened.append("relieved"))
    monkeypatch.setattr(PackedProgram, "unpack", lambda self: None)
    monkeypatch.setattr(task_rows, "_kept", {"the input of a keyed operator": "its newest batch"})
    seat = pa.array([standing.Seat("split", 1, 0, "a/0", 1).as_text()], pa.binary())
    [done] = standing.stand(
        PackedProgram.__new__(PackedProgram), ("a", 1, b""), [pa.record_batch([seat], names=["seat"])]
    )
    assert done.to_pydict() == {"done": [b"7"]}
    assert happened == ["turn", "relieved"]
    assert not task_rows._kept, "a worker that stands keeps no batch of a keyed operator that it worked for before"


def test_memory_that_is_free_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    returned: list[bool] = []
    monkeypatch.setattr(worker, "return_now", lambda: returned.append(True))
    worker.relieve()  # Arrow's part of it must be there in this version of Arrow
    assert returned == [True]


def test_what_shares_have_freed_is_given_back_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now, returned = 0.0, []
    freed = FreedMemory(lambda: now, lambda: bool(returned.append(now)))
    monkeypatch.setattr(worker, "_freed_here", lambda: freed)
    for second in range(2 * int(RETURN_SECONDS) + 10):
        now = float(second)
        worker.share_done()
    assert returned == [RETURN_SECONDS, 2 * RETURN_SECONDS]


def test_memory_is_given_back_when_the_driver_has_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    ours, theirs = multiprocessing.Pipe()
    monkeypatch.setattr(standing.wire, "receive_share", lambda _: None if happened else "a share")
    monkeypatch.setattr(standing._Seated, "_done", lambda self, share: [])
    monkeypatch.setattr(standing.wire, "send_reports", lambda *_: happened.append("report"))
    monkeypatch.setattr(worker, "share_done", lambda: happened.append("memory"))
    with theirs:
        standing._Seated(None, ours, b"seat").run()
    assert happened == ["report", "memory"]


def test_a_share_that_fails_ends_when_all_its_instances_have_ended() -> None:
    """Otherwise the worker's next share would meet them, in the same threads."""
    ended = threading.Event()

    def fails() -> None:
        raise ValueError("a row")

    def takes_longer() -> None:
        time.sleep(0.2)
        ended.set()

    with pytest.raises(ValueError, match="a row"):
        worker.run_all([fails, takes_longer])
    assert ended.is_set()


def test_a_worker_is_called_as_spark_calls_its_executor() -> None:
    """Slots are called so too. A machine's own name may be another one: Debian's is that of 127.0.1.1."""
    asks = "from penstock.engine.executor import worker; print(worker.executor_id(), worker.host_name())"
    starts = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[-1]], check=True)"
    spark_says = ["--executor-id", "7", "--hostname", "10.0.0.5", "--cores", "1"]
    command = [sys.executable, "-c", starts, *spark_says, asks]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.9"}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["7", "10.0.0.5"]
