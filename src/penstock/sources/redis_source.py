"""Entries of a Redis stream. The driver asks for the ids of new entries and hands out ranges of ids. Bundles read them.

Redis gives entries ids that only grow, and gives the entries between two ids as often as it is asked: so a batch that
was cut off reads the same entries again. Consumer groups are not used: Spark and the catalog know how far a run is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.errors import Location, PenstockError
from penstock.kinds import BadRow, SourceKind, SourcePlace
from penstock.schema import Schema, parse_schema
from penstock.sources import losses
from penstock.sources.bad_rows import BadRows, in_schema, keep_good, together
from penstock.sources.mistakes import bad_source
from penstock.sources.redis_offsets import RedisOffsets
from penstock.sources.redis_stream import BEGIN, Entry, RedisStream, data_lost, is_address
from penstock.sources.wrong_values import wrong_value

#: Entries that a bundle fetches at once: few at first, and then as many as have about so many bytes, and no more than
#: the second number.
FIRST_ENTRIES, ENTRIES = 100, 2_000
FETCHED_BYTES = 16 << 20


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
    if not is_address(url):
        raise bad_source(
            "the source has no URL of a Redis server.",
            "Give one, such as redis://localhost:6379 or redis://:password@host:6379/2. In a password, write / as %2F, "
            "? as %3F, # as %23 and @ as %40.",
        )
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
            "server": self.place.server,
            "stream": self.entries,
            "start": self.start,
            "follow": self.follow,
        }

    @property
    def place(self) -> RedisStream:
        """Where the entries are."""
        return RedisStream(self.url, self.entries)

    def check(self, where: Location | None) -> None:
        try:
            self.place.look(BEGIN, 1)
        except PenstockError as error:
            raise PenstockError(error.name, error.message, error.hint, where) from None

    def offsets(self, place: SourcePlace) -> RedisOffsets:
        return RedisOffsets(self.place, self.start, self.follow, place)

    def read(self, load: Any, bad_row: BadRow | None) -> Iterator[pa.RecordBatch]:
        after, last, wanted = load
        found, most = 0, FIRST_ENTRIES
        while some := self.place.entries(after, last, most):
            found += len(some)
            most = max(1, min(FETCHED_BYTES * len(some) // _bytes_of(some), ENTRIES))
            after = some[-1][0].decode()
            yield from self._rows(some, bad_row)
        if found != wanted:
            raise data_lost(self.entries, f"of the {wanted:,} entries up to {last}, {found:,} are there")

    def _rows(self, entries: Sequence[Entry], bad_row: BadRow | None) -> Iterator[Any]:
        bad = BadRows(self.entries, bad_row)
        names = [name.encode() for name in self.fields.names]

        def convert(first: int, count: int) -> pa.RecordBatch:
            some = entries[first : first + count]
            columns = [
                _converted([fields.get(name) for _, fields in some], column)
                for name, column in zip(names, self.fields, strict=True)
            ]
            ids = [pa.array([one.decode() for one, _ in some], pa.string())] if self.id_column is not None else []
            return in_schema([*columns, *ids], self.schema)

        def report(number: int, error: str) -> None:
            entry, fields = entries[number]
            row = {name.decode(errors="replace"): text.decode(errors="replace") for name, text in fields.items()}
            bad.report(str(row), error, lambda: f"entry {entry.decode()}")

        yield from together(keep_good(convert, 0, len(entries), report))


def _bytes_of(entries: Sequence[Entry]) -> int:
    return sum(len(entry) + sum(map(len, fields.values())) for entry, fields in entries)


def _converted(texts: list[bytes | None], column: pa.Field) -> pa.Array:
    try:
        return _column(texts, column.type)
    except pa.ArrowInvalid:
        if len(texts) > 1 or pa.types.is_string(column.type):  # text can only be wrong in its encoding
            raise
        [text] = texts
        raise pa.ArrowInvalid(wrong_value(column, (text or b"").decode("utf-8", "replace"))) from None


def _column(texts: list[bytes | None], type_: pa.DataType) -> pa.Array:
    """The values of one field. Arrow reads numbers, dates and moments from text; a moment without a zone is in UTC."""
    raw = pa.array(texts, pa.binary())
    if pa.types.is_binary(type_):
        return raw
    text = raw.cast(pa.string())
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        text = pa.array([None if one is None else _zoned(one) for one in text.to_pylist()], pa.string())
    return losses.cast(text, type_)


def _zoned(text: str) -> str:
    if text.endswith("Z") or "+" in text or "-" in text[10:]:
        return text
    return f"{text}T00Z" if len(text) == len("2026-01-01") else f"{text}Z"
