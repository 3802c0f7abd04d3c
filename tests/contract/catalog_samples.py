"""What the tests of catalogs put in, and how long they wait."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.channels.catalog import Catalog
from penstock.channels.database import Retries
from penstock.channels.records import NewSegment

Open = Callable[..., Catalog]
QUICK = Retries(times=3, first_pause=0.01)


def new(path: str, rows: int = 10, channel: str = "lines", size: int = 100) -> NewSegment:
    return NewSegment(channel, path, rows, size, "local/0", 1.25, 2.5)


def lose_commits(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, times: int, why: str = "connection lost"
) -> list[str]:
    """Have the connection break just after the next commits: the work is done, and nobody hears of it."""
    lost: list[str] = []
    engine = catalog._database._engine
    real = engine.dialect.do_commit

    def commit(connection: object) -> None:
        real(connection)
        if len(lost) < times:
            lost.append("commit")
            error = engine.dialect.dbapi.OperationalError(why)
            if engine.dialect.name == "sqlite":
                error.sqlite_errorname = "SQLITE_BUSY"
            raise error

    monkeypatch.setattr(engine.dialect, "do_commit", commit)
    return lost
