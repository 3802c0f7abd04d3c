"""What SQLite and PostgreSQL each need, and what cannot be opened at all."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import traceback
from pathlib import Path

import pytest
import sqlalchemy as sa
from catalog_samples import QUICK, new

from penstock.channels.catalog import Catalog
from penstock.channels.database import JOURNAL_BYTES, Database, Retries
from penstock.errors import PenstockError


def test_postgresql_connections_that_were_lost_are_made_again(postgresql_url: str) -> None:
    catalog = Catalog.open(postgresql_url, "words", retries=QUICK)
    other = Catalog.open(postgresql_url, "words")
    try:
        catalog.publish("read", 0, [new("a")], "{}", {})
        end_others = sa.text(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'penstock' AND pid <> pg_backend_pid()"
        )
        other._database.run(lambda connection: connection.execute(end_others).all())
        assert catalog.publish("read", 1, [new("b")], "{}", {})[0].first_row == 10
    finally:
        catalog.close()
        other.close()


def test_a_postgresql_that_takes_no_writes_for_a_while_is_waited_for(postgresql_url: str) -> None:
    """As during a fail-over: the address leads to a replica that is not the primary yet."""
    catalog = Catalog.open(postgresql_url, "words", retries=Retries(times=6, first_pause=0.1))
    settings = Database.open(postgresql_url)._engine.execution_options(isolation_level="AUTOCOMMIT")

    def read_only(value: str) -> None:
        with settings.connect() as connection:
            connection.execute(sa.text(f"ALTER SYSTEM SET default_transaction_read_only = {value}"))
            connection.execute(sa.text("SELECT pg_reload_conf()"))

    promoted = threading.Timer(1.0, lambda: read_only("off"))
    try:
        read_only("on")
        with settings.connect() as connection:
            deadline = time.monotonic() + 10
            while connection.execute(sa.text("SHOW default_transaction_read_only")).scalar() != "on":
                assert time.monotonic() < deadline
                time.sleep(0.01)
        began = time.monotonic()
        promoted.start()
        assert catalog.publish("read", 0, [new("a")], "{}", {}) is not None
        assert time.monotonic() - began > 0.5, "it was read-only meanwhile"
    finally:
        promoted.join()
        read_only("off")
        settings.dispose()
        catalog.close()


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


def test_a_busy_sqlite_is_waited_for_and_leaves_a_trace(
    sqlite_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="penstock")
    monkeypatch.setattr("penstock.channels.database.BUSY_SECONDS", 0)
    catalog = Catalog.open(f"sqlite:///{sqlite_path}", "words", retries=Retries(times=8, first_pause=0.02))
    other = sqlite3.connect(sqlite_path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    free = threading.Timer(0.1, lambda: other.execute("ROLLBACK"))
    free.start()
    try:
        assert catalog.publish("read", 0, [new("a")], "{}", {}) is not None
        assert "database is locked. Penstock tries again in 0.02 s." in caplog.text
    finally:
        free.join()
        other.close()
        catalog.close()


def test_an_sqlite_that_stays_busy_has_a_named_error(sqlite_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.channels.database.BUSY_SECONDS", 0)
    catalog = Catalog.open(f"sqlite:///{sqlite_path}", "words", retries=QUICK)
    other = sqlite3.connect(sqlite_path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(PenstockError) as caught:
        catalog.publish("read", 0, [new("a")], "{}", {})
    assert caught.value.name == "CATALOG_UNREACHABLE"
    other.close()
    catalog.close()


def test_the_log_of_an_sqlite_does_not_stay_as_large_as_it_ever_was(sqlite_path: Path) -> None:
    catalog = Catalog.open(f"sqlite:///{sqlite_path}", "words", retries=QUICK)
    log = sqlite_path.with_name(f"{sqlite_path.name}-wal")
    reader = sqlite3.connect(sqlite_path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM sqlite_master").fetchall()
    for number in range(8):  # the reader keeps it from being emptied
        catalog.set_meta(f"large-{number}", str(number) * (1 << 20))
    assert log.stat().st_size > 2 * JOURNAL_BYTES
    reader.execute("ROLLBACK")
    for number in range(3):
        catalog.set_meta("small", str(number))
    assert log.stat().st_size <= JOURNAL_BYTES + (64 << 10)
    reader.close()
    catalog.close()


def test_sqlite_files_are_private(sqlite_path: Path) -> None:
    before = os.umask(0o022)
    try:
        catalog = Catalog.open(f"sqlite:///{sqlite_path}", "words", synchronous="FULL")
        catalog.set_meta("key", "value")
        modes = {path.name: path.stat().st_mode & 0o777 for path in sqlite_path.parent.iterdir()}
        assert modes == {f"catalog.db{suffix}": 0o600 for suffix in ("", "-wal", "-shm")}
        synchronous = catalog._database.run(lambda it: it.exec_driver_sql("PRAGMA synchronous").scalar())
        assert synchronous == 2
        catalog.close()
    finally:
        os.umask(before)


BAD_URLS = {
    "no folder": "sqlite:////no/such/folder/catalog.db",
    "no server": "postgresql://me:s3cret@127.0.0.1:1/words",
    "password in the query": "postgresql://me@127.0.0.1:1/words?password=s3cret&sslpassword=s3cret",
    "no socket": "postgres://me:s3cret@/words?host=/no/such/folder",
    "not a URL": "me:s3cret@words",
    "bad port": "postgresql://me:s3cret@host:port/words",
    "other kind": "mysql://me:s3cret@host/words",
    "bad option": "postgresql://me:s3cret@/words?host=/tmp&nonsense=s3cret",
}


@pytest.mark.parametrize("bad", BAD_URLS.values(), ids=BAD_URLS.keys())
def test_what_cannot_be_opened_has_a_named_error_without_the_password(bad: str) -> None:
    with pytest.raises(PenstockError) as caught:
        Catalog.open(bad, "words", retries=QUICK)
    assert caught.value.name == "CATALOG_UNREACHABLE"
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value)).replace(bad, "")


def test_a_password_that_the_driver_repeats_is_not_shown() -> None:
    database = Database.open("postgresql://me:s3cret@host/words?sslpassword=al5o")
    assert str(database.unreachable(ValueError("s3cret or al5o is\nwrong"))).count("***") == 3
    database.close()


def test_a_file_that_is_no_database_has_a_named_error(sqlite_path: Path) -> None:
    sqlite_path.write_text("this is a text, and long enough to be looked at " * 100)
    with pytest.raises(PenstockError) as caught:
        Catalog.open(f"sqlite:///{sqlite_path}", "words", retries=QUICK)
    assert caught.value.name == "CATALOG_UNREACHABLE"


def test_an_unknown_kind_of_synchronous_has_a_named_error(sqlite_path: Path) -> None:
    with pytest.raises(PenstockError) as caught:
        Catalog.open(f"sqlite:///{sqlite_path}", "words", synchronous="OFF")
    assert caught.value.name == "BAD_SETTING"


def test_a_catalog_shows_no_password(postgresql_server: str) -> None:
    catalog = Catalog.open(f"postgresql://penstock:s3cret@/postgres?host={postgresql_server}", "words")
    assert repr(catalog) == "Catalog(postgresql+psycopg://penstock:***@/postgres, words)"
    catalog.close()
