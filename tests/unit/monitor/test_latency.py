"""Latency sketches: exact counts, quantiles within their error, the same after they were written down."""

from __future__ import annotations

import pytest

from penstock.monitor.latency import RELATIVE_ERROR, LatencySketch, merged


def test_quantiles_are_within_the_error() -> None:
    sketch = LatencySketch()
    for millisecond in range(1, 1001):
        sketch.add(millisecond / 1000)
    assert sketch.rows == 1000
    assert sketch.mean == pytest.approx(0.5005)
    for share, value in ((0.5, 0.5), (0.9, 0.9), (0.99, 0.99)):
        assert sketch.quantile(share) == pytest.approx(value, rel=RELATIVE_ERROR + 0.002)


def test_a_sketch_without_rows_knows_nothing() -> None:
    sketch = LatencySketch()
    assert (sketch.rows, sketch.mean, sketch.quantile(0.5)) == (0, None, None)
    assert LatencySketch.parse(sketch.as_text()).rows == 0


@pytest.mark.parametrize("rows", [1, 3, 8, 9, 1001])
def test_a_range_counts_every_row_once(rows: int) -> None:
    sketch = LatencySketch()
    sketch.add_range(1.0, 3.0, rows)
    assert sketch.rows == rows
    assert sketch.mean == pytest.approx(2.0, abs=0.1)


def test_a_clock_that_runs_behind_makes_no_negative_latency() -> None:
    sketch = LatencySketch()
    sketch.add_range(-5.0, -1.0, 10)
    assert sketch.mean == 0.0
    assert 0 < (sketch.quantile(0.99) or 0) < 0.001


def test_merging_changes_only_the_one_that_is_merged_into() -> None:
    one, other = LatencySketch(), LatencySketch()
    one.add(1.0, 10)
    other.add(2.0, 10)
    both = merged([one, other])
    both.add(100.0, 5)
    assert (one.rows, other.rows, both.rows) == (10, 10, 25)
    assert one.quantile(1.0) == pytest.approx(1.0, rel=RELATIVE_ERROR)


def test_it_can_be_written_down_and_added_to_afterwards() -> None:
    sketch = LatencySketch()
    sketch.add_range(0.1, 0.4, 1000)
    again = LatencySketch.parse(sketch.as_text())
    assert again.as_text() == sketch.as_text()
    again.add(1000.0, 10)
    again.add(0.001, 10)
    assert again.rows == 1020
    assert again.quantile(1.0) == pytest.approx(1000.0, rel=RELATIVE_ERROR)
    assert again.quantile(0.0) == pytest.approx(0.001, rel=RELATIVE_ERROR)
