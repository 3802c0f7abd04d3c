"""What always holds for schedules, contents and readers."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem

from penstock import sources
from penstock.sources.reading import read_rows
from penstock.topology import parse_schema

rates = st.one_of(st.just(0), st.integers(1, 100_000), st.floats(0.001, 100_000))
steps = st.lists(st.tuples(st.floats(0.001, 1000), rates), min_size=1, max_size=6)
schedules = st.builds(sources.stepped, steps, repeat=st.booleans())
elapsed = st.floats(0, 100_000)

CONTENT = [
    sources.sentences(words=3, vocabulary=50),
    sources.sentences(words=2, vocabulary=50, skew=1.2),
    sources.numbers(seed=4),
    sources.events(keys=10, late=0.3),
    sources.columns("a boolean, b int, c string, d array<struct<x: array<long>>>, e decimal(5,1), f timestamp"),
]


@given(schedules, elapsed, elapsed)
def test_due_never_falls(schedule, one, other):
    earlier, later = sorted((one, other))
    assert schedule.due(earlier) <= schedule.due(later)


@given(schedules, st.integers(1, 10**9))
def test_a_row_is_due_from_when_on_and_not_before(schedule, row):
    moment = schedule.when(row)
    assume(moment != math.inf)
    assert schedule.due(moment) >= row
    # The float just before may still be the exact moment, rounded; the one before that is not.
    before = math.nextafter(math.nextafter(moment, 0), 0)
    assert before == moment or schedule.due(before) < row


@given(schedules, elapsed)
def test_when_is_the_inverse_of_due(schedule, moment):
    due = schedule.due(moment)
    assert schedule.when(due) <= moment
    assert schedule.when(due + 1) > moment


@given(steps, elapsed)
def test_the_rate_is_the_slope_of_due(steps, moment):
    schedule = sources.stepped(steps)
    after = moment + 0.0005
    assume(schedule.rate_at(moment) == schedule.rate_at(after))
    slope = schedule.rate_at(moment) * (after - moment)
    assert abs(schedule.due(after) - schedule.due(moment) - slope) <= 1 + 1e-6


@pytest.mark.parametrize("content", CONTENT, ids=lambda content: type(content).__name__)
@given(st.integers(0, 2**40), st.lists(st.integers(0, 40), min_size=1, max_size=5))
def test_rows_do_not_depend_on_the_split(content, first, counts):
    parts, begin = [], first
    for count in counts:
        parts.append(content.rows(begin, count))
        begin += count
    whole = content.rows(first, sum(counts))
    assert pa.Table.from_batches(parts).combine_chunks().equals(pa.Table.from_batches([whole]).combine_chunks())


good_lines = st.fixed_dictionaries({"n": st.integers(-(2**63), 2**63 - 1), "text": st.text()}).map(json.dumps)
bad_lines = st.sampled_from(["null", "{", '{"n": "x"}', "[]", '{"n": 1}}', "7"])
#: Lines, each with whether it is good.
lines = st.lists(st.one_of(st.tuples(good_lines, st.just(True)), st.tuples(bad_lines, st.just(False))), max_size=30)


@given(lines=lines)
def test_every_line_is_either_a_row_or_bad(tmp_path_factory, lines):
    file = tmp_path_factory.mktemp("lines") / "rows.json"
    file.write_text("\n".join(line for line, _ in lines), encoding="utf-8", newline="")
    bad = []
    batches = read_rows(
        LocalFileSystem(), str(file), "json", parse_schema("n long, text string"), None, lambda row, _: bad.append(row)
    )
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows == [json.loads(line) for line, is_good in lines if is_good]
    assert bad == [line for line, is_good in lines if not is_good]
