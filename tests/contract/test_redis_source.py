"""The Redis source on a real Redis server: every entry once, the same entries again, and named errors."""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from redis_server import free_port, redis_server

from penstock import PenstockError, sources
from penstock.channels.catalog import Catalog
from penstock.kinds import SourcePlace
from penstock.sources import redis_wait
from penstock.sources.redis_stream import RedisStream

redis = pytest.importorskip("redis")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
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


def test_large_entries_are_fetched_a_few_at_a_time(url: str, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle has memory for some of them, and not for 2,000 at once."""
    entries, fetched = RedisStream.entries, []

    def counted(self: RedisStream, after: str, last: str, most: int) -> Any:
        found = entries(self, after, last, most)
        fetched.append(sum(len(value) for _, fields in found for value in fields.values()))
        return found

    monkeypatch.setattr(RedisStream, "entries", counted)
    for n in range(600):
        client.xadd("s", {"n": n, "text": "x" * 100_000})
    last = client.xrevrange("s", count=1)[0][0].decode()
    batches = list(spec(url).read(["0-0", last, 600], None))
    assert [n for batch in batches for n in batch.column("n").to_pylist()] == list(range(600))
    assert max(fetched) < 20 << 20


def test_values_are_read_from_text_and_ids_can_be_a_column(url: str, client: Any) -> None:
    client.xadd("s", {"n": 7, "at": "2026-01-01T00:00:01.5", "x": "1.25", "other": "?"}, id="5-1")
    client.xadd("s", {"text": "ä", "at": "2026-01-01T02:00:00+02:00"}, id="5-2")
    client.xadd("s", {"at": "2026-01-02"}, id="5-3")
    source = spec(url, schema="n long, text string, at timestamp, x double", id_column="id")
    [batch] = source.read(["0-0", "5-3", 3], None)
    assert batch.to_pylist() == [
        {"n": 7, "text": None, "at": datetime(2026, 1, 1, 0, 0, 1, 500_000, UTC), "x": 1.25, "id": "5-1"},
        {"n": None, "text": "ä", "at": datetime(2026, 1, 1, tzinfo=UTC), "x": None, "id": "5-2"},
        {"n": None, "text": None, "at": datetime(2026, 1, 2, tzinfo=UTC), "x": None, "id": "5-3"},
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
    with pytest.raises(PenstockError, match="4 are there") as caught:
        reading.rows(start, end)
    assert caught.value.name == "REDIS_DATA_LOST"


def lost(reading: Reading) -> str:
    reading.now += 1.0
    with pytest.raises(PenstockError) as caught:
        reading.offsets.look()
    assert caught.value.name == "REDIS_DATA_LOST"
    return caught.value.message


def test_entries_that_were_trimmed_before_the_driver_saw_them_are_noticed(
    url: str, client: Any, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(client, 0, 10)
    reading = Reading(spec(url), catalog)
    _, end, _ = reading.batch(10)
    add(client, 10, 10)
    client.xtrim("s", maxlen=4, approximate=False)
    assert "it got 10 entries after" in lost(reading)
    assert "4 are there" in lost(Reading(spec(url), catalog, position=end)), "a run that goes on notices it too"
    # The driver is far behind: one look does not show all that is there.
    monkeypatch.setattr("penstock.sources.redis_offsets.IDS", 3)
    assert "4 are there" in lost(Reading(spec(url), catalog, position=end))


def test_what_was_read_may_be_trimmed_and_what_was_gone_before_is_not_missed(
    url: str, client: Any, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.sources.redis_offsets.IDS", 3)
    add(client, 0, 10)
    client.xtrim("s", maxlen=8, approximate=False)
    reading = Reading(spec(url), catalog)
    taken = []
    for _ in range(6):
        taken += reading.batch(2)[2]
        client.xtrim("s", minid=reading.offsets.position[0], approximate=False)
    client.xdel("s", reading.offsets.position[0])
    add(client, 10, 2)
    assert taken + reading.batch(9)[2] == list(range(2, 12))


def test_one_entry_that_was_deleted_before_it_was_seen_is_noticed(url: str, client: Any, catalog: Catalog) -> None:
    add(client, 0, 3)
    reading = Reading(spec(url), catalog)
    reading.batch(9)
    add(client, 3, 3)
    client.xdel("s", client.xrange("s")[4][0])
    assert "it got 3 entries" in lost(reading)


@pytest.mark.parametrize("entries", [0, 2, 5, 7])
def test_a_stream_that_was_made_anew_is_noticed(url: str, client: Any, catalog: Catalog, entries: int) -> None:
    add(client, 0, 5)
    reading = Reading(spec(url), catalog)
    reading.batch(9)
    client.delete("s")
    time.sleep(0.002)  # ids of the same millisecond could be the old ones
    add(client, 0, entries)
    lost(reading)


def test_a_stream_whose_ids_went_back_is_noticed(url: str, client: Any, catalog: Catalog) -> None:
    add(client, 0, 2)
    reading = Reading(spec(url), catalog)
    reading.batch(9)
    client.delete("s")
    for n in (1, 2):
        client.xadd("s", {"n": n}, id=f"{n}-0")
    assert "newest entry is 2-0" in lost(reading)


def test_a_server_that_starts_again_goes_on_with_what_it_kept(
    tmp_path_factory: pytest.TempPathFactory, catalog: Catalog
) -> None:
    folder, port = tmp_path_factory.mktemp("kept"), free_port()
    kept = ("--appendonly", "yes", "--appendfsync", "always")
    with redis_server(folder, *kept, port=port) as url, redis.Redis.from_url(url) as client:
        add(client, 0, 3)
        reading = Reading(spec(url), catalog)
        start, end, rows = reading.batch(9)
        assert rows == [0, 1, 2]
        add(client, 3, 2)
    reading.now += 1.0
    reading.offsets.look()
    assert reading.offsets.available() == 0, "a server that is away for a while is no error"
    with redis_server(folder, *kept, port=port):
        assert reading.rows(start, end) == [0, 1, 2]
        assert reading.batch(9)[2] == [3, 4]
    with redis_server(folder, port=port) as url, redis.Redis.from_url(url) as client:
        add(client, 0, 9)
        lost(reading)


def test_a_bundle_waits_for_a_server_that_is_away(url: str, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    add(client, 0, 2)
    asked = []
    ask = RedisStream.ask

    def sometimes(self: RedisStream, question: Any) -> Any:
        asked.append(question)
        if len(asked) == 1:
            raise PenstockError("REDIS_UNREACHABLE", "away", "")
        return ask(self, question)

    monkeypatch.setattr(RedisStream, "ask", sometimes)
    monkeypatch.setattr("penstock.sources.redis_stream.PAUSE_SECONDS", 0.0)
    assert sum(batch.num_rows for batch in spec(url).read(["0-0", f"{2**60}-0", 2], None)) == 2
    monkeypatch.setattr("penstock.sources.redis_stream.PATIENCE_SECONDS", -1.0)
    asked.clear()
    with pytest.raises(PenstockError) as caught:
        list(spec(url).read(["0-0", f"{2**60}-0", 2], None))
    assert caught.value.name == "REDIS_UNREACHABLE"


def test_a_batch_may_be_cut_or_given_up_while_redis_is_asked(
    url: str, client: Any, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(client, 0, 6)
    reading = Reading(spec(url), catalog)
    reading.offsets.look()
    begin, cut = reading.offsets.position, reading.offsets.end(4, 1)
    look = RedisStream.look
    for meanwhile, wanted in ((cut, [4, 5, 6, 7]), (begin, list(range(10)))):
        add(client, client.xlen("s"), 2)

        def moved(self: RedisStream, after: str, most: int, to: Any = meanwhile) -> Any:
            found = look(self, after, most)
            reading.offsets.go_to(to)
            return found

        monkeypatch.setattr(RedisStream, "look", moved)
        reading.now += 1.0
        reading.offsets.look()
        monkeypatch.setattr(RedisStream, "look", look)
        reading.start = reading.offsets.position
        reading.now += 1.0
        reading.offsets.look()
        assert reading.rows(reading.start, reading.offsets.end(99, 1)) == wanted


def test_rows_are_as_old_as_the_driver_has_seen_them(url: str, client: Any, catalog: Catalog) -> None:
    reading = Reading(spec(url), catalog)
    add(client, 0, 4)
    reading.now = 200.0
    reading.offsets.look()
    add(client, 4, 4)
    reading.now = 210.0
    reading.offsets.look()
    ends = [json.loads(json.dumps(reading.offsets.end(count, 1))) for count in (2, 6, 8)]
    reading.now = 300.0
    born = []
    for start, end in zip([None, *ends], ends, strict=False):
        reading.offsets.go_to(end)
        [one] = reading.offsets.ranges(start, end, 1)
        born.append((one.born_from, one.born_to))
    assert born == [(200.0, 200.0), (200.0, 210.0), (210.0, 210.0)]


def test_a_source_may_begin_at_the_end_or_end_there(url: str, client: Any, catalog: Catalog) -> None:
    add(client, 0, 3)
    source = spec(url, start="latest")
    assert source.offsets(SourcePlace("in", catalog, lambda: 0.0, prefix="source/in/")).available() == 0
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


class Told:
    """A source in real time whose driver sleeps until somebody has it look."""

    def __init__(self, url: str, catalog: Catalog) -> None:
        self.woken, self.asked = threading.Event(), 0
        place = SourcePlace(
            "in", catalog, time.monotonic, prefix="source/in/", lingers=lambda: 0.015, wake=self.woken.set
        )
        self.offsets = spec(url).offsets(place)

    def know(self, entries: int, seconds: float = 20.0) -> None:
        """Look whenever it is due, until so many entries are known."""
        deadline = time.monotonic() + seconds
        while self.offsets.available() < entries:
            assert time.monotonic() < deadline
            self.pause()

    def idle(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.pause(until - time.monotonic())

    def pause(self, most: float = 60.0) -> None:
        due = self.offsets.due_in()
        assert due is not None
        self.woken.wait(min(due, most))
        self.woken.clear()
        self.asked += self.offsets.due_in() == 0
        self.offsets.look()


def waiting_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == redis_wait.THREAD]


@pytest.fixture
def told(url: str, client: Any, catalog: Catalog) -> Iterator[Told]:
    """`client` empties the server."""
    made = Told(url, catalog)
    yield made
    made.offsets.close()
    for thread in waiting_threads():
        thread.join(20)
    assert not waiting_threads(), "nobody waits for a source that is closed"


def test_nobody_asks_while_nothing_comes_and_an_entry_is_told_at_once(told: Told, client: Any) -> None:
    told.idle(1.5)
    assert told.asked <= 4
    for n in range(5):
        told.pause(0.0)
        # Redis tells it long before the next look would be due, also where everything is slow.
        add(client, n, 1)
        assert told.woken.wait(20)
        assert told.offsets.due_in() == pytest.approx(0.0, abs=0.015)
        told.know(n + 1)
        told.idle(0.05)
    asked = told.asked
    told.idle(1.0)
    assert told.asked - asked <= 3


def test_while_entries_come_each_is_known_after_as_long_as_rows_may_linger(told: Told, client: Any) -> None:
    for n in range(30):
        add(client, n, 1)
        told.know(n + 1)
        due = told.offsets.due_in()
        assert due is not None and due <= 0.015


def test_where_redis_refuses_to_tell_it_is_asked(url: str, client: Any, catalog: Catalog) -> None:
    client.acl_setuser("reader", enabled=True, passwords=["+p"], keys=["*"], commands=["+@all", "-xread"])
    try:
        told = Told(url.replace("//", "//reader:p@"), catalog)
        told.idle(0.5)
        assert told.asked >= 4
        add(client, 0, 3)
        told.know(3)
        told.idle(0.3)
        due = told.offsets.due_in()
        assert due is not None and due <= 0.1
        told.offsets.close()
    finally:
        client.acl_deluser("reader")


def test_who_waits_for_a_server_that_starts_again_is_told_of_what_comes_then(
    tmp_path_factory: pytest.TempPathFactory, catalog: Catalog
) -> None:
    folder, port = tmp_path_factory.mktemp("again"), free_port()
    kept = ("--appendonly", "yes", "--appendfsync", "always")
    with redis_server(folder, *kept, port=port) as url, redis.Redis.from_url(url) as client:
        add(client, 0, 1)
        told = Told(url, catalog)
        told.know(1)
        told.idle(0.2)
    told.idle(0.5)  # the server is away
    with redis_server(folder, *kept, port=port) as url, redis.Redis.from_url(url) as client:
        told.idle(0.5)
        told.woken.clear()
        add(client, 1, 1)
        told.know(2)
        asked = told.asked
        told.idle(1.0)
        assert told.asked - asked <= 4, "nobody has to ask again"
        told.offsets.close()


def test_entries_that_are_lost_are_noticed_while_nobody_asks(told: Told, client: Any) -> None:
    add(client, 0, 3)
    told.know(3)
    told.idle(0.2)
    client.delete("s")
    with pytest.raises(PenstockError) as caught:
        told.idle(20)
    assert caught.value.name == "REDIS_DATA_LOST"


def test_what_cannot_be_is_named(url: str, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client.set("s", "no stream")
    with pytest.raises(PenstockError) as caught:
        spec(url).check(None)
    assert caught.value.name == "BAD_SOURCE"
    with pytest.raises(PenstockError) as caught:
        spec("redis://:secret@127.0.0.1:1").check(None)
    assert caught.value.name == "REDIS_UNREACHABLE"
    assert "secret" not in str(caught.value)
    for option in ("decode_responses=true", "socket_timeout=soon"):
        with pytest.raises(PenstockError, match=option.partition("=")[0]) as caught:
            spec(f"{url}?{option}").check(None)
        assert caught.value.name == "BAD_SOURCE"
    client.config_set("requirepass", "open sesame")
    try:
        for wrong in (f"{url}/0", url.replace("//", "//:guess@")):  # no connection of an earlier question
            with pytest.raises(PenstockError, match="does not let") as caught:
                spec(wrong).check(None)
            assert caught.value.name == "BAD_SOURCE"
            assert "guess" not in str(caught.value)
    finally:
        client.config_set("requirepass", "")
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


@pytest.mark.parametrize(
    "url", ["redis://:12/3secret@here:7", "redis://:secret/@here:7", "redis://:1?secret@here", "redis://:1#secret@here"]
)
def test_a_password_that_is_not_written_for_a_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(PenstockError) as caught:
        sources.redis(url, "s", schema="n long")
    assert caught.value.name == "BAD_SOURCE"
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_an_old_server_is_refused(url: str, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    add(client, 0, 1)
    monkeypatch.setattr("penstock.sources.redis_stream._LOOK", "return {{}, 1, -1, '0-0', '0-0'}")
    with pytest.raises(PenstockError, match="Redis 7") as caught:
        spec(url).check(None)
    assert caught.value.name == "BAD_SOURCE"


def test_a_password_is_not_shown() -> None:
    source = sources.redis("redis://:secret@here:7/2", "s", schema="n long")
    assert "secret" not in repr(source)
    assert "secret" not in json.dumps(source.describe())
    assert source.place.server == "here:7/2"
    assert "secret" not in repr(source.place)
    assert sources.redis("unix://:secret@/run/redis.sock", "s", schema="n long").place.server == "/run/redis.sock"
