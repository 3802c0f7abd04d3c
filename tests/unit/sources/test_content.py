"""What generated rows hold; that a split never matters is in tests/property/test_sources.py."""

from __future__ import annotations

import pickle
from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import sources
from penstock.errors import PenstockError
from penstock.topology import parse_schema

EVERY_TYPE = (
    "a boolean, b byte, c short, d int, e long, f float, g double, h string, i binary, j date, k timestamp, "
    "l timestamp_ntz, m decimal(10,2), n struct<x: int, y: array<string>>, o array<struct<q: long>>"
)


def squares(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array([row * row for row in range(first, first + count)], pa.int64())})


ALL_CONTENT = [
    sources.sentences(),
    sources.sentences(words=3, vocabulary=["a", "b"], skew=1.5),
    sources.numbers(),
    sources.events(late=0.1),
    sources.columns(EVERY_TYPE),
    sources.generated(squares, schema="n long"),
]


@pytest.mark.parametrize("content", ALL_CONTENT, ids=lambda content: type(content).__name__)
def test_rows_have_the_schema_and_survive_a_pickle(content):
    batch = content.rows(1000, 50)
    batch.validate(full=True)
    assert batch.num_rows == 50
    assert batch.schema.equals(content.schema)
    assert pickle.loads(pickle.dumps(content)).rows(1000, 50).equals(batch)
    assert content.rows(5, 0).num_rows == 0
    assert content.describe()["content"]


def test_sentences():
    (column,) = sources.sentences(words=4, vocabulary=20).rows(0, 1000).columns
    words = [sentence.split(" ") for sentence in column.to_pylist()]
    assert {len(sentence) for sentence in words} == {4}
    assert len({word for sentence in words for word in sentence}) == 20


def test_made_up_words_are_distinct():
    assert len(set(sources.sentences(vocabulary=10_000).vocabulary)) == 10_000


def test_skew_follows_the_rank():
    content = sources.sentences(words=1, vocabulary=["first", "second", "third", "fourth"], skew=1.0)
    seen = Counter(content.rows(0, 25_000).column(0).to_pylist())
    # In proportion to 1, 1/2, 1/3, 1/4: 12000, 6000, 4000, 3000.
    assert seen["first"] == pytest.approx(12_000, rel=0.05)
    assert seen["fourth"] == pytest.approx(3_000, rel=0.1)


def test_another_seed_gives_other_rows():
    assert not sources.numbers(seed=1).rows(0, 10).equals(sources.numbers(seed=2).rows(0, 10))


def test_numbers_are_even():
    value = sources.numbers().rows(0, 100_000).column("value")
    assert pc.mean(value).as_py() == pytest.approx(0.5, abs=0.01)
    assert pc.min(value).as_py() >= 0
    assert pc.max(value).as_py() < 1


def test_events_are_spaced_and_some_are_late():
    start = datetime(2025, 6, 1, tzinfo=UTC)
    on_time = sources.events(spacing=0.5, start=start).rows(10, 3).column("at").to_pylist()
    assert on_time == [start + timedelta(seconds=seconds) for seconds in (5, 5.5, 6)]

    late = sources.events(spacing=0, start=start, late=0.25, late_by=10).rows(0, 10_000).column("at").to_pylist()
    delays = [start - at for at in late if at != start]
    assert len(delays) == pytest.approx(2500, rel=0.1)
    assert max(delays) <= timedelta(seconds=10)


def test_what_a_function_generates_is_checked():
    for function in (lambda first, count: squares(first, count + 1), lambda first, count: pa.record_batch({"m": []})):
        with pytest.raises(PenstockError) as caught:
            sources.generated(function, schema="n long").rows(0, 3)
        assert caught.value.name == "BAD_SOURCE"
    with pytest.raises(PenstockError):
        sources.generated(lambda first, count: [1, 2, 3], schema="n long").rows(0, 3)


def test_what_a_function_generates_may_differ_in_nullability():
    strict = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    content = sources.generated(lambda first, count: squares(first, count).cast(strict), schema="n long")
    assert content.rows(0, 3).schema.equals(parse_schema("n long"))


@pytest.mark.parametrize(
    ("declare", "name"),
    [
        (lambda: sources.sentences(words=0), "BAD_SOURCE"),
        (lambda: sources.sentences(vocabulary=0), "BAD_SOURCE"),
        (lambda: sources.sentences(vocabulary=[]), "BAD_SOURCE"),
        (lambda: sources.sentences(vocabulary="words"), "BAD_SOURCE"),
        (lambda: sources.sentences(skew=-1), "BAD_SOURCE"),
        (lambda: sources.events(keys=0), "BAD_SOURCE"),
        (lambda: sources.events(late=1.5), "BAD_SOURCE"),
        (lambda: sources.events(start=datetime(2026, 1, 1)), "BAD_SOURCE"),
        (lambda: sources.columns("m map<string, long>"), "BAD_SOURCE"),
        (lambda: sources.columns("n lnog"), "BAD_SCHEMA"),
        (lambda: sources.generated(None, schema="n long"), "BAD_SOURCE"),
        (lambda: sources.generated(squares, schema="n"), "BAD_SCHEMA"),
    ],
)
def test_mistakes(declare, name):
    with pytest.raises(PenstockError) as caught:
        declare()
    assert caught.value.name == name
    assert caught.value.where.file == __file__
