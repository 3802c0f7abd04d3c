"""ETP on graphs small enough to check by hand; 'the paper' is Stela, section II-D."""

from __future__ import annotations

import math

import pytest
from loads import FIGURE_2, load

from penstock import PenstockError
from penstock.strategies.load import Load, ratio
from penstock.strategies.rules import Rules
from penstock.strategies.stela.congestion import congested
from penstock.strategies.stela.etp import etp


def shares(one: Load, alpha: float = 1.2) -> dict[str, float]:
    values = etp(one, congested(one, Rules(alpha=alpha)))
    return {operator.name: value for operator, value in zip(one.operators, values, strict=True)}


def test_figure_2() -> None:
    found = shares(FIGURE_2, alpha=1)
    names = [
        one.name for one, is_so in zip(FIGURE_2.operators, congested(FIGURE_2, Rules(alpha=1)), strict=True) if is_so
    ]
    assert names == ["1", "3", "4", "6"]
    assert found["3"] == pytest.approx(4 / 9)
    assert found["4"] == pytest.approx(4 / 9)
    assert found["6"] == pytest.approx(1 / 9)
    assert found["1"] == 0


def test_a_diamond_with_one_congested_path_is_reached_over_the_other() -> None:
    diamond = load("s-a:100 s-b:100 a-t:100 b-t:50", {"s": 100, "a": 100, "b": 50, "t": 150})
    assert shares(diamond) == {"s": 1, "a": 1, "b": 1, "t": 1}


def test_a_diamond_with_both_paths_congested_is_not_reached() -> None:
    diamond = load("s-a:100 s-b:100 a-t:50 b-t:50", {"s": 100, "a": 50, "b": 50, "t": 100})
    assert shares(diamond) == {"s": 0, "a": 1, "b": 1, "t": 1}


def test_a_sink_reached_twice_counts_once() -> None:
    """The paper's pseudocode would give s 2/1.5: t over a, and t over b."""
    twice = load("s-a:100 s-b:100 a-t:50 b-t:50 s-u:50", {"s": 100, "a": 100, "b": 100, "t": 100, "u": 50})
    assert shares(twice)["s"] == 1
    assert shares(twice)["a"] == pytest.approx(2 / 3)


def test_a_congested_sink_counts_for_itself_and_for_nobody_before_it() -> None:
    one = load("s-a:100 a-t:100 a-u:100", {"s": 100, "a": 100, "t": 50, "u": 100})
    assert shares(one) == pytest.approx({"s": 2 / 3, "a": 2 / 3, "t": 1 / 3, "u": 2 / 3})


def test_each_of_several_sources_reaches_its_own_sinks() -> None:
    one = load("p-a:100 q-a:100 q-u:100 a-t:100", {"p": 100, "q": 100, "a": 200, "t": 100, "u": 100})
    assert shares(one) == {"p": 0.5, "q": 1, "a": 0.5, "t": 0.5, "u": 0.5}


def test_weights() -> None:
    one = load("s-t:100 s-u:100", {"s": 100, "t": 100, "u": 100}, weight={"t": 3, "u": 0})
    assert shares(one) == {"s": 1, "t": 1, "u": 0}


def test_a_source_is_congested_by_what_the_outside_offers() -> None:
    one = load("s-t:100", {"s": 100, "t": 100}, external={"s": 130})
    assert congested(one) == (True, False)
    assert congested(one, Rules(alpha=1.3)) == (False, False)


def test_nothing_at_the_sinks_is_no_share_for_anyone() -> None:
    assert shares(load("s-t:0", {"s": 0, "t": 0})) == {"s": 0, "t": 0}


def test_ratio_of_what_stands_still() -> None:
    assert ratio(10, 0) == math.inf
    assert ratio(0, 0) == 0


@pytest.mark.parametrize("values", [{"alpha": 0}, {"alpha": float("nan")}, {"slot_capacity": 0}])
def test_rules_that_make_no_sense_are_refused(values) -> None:
    with pytest.raises(PenstockError) as caught:
        Rules(**values)
    assert caught.value.name == "BAD_SETTING"
