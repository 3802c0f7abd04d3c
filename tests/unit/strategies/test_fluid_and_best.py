"""The fluid model on pipes that can be worked out by hand, and the search for the best assignment on it."""

from __future__ import annotations

import pytest
from loads import load

from penstock.strategies.scaling.best import best
from penstock.strategies.scaling.fluid import Pipes, flow, throttled_flow
from penstock.strategies.scaling.load import Load

#: s -> a -> t, and s -> b -> u; all of s goes to both. b keeps half of the rows.
FORK = load("s-a:100 s-b:100 a-t:100 b-u:50", {"s": 100, "a": 100, "b": 100, "t": 100, "u": 50}, external={"s": 1000})


def executed(one: Load) -> list[float]:
    return [operator.processing for operator in one.operators]


def test_selectivity_is_measured() -> None:
    assert Pipes.of(FORK, [1] * 5).selectivity == (1, 1, 1, 0.5)


def test_an_operator_that_is_too_slow_only_holds_up_what_comes_after_it() -> None:
    pipes = Pipes.of(FORK, [100, 30, 100, 100, 100])
    after = flow(pipes, [4, 1, 5, 9, 9])
    assert executed(after) == [400, 30, 400, 30, 200]
    assert after.inputs == (1000, 400, 400, 30, 200)
    assert after.throughput == 230


def test_a_source_gives_no_more_than_the_outside_offers() -> None:
    pipes = Pipes.of(FORK, [1000] * 5)
    assert executed(flow(pipes, [5] * 5)) == [1000, 1000, 1000, 1000, 500]


def test_throttled_everything_waits_for_the_slowest() -> None:
    pipes = Pipes.of(FORK, [100, 30, 100, 100, 100])
    assert executed(throttled_flow(pipes, [4, 1, 5, 9, 9])) == pytest.approx([30, 30, 30, 30, 15])


def test_throttled_only_the_sources_that_lead_there_wait() -> None:
    two = load("p-a:100 q-b:100 a-t:100 b-t:100", {"p": 100, "q": 100, "a": 100, "b": 100, "t": 200})
    pipes = Pipes.of(two, [100, 100, 10, 100, 1000])
    assert executed(throttled_flow(pipes, [1] * 5)) == pytest.approx([10, 100, 10, 100, 110])


def test_throttled_by_what_stands_still() -> None:
    pipes = Pipes.of(FORK, [100, 0, 100, 100, 100])
    assert executed(throttled_flow(pipes, [1] * 5)) == [0, 0, 0, 0, 0]


def test_the_best_assignment_by_hand() -> None:
    """Both a (30 each) and b (40 each, half kept) are slow: a row through a is worth twice one through b."""
    pipes = Pipes.of(FORK, [1000, 30, 40, 1000, 1000])
    found = best(pipes, [1, 1, 1, 1, 1], 2)
    assert found.instances == (1, 3, 1, 1, 1)
    assert found.throughput == 90 + 20
    assert found.tried == 15
    assert best(pipes, [1] * 5, 2, model=throttled_flow).instances == (1, 2, 2, 1, 1)


def test_the_best_within_bounds() -> None:
    pipes = Pipes.of(FORK, [1000, 30, 40, 1000, 1000])
    assert best(pipes, [1] * 5, 2, most=[1, 2, 9, 1, 1]).instances == (1, 2, 2, 1, 1)
    assert best(pipes, [1] * 5, 2, most=[1, 2, 1, 1, 1]).instances == (1, 2, 1, 1, 1)
    assert best(pipes, [1] * 5, 0).instances == (1, 1, 1, 1, 1)
