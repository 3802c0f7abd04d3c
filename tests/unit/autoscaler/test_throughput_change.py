"""Effects an operation on timelines made by hand: one point a second, the operation starts at 10."""

from __future__ import annotations

import pytest

from penstock.autoscaler.throughput_change import ThroughputPoint, convergence, settling, throughput_change, time_below


def timeline(before: list[float], after: list[float]) -> list[ThroughputPoint]:
    return [ThroughputPoint(float(11 - len(before) + index), rate) for index, rate in enumerate(before + after)]


def test_before_and_after_over_the_same_window() -> None:
    found = throughput_change(timeline([5, 100, 100, 100], [0, 50, 200, 200, 200]), start=10, window=3)
    assert (found.before, found.after) == (100, 200)


def test_convergence_is_twice_above_and_twice_below_within_the_band() -> None:
    points = timeline([], [300, 102, 103, 50, 98, 97, 100])
    # 300 and 50 are outside; two above at 12 and 13, two below at 15 and 16.
    assert convergence(points, 10, 100, 5) == 6
    assert convergence(points[:5], 10, 100, 5) is None


def test_a_flat_line_has_converged_with_its_second_sample() -> None:
    found = throughput_change(timeline([100] * 5, [100] * 5), start=10, window=5)
    assert found.convergence == found.convergence_sigma == 2
    assert found.settled == 1
    assert found.time_at_zero == found.time_below == 0


def test_both_definitions_differ_by_their_band() -> None:
    """M = 100, sigma = 20: the thesis' band is wider than 5%."""
    swinging = timeline([100] * 4, [120, 80, 120, 80, 120, 80, 120, 80])
    found = throughput_change(swinging, start=10, window=8)
    assert found.convergence is None
    assert found.convergence_sigma == 4
    assert found.settled is None


def test_time_at_zero_and_below_ninety_percent() -> None:
    found = throughput_change(timeline([100] * 5, [95, 0, 0, 60, 89, 91, 100, 100, 100]), start=10, window=3)
    assert found.time_at_zero == 2
    assert found.time_below == 4


def test_what_a_scale_in_gives_up_for_good_is_no_interruption() -> None:
    found = throughput_change(timeline([100] * 5, [20, 60, 60, 60, 60]), start=10, window=3)
    assert found.time_below == 1


def test_a_sample_stands_for_the_time_since_the_one_before_it_or_the_start() -> None:
    assert time_below([ThroughputPoint(9, 100), ThroughputPoint(13, 0), ThroughputPoint(18, 100)], 10, 90) == 3


def test_settling_forgets_what_did_not_last() -> None:
    assert settling(timeline([], [100, 100, 50, 100, 101]), 10, 100, 5) == 4
    assert settling(timeline([], [100, 50]), 10, 100, 5) is None


@pytest.mark.parametrize("points", [[], [ThroughputPoint(5, 100)]])
def test_a_timeline_that_ends_before_the_operation(points) -> None:
    found = throughput_change(points, start=10, window=20)
    assert found.convergence is None and found.after == 0 and found.time_below == 0
