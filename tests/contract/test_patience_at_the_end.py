"""A topology that ends waits for its catalog for a few seconds, and the next start finds what was committed."""

from __future__ import annotations

import os
import signal
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillWaiting
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import sqlalchemy as sa
from catalog_samples import QUICK, Open, lose_commits, new
from silent_proxy import SilentProxy

from penstock.channels import database
from penstock.channels.catalog import Catalog
from penstock.channels.database import PATIENT
from penstock.channels.line import Line
from penstock.channels.log import Bound, Channels
from penstock.channels.patience import Patience
from penstock.errors import PenstockError

#: Much less than any test waits, and more than what a busy computer takes for a transaction that is answered.
SECONDS = 1.0


@pytest.fixture
def proxy(postgresql_server: str) -> Iterator[SilentProxy]:
    with tempfile.TemporaryDirectory(prefix="penstock-proxy-") as folder:  # pytest's own are too long for a socket
        silent = SilentProxy(postgresql_server, Path(folder))
        yield silent
        silent.close()


@pytest.fixture
def first(proxy: SilentProxy, postgresql_url: str, postgresql_server: str) -> Iterator[Catalog]:
    """The catalog of a driver that reaches the server through the proxy."""
    url = postgresql_url.replace(postgresql_server, str(proxy.folder))
    catalog = Catalog.open(url, "words", clock=lambda: 1.0)
    catalog.hold()
    yield catalog
    proxy.close()
    catalog.close()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(4)
    yield pool
    pool.shutdown(wait=False)


def problem_of(work: Future[object] | Callable[[], object], seconds: float = 10) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        work.result(seconds) if isinstance(work, Future) else work()
    assert caught.value.name == "CATALOG_UNREACHABLE"
    return caught.value


def publish(catalog: Catalog, batch: int) -> object:
    return catalog.publish("read", batch, [new(f"{batch}")], "{}", {})


@pytest.mark.parametrize("swallowed", ["questions", "answers"])
def test_a_commit_that_is_never_answered_does_not_hold_up_the_end(
    first: Catalog, proxy: SilentProxy, postgresql_url: str, threads: ThreadPoolExecutor, swallowed: str
) -> None:
    publish(first, 0)
    proxy.swallow(swallowed)
    hangs = threads.submit(publish, first, 1)
    assert proxy.silent.wait(10)
    waits = threads.submit(first.set_meta, "key", "value")  # at the fence
    with pytest.raises(StillWaiting):
        hangs.result(2 * SECONDS)
    first.wait_at_most(SECONDS)
    assert "it has not answered for 1 s while the topology ended" in problem_of(hangs).message
    problem_of(waits)
    began = time.monotonic()
    for again in (lambda: publish(first, 1), first.load, first.keep_hold, lambda: first.set_meta("key", "value")):
        assert "is not asked again" in problem_of(again).message
    assert time.monotonic() - began < SECONDS, "nothing more is sent, so nothing is waited for"

    first._database._hold.release()
    if swallowed == "questions":
        # The server still has the transaction open. The next driver waits for it, and then has all of it.
        proxy.swallow("nothing")
        with closing(Catalog.open(postgresql_url, "words", clock=lambda: 2.0)) as second:
            begins = threads.submit(second.hold)
            with pytest.raises(StillWaiting):
                begins.result(SECONDS)
            proxy.release()
            begins.result(10)
            assert_has_both(second)
    else:
        with closing(Catalog.open(postgresql_url, "words", clock=lambda: 2.0)) as second:
            second.hold()
            assert_has_both(second)


def assert_has_both(catalog: Catalog) -> None:
    """The batch whose commit was not answered is there, and a replay of it changes nothing."""
    state = catalog.load()
    assert state.last_batches == {"read": 1} and state.ends == {"lines": 20}
    assert catalog.get_meta("key") is None
    assert publish(catalog, 1) is None
    assert catalog.load().ends == {"lines": 20}


def test_a_commit_that_never_arrived_is_made_by_the_next_driver(
    first: Catalog, proxy: SilentProxy, postgresql_url: str, threads: ThreadPoolExecutor
) -> None:
    publish(first, 0)
    proxy.swallow("questions")
    hangs = threads.submit(publish, first, 1)
    assert proxy.silent.wait(10)
    first.wait_at_most(SECONDS)
    problem_of(hangs)
    first._database._hold.release()
    with closing(Catalog.open(postgresql_url, "words", clock=lambda: 2.0)) as second:
        end_open_transactions(second)
        second.hold()
        assert second.load().last_batches == {"read": 0}
        [placed] = second.publish("read", 1, [new("other")], "{}", {}) or []
        assert placed.first_row == 10
        proxy.release()  # what comes late finds its transaction gone
        assert second.load().ends == {"lines": 20}


def end_open_transactions(catalog: Catalog) -> None:
    """What the server does when it notices that a client is gone."""
    gone = sa.text(
        "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE application_name = 'penstock' "
        "AND state = 'idle in transaction' AND pid <> pg_backend_pid()"
    )
    assert (True,) in catalog._database.run(lambda connection: connection.execute(gone).all())


