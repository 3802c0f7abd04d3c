"""What the rows of a generated source hold.

Row i depends on the seed and on i alone, so any task on any machine can make any range of rows, and a batch that is
run again after a failure makes the same rows again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import Location, PenstockError
from penstock.schema import Schema, parse_schema, same_schema, schema_text
from penstock.sources.counter import below, draws, places, ranked, unit
from penstock.sources.mistakes import bad_source, check_number, check_whole

#: When the first event happens, unless the user says otherwise.
FIRST_EVENT = datetime(2026, 1, 1, tzinfo=UTC)
_SYLLABLES = tuple(consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou")


class Content(Protocol):
    """Rows by number. It travels to the executors, so it must be picklable."""

    @property
    def schema(self) -> pa.Schema: ...

    def rows(self, first: int, count: int) -> pa.RecordBatch:
        """Rows first, first + 1, ..., first + count - 1."""
        ...

    def describe(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Sentences:
    """Words in a row; how often a word comes up follows its rank when there is a skew."""

    words: int
    vocabulary: tuple[str, ...]
    seed: int
    skew: float

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("sentence", pa.string())])

    def rows(self, first: int, count: int) -> pa.RecordBatch:
        bits = draws(self.seed, 0, places(first * self.words, count * self.words))
        chosen = ranked(bits, len(self.vocabulary), self.skew).astype(np.int32)
        words = self._dictionary.take(pa.array(chosen))
        bounds = pa.array(np.arange(count + 1, dtype=np.int32) * np.int32(self.words))
        sentences = pc.binary_join(pa.ListArray.from_arrays(bounds, words), " ")
        return pa.record_batch([sentences], schema=self.schema)

    def describe(self) -> Mapping[str, Any]:
        return {
            "content": "sentences",
            "words": self.words,
            "vocabulary": len(self.vocabulary),
            "seed": self.seed,
            "skew": self.skew,
        }

    @cached_property
    def _dictionary(self) -> pa.StringArray:
        return pa.array(self.vocabulary, pa.string())


@dataclass(frozen=True)
class Numbers:
    """The row's number and a random number from 0 to 1."""

    seed: int

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("id", pa.int64()), ("value", pa.float64())])

    def rows(self, first: int, count: int) -> pa.RecordBatch:
        at = places(first, count)
        return pa.record_batch([at.astype(np.int64), unit(draws(self.seed, 0, at))], schema=self.schema)

    def describe(self) -> Mapping[str, Any]:
        return {"content": "numbers", "seed": self.seed}


@dataclass(frozen=True)
class Events:
    """Keyed events, evenly spaced in event time; a share of them says it happened earlier than its neighbours."""

    keys: int
    seed: int
    skew: float
    spacing: float
    late: float
    late_by: float
    start: datetime

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(
            [("id", pa.int64()), ("key", pa.string()), ("value", pa.int64()), ("at", pa.timestamp("us", "UTC"))]
        )

    def rows(self, first: int, count: int) -> pa.RecordBatch:
        at = places(first, count)
        row = at.astype(np.int64)
        key = pa.array(ranked(draws(self.seed, 0, at), self.keys, self.skew))
        value = below(draws(self.seed, 1, at), 1000).astype(np.int64)
        moments = round(self.start.timestamp() * 1e6) + row * round(self.spacing * 1e6)
        is_late = unit(draws(self.seed, 2, at)) < self.late
        delay = (unit(draws(self.seed, 3, at)) * self.late_by * 1e6).astype(np.int64)
        columns = [
            pa.array(row),
            pc.binary_join_element_wise("key", key.cast(pa.string()), "-"),
            pa.array(value),
            pa.array(moments - np.where(is_late, delay, 0)).cast(self.schema.field("at").type),
        ]
        return pa.record_batch(columns, schema=self.schema)

    def describe(self) -> Mapping[str, Any]:
        return {
            "content": "events",
            "keys": self.keys,
            "seed": self.seed,
            "skew": self.skew,
            "spacing": self.spacing,
            "late": self.late,
            "late_by": self.late_by,
            "start": self.start.isoformat(),
        }


