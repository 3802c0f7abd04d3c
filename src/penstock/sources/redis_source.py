"""Entries of a Redis stream. The driver asks for the ids of new entries and hands out ranges of ids. Bundles read them.

Redis gives entries ids that only grow, and gives the entries between two ids as often as it is asked: so a batch that
was cut off reads the same entries again. Consumer groups are not used: Spark and the catalog know how far a run is. An
offset counts the entries up to it, so that entries which were deleted before they were read are noticed.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa

from penstock.errors import Location, PenstockError
from penstock.kinds import BadRow, Offset, Offsets, Range, SourceKind, SourcePlace
from penstock.sources.bad_rows import BadRows, in_schema, keep_good, together
from penstock.sources.mistakes import bad_source
from penstock.topology.schema import Schema, parse_schema

#: How often the driver asks for new entries.
LOOK_SECONDS = 0.1
#: For so long all questions in a row may fail before the source does.
PATIENCE_SECONDS = 60.0
#: Ids that the driver fetches at once, and keeps at most: it need not know all entries of a long stream.
IDS, MOST_IDS = 20_000, 200_000
#: Entries that a bundle fetches at once.
ENTRIES = 2_000
#: The longest that one question may take, in seconds.
SECONDS = 10.0
#: The id before all others.
BEGIN = "0-0"
#: Only the ids of entries, and not the entries: the driver does not need these.
_IDS_AFTER = """
local found = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])
for at, entry in ipairs(found) do found[at] = entry[1] end
return found
"""
T = TypeVar("T")
#: The id of an entry, and its fields.
Entry = tuple[bytes, Mapping[bytes, bytes]]


def redis(
    url: str, stream: str, *, schema: Schema, start: str = "earliest", follow: bool = True, id_column: str | None = None
) -> RedisSource:
    """A source that reads the entries of a Redis stream: `redis://host:6379`, or `rediss://` for TLS, with a password
    and the number of a database if there are any (`redis://:secret@host:6379/2`).

    Each column of `schema` is a field of the entries, which Redis holds as text; a field that an entry lacks is null.
    `id_column` adds a column with the id of the entry. `start` is where a run on a new state begins, "earliest" or
    "latest". With `follow`, entries that come later are read too; without, the source ends with those that are there
    when the run begins. A range of the stream is read by one instance, so the order of its entries is kept."""
    where = Location.of_caller()
    if not isinstance(url, str) or urlsplit(url).scheme not in ("redis", "rediss", "unix"):
        raise bad_source("the source has no URL of a Redis server.", "Give one, such as redis://localhost:6379.")
    if not isinstance(stream, str) or not stream:
        raise bad_source(f"the stream is {stream!r}.", "Give the key of a Redis stream.")
    if start not in ("earliest", "latest"):
        raise bad_source(f"the start is {start!r}.", 'Use "earliest" or "latest".')
    fields = parse_schema(schema, where)
    for column in fields:
        if pa.types.is_nested(column.type):
            raise bad_source(
                f'the column "{column.name}" is nested, and a field of an entry is a text.',
                "Read it as a string, and parse it in a map.",
            )
    if id_column is not None and (not isinstance(id_column, str) or id_column in fields.names):
        raise bad_source(f"the id_column is {id_column!r}.", "Give a name that the schema does not have.")
    return RedisSource(url, stream, fields, start, follow, id_column)


@dataclass(frozen=True)
class RedisSource(SourceKind):
    """Its URL may hold a password, so it does not appear where the source is printed."""

    url: str = field(repr=False)
    #: The key of the Redis stream.
    entries: str
    fields: pa.Schema
    start: str
    follow: bool
    id_column: str | None
    schema: pa.Schema = field(init=False, repr=False, compare=False)

    kind = "redis"
    reading_is_work = True

    def __post_init__(self) -> None:
        ids = [pa.field(self.id_column, pa.string())] if self.id_column is not None else []
        object.__setattr__(self, "schema", pa.schema([*self.fields, *ids]))

    @property
    def ends(self) -> bool:
        return not self.follow

    def describe(self) -> Mapping[str, Any]:
        return {
            "kind": self.kind,
            "server": self.server,
            "stream": self.entries,
            "start": self.start,
            "follow": self.follow,
        }

    @property
    def server(self) -> str:
        """Where the server is, without what is secret."""
        parts = urlsplit(self.url)
        return f"{parts.hostname or 'localhost'}:{parts.port or 6379}{parts.path}"

    def check(self, where: Location | None) -> None:
        try:
            self.ask(lambda client: client.xlen(self.entries))
        except PenstockError as error:
            raise PenstockError(error.name, error.message, error.hint, where) from None

    def offsets(self, place: SourcePlace) -> RedisOffsets:
        return RedisOffsets(self, place)

    def read(self, load: Any, bad_row: BadRow | None) -> Iterator[pa.RecordBatch]:
        after, last, wanted = load
        found = 0
        while True:
            some = self.ask(functools.partial(_entries, self.entries, after, last))
            if not some:
                break
            found += len(some)
            after = some[-1][0].decode()
            yield from self._rows(some, bad_row)
        if found != wanted:
            raise PenstockError(
                "REDIS_DATA_LOST",
                f'the stream "{self.entries}" has {found:,} entries up to {last} where it had {wanted:,}.',
                "Entries were deleted before they were read: trim the stream later, or by the ids that were read. To "
                "go on without them, give up the position of the source with --forget and the name of the source.",
            )

    def _rows(self, entries: Sequence[Entry], bad_row: BadRow | None) -> Iterator[Any]:
        bad = BadRows(self.entries, bad_row)
        names = [name.encode() for name in self.fields.names]

        def convert(first: int, count: int) -> pa.RecordBatch:
            some = entries[first : first + count]
            columns = [
                _column([fields.get(name) for _, fields in some], column.type)
                for name, column in zip(names, self.fields, strict=True)
            ]
            ids = [pa.array([one.decode() for one, _ in some], pa.string())] if self.id_column is not None else []
            return in_schema([*columns, *ids], self.schema)

        def report(number: int, error: str) -> None:
            entry, fields = entries[number]
            row = {name.decode(errors="replace"): text.decode(errors="replace") for name, text in fields.items()}
            bad.report(str(row), error, lambda: f"entry {entry.decode()}")

        yield from together(keep_good(convert, 0, len(entries), report))

    def ask(self, question: Callable[[Any], T]) -> T:
        """What Redis answers, or a named error."""
        library = _library()
        try:
            return question(_client(self.url))
        except library.exceptions.ResponseError as error:
            raise PenstockError(
                "BAD_SOURCE", f'"{self.entries}" cannot be read: {error}.', "Name the key of a Redis stream."
            ) from None
        except (library.exceptions.RedisError, OSError) as error:
            raise PenstockError(
                "REDIS_UNREACHABLE",
                f"the Redis server {self.server} does not answer: {error}.",
                "Start the server, and give its address.",
            ) from None


class RedisOffsets(Offsets):
    """The offset is the id of the last entry that is read, and the number of entries read so far."""

    def __init__(self, spec: RedisSource, place: SourcePlace) -> None:
        self._spec = spec
        self._clock = place.clock
        key = f"{place.prefix}start"
        first = place.notes.get_meta(key)
        if first is None:
            # Written down before the first batch: a run that begins again must begin there too.
            first = self._last() if spec.start == "latest" else BEGIN
            place.notes.change_metas({key: first})
        self._first: Offset = [first, 0]
        self.position: Offset = self._first
        #: Where the source ends for this run; None if it follows.
        self._stop: str | None = None
        if not spec.follow:
            if "stop" not in place.memory:
                place.memory["stop"] = self._last()
            self._stop = place.memory["stop"]
        #: The ids of entries that are there and not read, in their order, and when each was first seen.
        self._ids: deque[tuple[str, float]] = deque()
        #: The newest entry that is read.
        self._seen = (BEGIN, 0.0)
        self._next_look = 0.0
        #: Since when Redis does not answer.
        self._silent_since: float | None = None

    def look(self) -> None:
        now = self._clock()
        if now < self._next_look or len(self._ids) >= MOST_IDS:
            return
        after = self._ids[-1][0] if self._ids else self.position[0]
        try:
            found = self._spec.ask(lambda client: client.eval(_IDS_AFTER, 1, self._spec.entries, after, IDS))
        except PenstockError as error:
            since = self._silent_since = now if self._silent_since is None else self._silent_since
            if error.name != "REDIS_UNREACHABLE" or now - since > PATIENCE_SECONDS:
                raise
            found = []
        else:
            self._silent_since = None
        stop = None if self._stop is None else _number(self._stop)
        self._ids.extend((one.decode(), now) for one in found if stop is None or _number(one.decode()) <= stop)
        self._next_look = self._clock() + (LOOK_SECONDS if len(found) < IDS else 0.0)

    def available(self) -> int:
        return len(self._ids)

    def due_in(self) -> float | None:
        return None if self.ended else max(self._next_look - self._clock(), 0.0)

    @property
    def unmet(self) -> int:
        return self.available()

    @property
    def ended(self) -> bool:
        return self._stop is not None and _number(self.position[0]) >= _number(self._stop)

    def go_to(self, offset: Offset) -> None:
        reached = _number(offset[0])
        if reached < _number(self.position[0]):
            self._ids.clear()  # they follow what comes now only after others, which have to be asked for again
            self._next_look = 0.0
        self.position = offset
        while self._ids and _number(self._ids[0][0]) <= reached:
            self._seen = self._ids.popleft()

    def end(self, most: int, instances: int) -> Offset | None:
        count = min(most, len(self._ids))
        if not count:
            return self.position if self.position != self._first else None
        return [self._ids[count - 1][0], self.position[1] + count]

    def ranges(self, start: Offset | None, end: Offset, instances: int) -> Sequence[Range]:
        after, before = start or self._first
        last, until = end
        if until <= before:
            return []
        return [Range([after, last, until - before], until - before, self._seen_at(after), self._seen_at(last))]

    def _seen_at(self, entry: str) -> float:
        """When the driver first saw that this entry, or the one behind it, was there; now, if that was in another
        run."""
        if entry == self._seen[0]:
            return self._seen[1]
        number = _number(entry)
        return next((at for one, at in self._ids if _number(one) >= number), self._clock())

    def _last(self) -> str:
        """The id of the newest entry."""
        found = self._spec.ask(lambda client: client.xrevrange(self._spec.entries, count=1))
        return found[0][0].decode() if found else BEGIN


def _entries(stream: str, after: str, last: str, client: Any) -> Sequence[Entry]:
    """The first entries after one id, and up to another."""
    found: Sequence[Entry] = client.xrange(stream, f"({after}", last, ENTRIES)
    return found


def _column(texts: list[bytes | None], type_: pa.DataType) -> pa.Array:
    """The values of one field. Arrow reads numbers, dates and moments from text; a moment without a zone is in UTC."""
    raw = pa.array(texts, pa.binary())
    if pa.types.is_binary(type_):
        return raw
    text = raw.cast(pa.string())
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        zoned = [one if one is None or _zone(one) else f"{one}Z" for one in text.to_pylist()]
        text = pa.array(zoned, pa.string())
    return text.cast(type_)


def _zone(text: str) -> bool:
    return text.endswith("Z") or "+" in text or "-" in text[10:]


def _number(entry: str) -> tuple[int, int]:
    """An id as numbers: as texts, 9-0 comes after 10-0."""
    milliseconds, _, number = entry.partition("-")
    return int(milliseconds), int(number or 0)


def _library() -> Any:
    try:
        import redis as library
    except ImportError as error:
        raise PenstockError(
            "REDIS_MISSING",
            f"a source reads from Redis, and the package redis cannot be imported here: {error}.",
            "Install it on every machine: pip install 'penstock[redis]'.",
        ) from None
    return library


@cache
def _client(url: str) -> Any:
    """One client a server and process: it keeps its connections, and any thread may use it."""
    return _library().Redis.from_url(url, socket_timeout=SECONDS, socket_connect_timeout=SECONDS, protocol=2)
