"""How many statements the catalog has for its database: a database's driver keeps each of them ready, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.channels.catalog import Catalog
from penstock.channels.records import NewSegment


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    opened = Catalog.open("sqlite:///:memory:", "words")
    yield opened
    opened.close()


@contextmanager
def statements_of(catalog: Catalog) -> Iterator[set[str]]:
    """The texts that the database gets meanwhile."""
    texts: set[str] = set()

    def note(_connection: Any, _cursor: Any, text: str, *_: Any) -> None:
        texts.add(text)

    engine = catalog._database._engine
    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        yield texts
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)


def test_any_number_of_segments_is_forgotten_with_one_statement(catalog: Catalog) -> None:
    def forget(count: int) -> None:
        segments = [
            NewSegment(channel, f"{channel}/{count}/{number}", 1, 1, "local/0", 1.0, 1.0)
            for channel in ("lines", "words")
            for number in range(count)
        ]
        placed = catalog.publish("read", count, segments, "{}", {})
        assert placed is not None
        catalog.forget(placed)

    with statements_of(catalog) as texts:
        for count in (1, 2, 5, 40):
            forget(count)
    assert catalog.load().segments == ()
    assert len([text for text in texts if text.startswith("DELETE")]) == 1


def test_any_number_of_values_is_deleted_with_one_statement(catalog: Catalog) -> None:
    def change(count: int) -> None:
        names = [f"files/{number}" for number in range(count)]
        catalog.change_metas(dict.fromkeys(names, "read"))
        catalog.change_metas({}, names)

    with statements_of(catalog) as texts:
        for count in (1, 2, 5, 40):
            change(count)
    assert catalog.metas("files/") == {}
    assert len([text for text in texts if text.startswith("DELETE")]) == 1
