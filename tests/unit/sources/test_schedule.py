"""Rates over time, by example; what always holds is in tests/property/test_sources.py."""

from __future__ import annotations

import math

import pytest

from penstock.errors import PenstockError
from penstock.sources import constant, stepped, trace


def test_constant():
    schedule = constant(100)
    assert [schedule.due(elapsed) for elapsed in (-1, 0, 0.005, 0.01, 1, 3600)] == [0, 0, 0, 1, 100, 360_000]
    assert schedule.when(250) == 2.5
    assert schedule.rate_at(17) == 100


def test_a_rate_means_what_is_written():
    # As binary fractions these would add up to a little less than a whole row.
    assert constant(0.1).due(10) == 1
    assert constant(1.1).due(10) == 11


def test_the_last_step_goes_on():
    schedule = stepped([(10, 100), (5, 0), (10, 20)])
    assert [schedule.due(elapsed) for elapsed in (10, 12, 15, 16, 100)] == [1000, 1000, 1000, 1020, 2700]
    assert [schedule.rate_at(elapsed) for elapsed in (0, 9.9, 10, 15, 1000)] == [100, 100, 0, 20, 20]
    assert schedule.when(1000) == 10
    assert schedule.when(1020) == 16


def test_steps_are_repeated():
    schedule = stepped([(10, 100), (5, 0)], repeat=True)
    assert [schedule.due(elapsed) for elapsed in (10, 15, 16, 150)] == [1000, 1000, 1100, 10_000]
    assert [schedule.rate_at(elapsed) for elapsed in (14, 15, 26)] == [0, 100, 0]
    assert schedule.when(1000) == 10
    assert schedule.when(1100) == 16


def test_a_row_that_is_never_due():
    assert stepped([(1, 10), (1, 0)]).when(10) == 1
    assert stepped([(1, 10), (1, 0)]).when(11) == math.inf
    assert stepped([(1, 0)], repeat=True).when(1) == math.inf
    assert constant(0).due(1e9) == 0


def test_a_trace_holds_the_seconds_at_which_a_rate_begins(tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text("seconds,rows_per_second\n10,100\n20,50\n")
    schedule = trace(file)
    assert schedule == trace(str(file)) == trace([(10, 100), (20, 50)])
    assert [schedule.due(elapsed) for elapsed in (10, 20, 30)] == [0, 1000, 1500]
    assert [schedule.rate_at(elapsed) for elapsed in (0, 10, 20, 99)] == [0, 100, 50, 50]


@pytest.mark.parametrize(
    "declare",
    [
        lambda: constant(-1),
        lambda: constant(math.nan),
        lambda: constant(math.inf),
        lambda: constant("fast"),
        lambda: stepped([]),
        lambda: stepped([(0, 10)]),
        lambda: stepped([(10, -1)]),
        lambda: trace([]),
        lambda: trace([(5, 1), (5, 2)]),
        lambda: trace("/nowhere/trace.csv"),
    ],
)
def test_mistakes(declare):
    with pytest.raises(PenstockError) as caught:
        declare()
    assert caught.value.name == "BAD_SOURCE"
    assert caught.value.where.file == __file__


@pytest.mark.parametrize("text", ["", "time,rate\n1,2\n", "seconds,rows_per_second\n1,many\n"])
def test_a_file_that_is_no_trace(tmp_path, text):
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(PenstockError) as caught:
        trace(file)
    assert caught.value.name == "BAD_SOURCE"
