"""Fixtures of the suites that run on every implementation: a real PostgreSQL server beside SQLite."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from catalog_samples import Open
from postgresql_binaries import as_user, find_binaries, server_user

from penstock.channels.catalog import Catalog
from penstock.channels.database import Database, Retries

#: Ends the server when its standard input closes, as it does however pytest ends. SIGINT is a fast shutdown.
WATCH = '"$@" </dev/null & server=$!; read -r _; kill -INT $server; wait $server; rm -rf "$0"'


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The socket folder of a server that lives as long as the session; the only way in is that folder."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server: initdb is neither in PATH nor in /usr/lib/postgresql/*/bin")
    user = server_user()
    # Not below pytest's own folder, which other users may not enter.
    folder = Path(tempfile.mkdtemp(prefix="penstock-pg-"))
    try:
        if user:
            shutil.chown(folder, user)
        data = folder / "data"
        create = [binaries / "initdb", "-D", data, "-U", "penstock", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(create, check=True, capture_output=True, cwd=folder, **as_user(user))
        serve = [binaries / "postgres", "-D", data, "-k", folder, "-h", "", "-F"]
        with (folder / "log").open("wb") as log:
            watch = ["sh", "-c", WATCH, str(folder), *map(str, serve)]
            process = subprocess.Popen(
                watch,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=folder,
                start_new_session=True,
                **as_user(user),
            )
        try:
            wait_until_it_answers(folder)
            yield str(folder)
        finally:
            process.communicate(timeout=30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgresql_url(postgresql_server: str) -> str:
    """An empty schema of its own for each test: a database of its own would take longer than most tests."""
    name = f"test_{uuid4().hex}"
    with psycopg.connect(host=postgresql_server, user="penstock", dbname="postgres", autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"postgresql://penstock@/postgres?host={postgresql_server}&options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database for a catalog or a statistics store, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/penstock.db"
    return request.getfixturevalue("postgresql_url")


@pytest.fixture
def open_catalog(url: str) -> Iterator[Open]:
    opened: list[Catalog] = []

    def open_(topology: str = "words", **options: object) -> Catalog:
        opened.append(Catalog.open(url, topology, **{"clock": lambda: 1234.5} | options))
        return opened[-1]

    yield open_
    for catalog in opened:
        catalog.close()


@pytest.fixture
def catalog(open_catalog: Open) -> Catalog:
    return open_catalog()


def wait_until_it_answers(folder: Path) -> None:
    database = Database.open(
        f"postgresql://penstock@/postgres?host={folder}", retries=Retries(times=9, first_pause=0.05)
    )
    try:
        database.run(lambda _: None)
    finally:
        database.close()
