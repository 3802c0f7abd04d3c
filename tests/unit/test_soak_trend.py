"""The soak's verdict: what grows is found under noise and under what comes back with every cycle, and nothing else."""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from soak_trend import Point, medians, trend_of

CYCLE = 360.0


def series(an_hour: float, noise: float = 0.0, swing: float = 0.0, minutes: int = 50) -> list[Point]:
    chance = random.Random(1)
    return [
        (
            600.0 + at,
            200 + an_hour * at / 3600 + chance.gauss(0, noise) + swing * math.sin(2 * math.pi * at / CYCLE),
        )
        for at in range(0, minutes * 60, 10)
    ]


def test_a_line_is_found() -> None:
    trend = trend_of(series(12.0), CYCLE)
    assert trend.an_hour == pytest.approx(12)
    assert trend.surely_an_hour == pytest.approx(12)
    assert trend.percent_an_hour == pytest.approx(6, rel=0.1)


def test_growth_is_sure_under_noise_and_swings() -> None:
    trend = trend_of(series(20.0, noise=3.0, swing=30.0), CYCLE)
    assert trend.an_hour == pytest.approx(20, rel=0.3)
    assert trend.surely_an_hour > 0


@pytest.mark.parametrize("swing", [0.0, 50.0])
def test_noise_and_swings_alone_do_not_grow_surely(swing: float) -> None:
    trend = trend_of(series(0.0, noise=5.0, swing=swing), CYCLE)
    assert trend.surely_an_hour <= 0
    assert abs(trend.percent_an_hour) < 2


def test_a_few_outliers_move_nothing() -> None:
    points = series(0.0)
    points[-5:] = [(at, 5_000.0) for at, _ in points[-5:]]
    trend = trend_of(points, CYCLE)
    assert trend.an_hour == 0
    assert trend.surely_an_hour == 0


def steps(*, every_minutes: float, minutes: int = 50) -> list[Point]:
    """A count without noise that grows by one now and then."""
    return [(600.0 + at, 200.0 + int(at / 60 / every_minutes)) for at in range(0, minutes * 60, 10)]


def test_a_count_without_noise_that_grows_slowly_grows_surely() -> None:
    trend = trend_of(steps(every_minutes=18), CYCLE)
    assert trend.an_hour == pytest.approx(3.3, rel=0.3)
    assert trend.surely_an_hour > 0


def test_one_step_up_is_growth_and_a_last_cycle_that_is_higher_is_not() -> None:
    assert trend_of(steps(every_minutes=25), CYCLE).surely_an_hour > 0
    assert trend_of(steps(every_minutes=44), CYCLE).surely_an_hour == 0


@pytest.mark.parametrize("seed", range(10))
def test_a_count_that_goes_up_and_down_does_not_grow(seed: int) -> None:
    chance = random.Random(seed)
    points = [(600.0 + at, 200.0 + chance.choice((0, 0, 0, 1, 2))) for at in range(0, 3000, 10)]
    assert trend_of(points, CYCLE).surely_an_hour <= 0


def test_a_count_that_falls_does_not_grow() -> None:
    falling = [(at, -value) for at, value in steps(every_minutes=18)]
    assert trend_of(falling, CYCLE).surely_an_hour <= 0


def test_a_short_look_has_shorter_parts() -> None:
    points = series(36.0, minutes=4)
    assert len(medians(points, CYCLE)) == 5
    assert trend_of(points, CYCLE).an_hour == pytest.approx(36, rel=0.1)


def test_nothing_and_one_point_do_not_grow() -> None:
    assert medians([], CYCLE) == []
    assert trend_of([(0.0, 3.0), (10.0, 3.0)], CYCLE).an_hour == 0