@dataclass(frozen=True)
class Generated:
    """What the user's function makes of a range of row numbers."""

    function: Callable[[int, int], pa.RecordBatch]
    schema: pa.Schema

    def rows(self, first: int, count: int) -> pa.RecordBatch:
        batch = self.function(first, count)
        if not isinstance(batch, pa.RecordBatch):
            raise self._wrong(count, f"a {type(batch).__name__}")
        if batch.num_rows != count or not same_schema(batch.schema, self.schema):
            raise self._wrong(count, f'{batch.num_rows} rows of "{schema_text(batch.schema)}"')
        return batch if batch.schema.equals(self.schema) else batch.cast(self.schema)

    def describe(self) -> Mapping[str, Any]:
        return {"content": "generated", "function": getattr(self.function, "__qualname__", repr(self.function))}

    def _wrong(self, count: int, got: str) -> PenstockError:
        return bad_source(
            f"the function of sources.generated was asked for {count} rows and returned {got}.",
            f'Return a RecordBatch with exactly as many rows as it was asked for, of "{schema_text(self.schema)}".',
        )


def sentences(words: int = 10, vocabulary: int | Sequence[str] = 1000, seed: int = 0, skew: float = 0.0) -> Sentences:
    """Rows with one column, `sentence string`, of `words` words each. `vocabulary` is a number of made-up words, or a
    list of words. With a skew, the k-th word comes up in proportion to 1 / k ** skew."""
    check_whole("words", words, at_least=1)
    check_number("skew", skew)
    if isinstance(vocabulary, int):
        check_whole("vocabulary", vocabulary, at_least=1)
        made = tuple(_word(number) for number in range(vocabulary))
    else:
        made = tuple(vocabulary)
    if not made or isinstance(vocabulary, str):
        raise bad_source("the vocabulary holds no words.", "Give a number of words, or a list of them.")
    return Sentences(words, made, seed, skew)


def numbers(seed: int = 0) -> Numbers:
    """Rows of `id long, value double`: the number of the row, and a random number from 0 to 1."""
    return Numbers(seed)


def events(
    keys: int = 100,
    seed: int = 0,
    *,
    skew: float = 0.0,
    spacing: float = 0.001,
    late: float = 0.0,
    late_by: float = 60.0,
    start: datetime = FIRST_EVENT,
) -> Events:
    """Rows of `id long, key string, value long, at timestamp`: an event every `spacing` seconds of event time, from
    `start` on. The share `late` of the events (0 to 1) is late: their `at` is up to `late_by` seconds earlier than
    their place in the stream says."""
    check_whole("keys", keys, at_least=1)
    check_number("skew", skew)
    check_number("spacing", spacing)
    check_number("late", late, at_most=1)
    check_number("late_by", late_by)
    if start.tzinfo is None:
        raise bad_source("the start of the events has no time zone.", "Give it one: datetime(2026, 1, 1, tzinfo=UTC).")
    return Events(keys, seed, skew, spacing, late, late_by, start)


def generated(function: Callable[[int, int], pa.RecordBatch], schema: Schema) -> Generated:
    """Rows of the user's own: `function(first, count)` returns `count` rows, from row number `first` on. The same row
    number must always give the same row, on every machine: only then does a replay make the same rows."""
    where = Location.of_caller()
    if not callable(function):
        raise bad_source(
            f"the content is made by a {type(function).__name__}.", "Give a function that takes (first, count)."
        )
    return Generated(function, parse_schema(schema, where))


def _word(number: int) -> str:
    """A made-up word that no other number has: its digits, at least two of them, as syllables."""
    word, rest = _SYLLABLES[number % len(_SYLLABLES)], number // len(_SYLLABLES)
    while rest:
        word, rest = _SYLLABLES[rest % len(_SYLLABLES)] + word, rest // len(_SYLLABLES)
    return word if len(word) > 2 else _SYLLABLES[0] + word
