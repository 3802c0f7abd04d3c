"""What is congested where producers wait for slow consumers."""

from __future__ import annotations

import itertools

import pytest

from penstock.autoscaler.back_pressure import without_back_pressure
from penstock.strategies.load import Load, OperatorLoad, StreamLoad
from penstock.strategies.rules import PAPER
from penstock.strategies.stela.congestion import congested


def chain(*operators: OperatorLoad) -> Load:
    pairs = itertools.pairwise(operators)
    return Load(operators, tuple(StreamLoad(one.name, two.name, one.processing) for one, two in pairs))


def slow_in_the_middle() -> Load:
    """1000 rows/s are offered, "slow" does 400, and all wait for it."""
    return chain(
        OperatorLoad("source", 400, external=1000, capacity=50_000),
        OperatorLoad("quick", 400, capacity=2000),
        OperatorLoad("slow", 400, capacity=400),
        OperatorLoad("sink", 400, capacity=5000),
    )


def names_of_congested(load: Load) -> list[str]:
    return [one.name for one, full in zip(load.operators, congested(load, PAPER), strict=True) if full]


def test_the_cause_is_congested_and_not_who_waits_for_it() -> None:
    load = slow_in_the_middle()
    assert names_of_congested(load) == ["source"]
    freed = without_back_pressure(load, {"source", "quick"})
    assert names_of_congested(freed) == ["slow"]
    assert [one.processing for one in freed.operators] == [1000, 1000, 400, 400]
    assert [stream.rate for stream in freed.streams] == [1000, 1000, 400]


def test_who_waits_may_be_too_slow_itself() -> None:
    load = slow_in_the_middle()
    operators = list(load.operators)
    operators[1] = OperatorLoad("quick", 400, capacity=600)
    freed = without_back_pressure(chain(*operators), {"source", "quick"})
    assert names_of_congested(freed) == ["quick", "slow"]
    assert [stream.rate for stream in freed.streams] == [1000, 600, 400]


def test_an_idle_sibling_of_the_cause_is_not_taken_for_it() -> None:
    load = Load(
        (
            OperatorLoad("source", 300, external=1000, capacity=50_000),
            OperatorLoad("idle", 300, capacity=5000),
            OperatorLoad("slow", 300, capacity=300),
            OperatorLoad("unknown", 300),
        ),
        tuple(StreamLoad("source", name, 300) for name in ("idle", "slow", "unknown")),
    )
    freed = without_back_pressure(load, {"source"})
    assert [one.processing for one in freed.operators] == [1000, 1000, 300, 300]
    assert names_of_congested(freed) == ["slow", "unknown"], "of one nobody knows more than what it does"


def test_a_source_without_a_rate_offers_what_it_can_read() -> None:
    load = chain(OperatorLoad("files", 400, capacity=8000), OperatorLoad("slow", 400, capacity=400))
    assert names_of_congested(load) == []
    assert names_of_congested(without_back_pressure(load, {"files"})) == ["slow"]


@pytest.mark.parametrize("held_back", [set(), {"sink"}, {"slow"}])
def test_where_nobody_waits_nothing_changes(held_back: set[str]) -> None:
    load = slow_in_the_middle()
    assert without_back_pressure(load, held_back) == load


def test_nothing_is_made_of_nothing() -> None:
    load = chain(OperatorLoad("source", 0, external=1000), OperatorLoad("sink", 0))
    assert without_back_pressure(load, {"source"}) == load