class Files:
    """A store of segments that holds one file of each batch."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def delete(self, paths: Iterable[str]) -> None:
        self.deleted += paths

    def list(self, channel: str) -> list[str]:
        return [] if channel != "lines" else ["lines/00000001-a.arrow"]


def test_the_channels_of_a_topology_end_without_their_catalog(
    first: Catalog, proxy: SilentProxy, threads: ThreadPoolExecutor
) -> None:
    """Publishers, and whoever starts a query meanwhile, wait for the one whose commit is not answered."""
    files: Any = Files()
    channels = Channels(first, files, {"lines": ["count"]}, {"lines": "read"}, Bound(10**6, 10**9))
    proxy.swallow("answers")
    hang = [threads.submit(channels.publish, "read", 0, [new("lines/00000000-a.arrow")], "{}", {})]
    assert proxy.silent.wait(10)
    hang.append(threads.submit(channels.publish, "count", 0, [], "{}", {"lines": 0}))
    hang += [threads.submit(channels.catch_up), threads.submit(channels.sweep)]
    with pytest.raises(StillWaiting):
        hang[-1].result(SECONDS)
    began = time.monotonic()
    first.wait_at_most(SECONDS)
    for one in hang:
        problem_of(one)
    problem_of(channels.sweep_at_the_end)
    assert channels.nobody_publishes
    assert time.monotonic() - began < SECONDS + 4
    assert not files.deleted, "what the batch wrote may be in the catalog"


def test_a_transaction_that_begins_later_has_as_long(first: Catalog, proxy: SilentProxy) -> None:
    first.wait_at_most(SECONDS)
    for batch in range(3):
        publish(first, batch)
        time.sleep(SECONDS / 2)  # together longer than one may take
    proxy.swallow("answers")
    began = time.monotonic()
    problem_of(lambda: publish(first, 3))
    assert SECONDS <= time.monotonic() - began < SECONDS + 4


def test_a_later_limit_replaces_an_earlier_one(first: Catalog, proxy: SilentProxy, threads: ThreadPoolExecutor) -> None:
    first.wait_at_most(600)
    proxy.swallow("answers")
    hangs = threads.submit(publish, first, 0)
    assert proxy.silent.wait(10)
    first.wait_at_most(SECONDS)
    problem_of(hangs)


def test_the_session_that_has_the_lock_does_not_hold_up_the_end(
    open_catalog: Open, postgresql_url: str, threads: ThreadPoolExecutor, url: str
) -> None:
    if url.startswith("sqlite"):
        pytest.skip("a file is locked at once, or not at all")
    catalog = open_catalog()
    catalog.hold()
    session = catalog._database._hold._connection.scalar(sa.text("SELECT pg_backend_pid()"))  # type: ignore[attr-defined]
    os.kill(session, signal.SIGSTOP)
    try:
        hangs = threads.submit(catalog.keep_hold)
        with pytest.raises(StillWaiting):
            hangs.result(SECONDS)
        catalog.wait_at_most(SECONDS)
        problem_of(hangs)
    finally:
        os.kill(session, signal.SIGCONT)


def test_who_waits_for_the_next_attempt_is_woken(
    open_catalog: Open, monkeypatch: pytest.MonkeyPatch, threads: ThreadPoolExecutor
) -> None:
    """The pauses of a driver that waits for its server get as long as 25 s."""
    catalog = open_catalog()
    monkeypatch.setattr(catalog._database, "_retries", database.Retries(times=PATIENT.times, first_pause=60.0))
    lost = lose_commits(catalog, monkeypatch, times=99)
    hangs = threads.submit(publish, catalog, 0)
    while not lost:
        time.sleep(0.01)
    catalog.wait_at_most(SECONDS)
    problem_of(hangs)
    assert len(lost) == 1


def test_what_is_answered_is_not_disturbed(open_catalog: Open) -> None:
    catalog = open_catalog(retries=QUICK)
    catalog.hold()
    catalog.wait_at_most(5)
    threads_before = threading.active_count()
    for batch in range(20):
        publish(catalog, batch)
    catalog.keep_hold()
    assert catalog.load().ends == {"lines": 200}
    deadline = time.monotonic() + 4
    while (left := threading.active_count() - threads_before) > 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left <= 0, "timers end with their transactions, before their time"


def test_without_a_descriptor_a_batch_is_published_all_the_same(
    open_catalog: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_: int) -> int:
        raise OSError(24, "Too many open files")

    catalog = open_catalog(retries=QUICK)
    catalog.hold()
    monkeypatch.setattr(os, "dup", none_left)
    publish(catalog, 0)
    catalog.keep_hold()
    assert catalog.load().last_batches == {"read": 0}


def test_an_sqlite_that_is_locked_does_not_hold_up_the_end(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    with (
        mock.patch.object(database, "BUSY_SECONDS", 0.05),
        closing(Catalog.open(f"sqlite:///{path}", "words", retries=PATIENT)) as catalog,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        catalog.wait_at_most(SECONDS)
        began = time.monotonic()
        problem_of(lambda: publish(catalog, 0))
        assert SECONDS <= time.monotonic() - began < SECONDS + 4


def test_a_transaction_that_gets_no_timer_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another limit would take it for one that is under way, and end all others when its time is over."""

    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    patience, line = Patience(), mock.Mock(Line)
    patience.limit(SECONDS)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Timer, "start", none_left)
        with pytest.raises(RuntimeError), patience.watching(line, time.monotonic()):
            raise AssertionError("it is not begun")
    patience.limit(0.01)
    time.sleep(0.1)
    assert not patience.is_over
    line.cut_off.assert_not_called()
