"""The Redis source on a real Redis server: every entry once, the same entries again, and named errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from redis_server import find_server, redis_server

from penstock import PenstockError, sources
from penstock.channels.catalog import Catalog
from penstock.kinds import SourcePlace

redis = pytest.importorskip("redis")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if find_server() is None:
        pytest.skip("no Redis server: redis-server is not in PATH (Debian: apt-get install redis-server)")
    with redis_server(tmp_path_factory.mktemp("redis")) as address:
        yield address


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    with redis.Redis.from_url(url) as client:
        client.flushall()
        yield client


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    catalog = Catalog.open("sqlite://", "t")
    yield catalog
    catalog.close()


def add(client: Any, first: int, count: int) -> None:
    for n in range(first, first + count):
        client.xadd("s", {"n": n, "text": f"entry {n}", "at": "2026-01-01T00:00:01.5Z"})


def spec(url: str, **options: Any) -> sources.RedisSource:
    return sources.redis(url, "s", **{"schema": "n long, text string, at timestamp", **options})


class Reading:
    """A source that is read as the engine reads it: offsets are JSON, and time goes on."""

    def __init__(self, spec: sources.RedisSource, catalog: Catalog, position: Any = None) -> None:
        self.now = 100.0
        self.spec = spec
        self.offsets = spec.offsets(SourcePlace("in", catalog, lambda: self.now, prefix="source/in/"))
        self.start = position
        if position is not None:
            self.offsets.go_to(position)

    def batch(self, most: int) -> tuple[Any, Any, list[int]]:
        self.now += 1.0
        self.offsets.look()
        end = json.loads(json.dumps(self.offsets.end(min(most, self.offsets.available()), 2)))
        start, self.start = self.start, end
        rows = self.rows(start, end) if end is not None else []
        self.offsets.go_to(end)
        return start, end, rows

    def rows(self, start: Any, end: Any) -> list[int]:
        loads = [json.loads(json.dumps(one.load)) for one in self.offsets.ranges(start, end, 2)]
        return [row["n"] for load in loads for batch in self.spec.read(load, None) for row in batch.to_pylist()]


def test_every_entry_once_and_the_same_entries_again(url: str, client: Any, catalog: Catalog) -> None:
    add(client, 0, 30)
    reading = Reading(spec(url), catalog)
    batches = [reading.batch(7) for _ in range(5)]
    assert [row for _, _, rows in batches for row in rows] == list(range(30))
    add(client, 30, 5)
    for start, end, rows in batches:
        assert reading.rows(start, end) == rows, "what came later changes nothing"
    _, end, rows = reading.batch(100)
    assert rows == [30, 31, 32, 33, 34]
    assert end[1] == 35
    # A second run goes on where the first one was; one that goes back reads the same once more.
    add(client, 35, 2)
    again = Reading(spec(url), catalog, position=end)
    assert again.batch(100)[2] == [35, 36]
    again.offsets.go_to(batches[3][1])
    again.start = batches[3][1]
    assert again.batch(100)[2] == list(range(28, 37))


def test_values_are_read_from_text_and_ids_can_be_a_column(url: str, client: Any) -> None:
    client.xadd("s", {"n": 7, "at": "2026-01-01T00:00:01.5", "x": "1.25", "other": "?"}, id="5-1")
    client.xadd("s", {"text": "ä", "at": "2026-01-01T02:00:00+02:00"}, id="5-2")
    source = spec(url, schema="n long, text string, at timestamp, x double", id_column="id")
    [batch] = source.read(["0-0", "5-2", 2], None)
    assert batch.to_pylist() == [
        {"n": 7, "text": None, "at": datetime(2026, 1, 1, 0, 0, 1, 500_000, UTC), "x": 1.25, "id": "5-1"},
        {"n": None, "text": "ä", "at": datetime(2026, 1, 1, tzinfo=UTC), "x": None, "id": "5-2"},
    ]


def test_an_entry_that_cannot_be_read_is_a_bad_row(url: str, client: Any) -> None:
    client.xadd("s", {"n": 1}, id="5-1")
    client.xadd("s", {"n": "one"}, id="5-2")
    client.xadd("s", {"n": 3}, id="5-3")
    bad: list[str] = []
    rows = [
        row["n"]
        for batch in spec(url).read(["0-0", "5-3", 3], lambda row, error: bad.append(row))
        for row in batch.to_pylist()
    ]
    assert rows == [1, 3]
    assert bad == ["{'n': 'one'}"]
    with pytest.raises(PenstockError, match="entry 5-2") as caught:
        list(spec(url).read(["0-0", "5-3", 3], None))
    assert caught.value.name == "BAD_ROW"


def test_entries_that_were_deleted_before_they_were_read_are_noticed(url: str, client: Any, catalog: Catalog) -> None:
    add(client, 0, 10)
    reading = Reading(spec(url), catalog)
    start, end, _ = reading.batch(10)
    client.xtrim("s", maxlen=4, approximate=False)
    with pytest.raises(PenstockError, match="4 entries") as caught:
        reading.rows(start, end)
    assert caught.value.name == "REDIS_DATA_LOST"


def test_a_source_may_begin_at_the_end_or_end_there(url: str, client: Any, catalog: Catalog) -> None:
    add(client, 0, 3)
    source = spec(url, start="latest")
    assert source.offsets(SourcePlace("in", catalog, lambda: 0.0, prefix="source/in/")).position[1] == 0
    add(client, 3, 2)
    assert Reading(source, catalog).batch(9)[2] == [3, 4], "the beginning is written down before the first batch"

    other = Catalog.open("sqlite://", "t")
    reading = Reading(spec(url, follow=False), other)
    add(client, 5, 2)
    assert reading.batch(9)[2] == [0, 1, 2, 3, 4]
    assert reading.offsets.ended
    assert reading.offsets.due_in() is None
    other.close()


def test_a_stream_may_come_later(url: str, client: Any, catalog: Catalog) -> None:
    source = spec(url)
    source.check(None)
    reading = Reading(source, catalog)
    reading.offsets.look()
    assert reading.offsets.end(0, 1) is None
    assert reading.offsets.available() == 0
    add(client, 0, 2)
    assert reading.batch(9)[2] == [0, 1]


def test_what_cannot_be_is_named(url: str, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client.set("s", "no stream")
    with pytest.raises(PenstockError) as caught:
        spec(url).check(None)
    assert caught.value.name == "BAD_SOURCE"
    with pytest.raises(PenstockError) as caught:
        spec("redis://:secret@127.0.0.1:1").check(None)
    assert caught.value.name == "REDIS_UNREACHABLE"
    assert "secret" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(PenstockError) as caught:
        spec(url).check(None)
    assert caught.value.name == "REDIS_MISSING"


@pytest.mark.parametrize(
    "options",
    [{"url": "localhost"}, {"stream": ""}, {"schema": "n array<long>"}, {"start": "now"}, {"id_column": "n"}],
)
def test_a_bad_declaration_is_named(options: dict[str, Any]) -> None:
    given: dict[str, Any] = {"url": "redis://here", "stream": "s", "schema": "n long", **options}
    with pytest.raises(PenstockError) as caught:
        sources.redis(given.pop("url"), given.pop("stream"), **given)
    assert caught.value.name == "BAD_SOURCE"


def test_a_password_is_not_shown() -> None:
    source = sources.redis("redis://:secret@here:7/2", "s", schema="n long")
    assert "secret" not in repr(source)
    assert "secret" not in json.dumps(source.describe())
    assert source.server == "here:7/2"
