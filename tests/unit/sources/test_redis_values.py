"""The text of a Redis entry as a value of a type."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock import sources
from penstock.sources.redis_source import _column


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        (b"1e40", pa.float32()),
        (b"1e400", pa.float64()),
        (b"2026-01-01T00:00:00+02:00", pa.timestamp("us")),
    ],
)
def test_a_value_that_would_be_lost_is_refused(text, type_) -> None:
    with pytest.raises(pa.ArrowInvalid):
        _column([text], type_)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("yesterday", ['"yesterday" is no timestamp', '"at timestamp"', "2026-01-31T23:59:59.5Z"]),
        ("1700000000000", ['"1700000000000" is no timestamp', "a number as long"]),
    ],
)
def test_a_bad_timestamp_is_told_with_what_the_schema_says(text: str, says: list[str]) -> None:
    told: list[str] = []
    entries = [(b"5-1", {b"at": b"2026-01-01T00:00:00"}), (b"5-2", {b"at": text.encode()})]
    source = sources.redis("redis://localhost", "entries", schema="at timestamp")
    rows = [row for batch in source._rows(entries, lambda row, error: told.append(error)) for row in batch.to_pylist()]
    assert len(rows) == 1
    [error] = told
    for words in says:
        assert words in error
    assert "assume_timezone" not in error, "Arrow's advice is for programmers"


def test_an_infinity_is_meant_where_it_is_written() -> None:
    assert _column([b"-inf", None, b"Infinity"], pa.float32()).to_pylist() == [float("-inf"), None, float("inf")]
