"""The scaling rule of Elastic Stateful Storm: one more for each that is overloaded, half if all are idle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.strategies.thresholds import InstanceUse, Thresholds, wanted_instances

PAPER = Thresholds(0.7, 0.2)


def uses(*shares: float | None) -> list[InstanceUse]:
    return [InstanceUse(1, share) for share in shares]


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((0.8, 0.5, 0.1), 4),  # one more for the one above
        ((0.8, 0.9, 0.1), 5),
        ((0.8, 0.9, 0.71), 6),  # at most twice as many
        ((0.7, 0.7), 2),  # above, not at
        ((0.1, 0.19, 0.0, 0.1), 2),
        ((0.1, 0.2, 0.1, 0.1), 4),  # all of them, and below
        ((0.1,) * 5, 3),  # upwards: half of 5 could be too few
        ((0.1,), 1),
        ((0.1, None), 2),  # what is not known is not idle
        ((0.9, None), 3),
        ((None, None), 2),
    ],
)
def test_the_rule(shares, expected) -> None:
    assert wanted_instances(uses(*shares), PAPER) == expected


def test_bounds() -> None:
    assert wanted_instances(uses(*[0.9] * 5), PAPER, most=8) == 8
    assert wanted_instances(uses(*[0.9] * 5), PAPER, most=5) == 5
    assert wanted_instances(uses(*[0.1] * 8), PAPER, least=6) == 6
    assert wanted_instances(uses(*[0.1] * 3), PAPER, least=6) == 3, "an idle operator never gets more"


def test_instances_of_a_slot_are_judged_together() -> None:
    assert wanted_instances([InstanceUse(3, 0.9), InstanceUse(2, 0.5)], PAPER) == 8


@given(st.integers(1, 100), st.floats(0.0, 0.49), st.floats(0.0, 1.0), st.floats(0.001, 1.0), st.integers(1, 400))
def test_after_a_scale_in_nothing_is_above_the_upper_threshold(count, in_, gap, use, tasks) -> None:
    """Also with an odd number, and where tasks do not divide evenly."""
    out = 2 * in_ + gap + 0.001
    tasks = max(tasks, count)
    a_task = use * in_ / -(-tasks // count)  # the fullest instance uses less than the lower threshold
    fewer = wanted_instances(uses(*[a_task * -(-tasks // count) * 0.999] * count), Thresholds(out, in_))
    assert a_task * 0.999 * -(-tasks // fewer) <= out
