"""The text of a Redis entry as a value of a type."""

from __future__ import annotations

import pyarrow as pa
import pytest

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


def test_an_infinity_is_meant_where_it_is_written() -> None:
    assert _column([b"-inf", None, b"Infinity"], pa.float32()).to_pylist() == [float("-inf"), None, float("inf")]
