"""The search for the best assignment, which benchmarks measure strategies against."""

from __future__ import annotations

import sys
from pathlib import Path

from loads import load

from penstock.strategies.fluid import Pipes

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from best import best

#: s -> a -> t, and s -> b -> u; all of s goes to both. b keeps half of the rows.
FORK = load("s-a:100 s-b:100 a-t:100 b-u:50", {"s": 100, "a": 100, "b": 100, "t": 100, "u": 50}, external={"s": 1000})


def test_the_best_assignment_by_hand() -> None:
    """Both a (30 each) and b (40 each, half kept) are slow: a row through a is worth twice one through b."""
    pipes = Pipes.of(FORK, [1000, 30, 40, 1000, 1000])
    found = best(pipes, [1, 1, 1, 1, 1], 2)
    assert found.instances == (1, 3, 1, 1, 1)
    assert found.throughput == 90 + 20
    assert found.tried == 15


def test_the_best_within_bounds() -> None:
    pipes = Pipes.of(FORK, [1000, 30, 40, 1000, 1000])
    assert best(pipes, [1] * 5, 2, most=[1, 2, 9, 1, 1]).instances == (1, 2, 2, 1, 1)
    assert best(pipes, [1] * 5, 2, most=[1, 2, 1, 1, 1]).instances == (1, 2, 1, 1, 1)
    assert best(pipes, [1] * 5, 0).instances == (1, 1, 1, 1, 1)


def test_a_keyed_operator_is_as_fast_as_its_fullest_instance() -> None:
    """a has 4 tasks on 2 instances: a third one brings nothing, two more bring as much again."""
    pipes = Pipes.of(FORK, [1000, 30, 40, 1000, 1000], [None, 4, None, None, None])
    start = [1, 2, 1, 1, 1]
    assert best(pipes, start, 1, most=[9, 4, 9, 9, 9]).instances == (1, 2, 2, 1, 1)
    assert best(pipes, start, 2, most=[9, 4, 9, 9, 9]).instances == (1, 4, 1, 1, 1)
