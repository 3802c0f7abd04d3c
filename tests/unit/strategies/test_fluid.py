"""The fluid model on pipes that can be worked out by hand."""

from __future__ import annotations

from loads import load

from penstock.strategies.fluid import Pipes, flow
from penstock.strategies.load import Load

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
