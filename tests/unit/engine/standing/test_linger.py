"""How long rows linger: as short as the latency asks for, and longer while the driver works more than it may."""

from __future__ import annotations

import pytest

from penstock.engine.standing.linger import FAR_COSTS, MEASURE_SECONDS, Linger, at_a_far_store


class Driver:
    """A driver that uses so much of a core."""

    def __init__(self) -> None:
        self.now = self.worked = 0.0

    def works(self, cores: float, seconds: float = MEASURE_SECONDS) -> None:
        self.now += seconds
        self.worked += cores * seconds


@pytest.fixture
def driver() -> Driver:
    return Driver()


def linger_of(driver: Driver, latency: float = 0.05, cores: float = 0.5, longest: float = 0.25) -> Linger:
    return Linger(latency, cores, longest, lambda: driver.worked, lambda: driver.now)


def test_rows_linger_where_they_come_in_for_half_of_the_latency_and_hardly_behind_that(driver: Driver) -> None:
    linger = linger_of(driver)
    for _ in range(10):
        driver.works(0.3)
        assert linger.at_source() == pytest.approx(0.025)
        assert linger.at_hop() == pytest.approx(0.002)


def test_batches_get_longer_while_the_driver_works_too_much_and_shorter_again_later(driver: Driver) -> None:
    linger = linger_of(driver)
    found = []
    for cores in (1.0, 1.0, 1.0):
        driver.works(cores)
        found.append(linger.at_source())
    assert found == pytest.approx([0.05, 0.1, 0.2])
    driver.works(0.45)
    assert linger.at_source() == pytest.approx(0.2), "near what it may be, nothing changes"
    for _ in range(20):
        driver.works(0.1)
        found.append(linger.at_source())
    assert found[3:] == sorted(found[3:], reverse=True)
    assert found[-1] == pytest.approx(0.025)


def test_rows_never_linger_longer_than_is_allowed(driver: Driver) -> None:
    linger = linger_of(driver)
    for _ in range(20):
        driver.works(2.0)
        linger.at_source()
    assert linger.at_source() == linger.at_hop() == 0.25


def test_a_latency_that_asks_for_more_than_is_allowed_is_kept(driver: Driver) -> None:
    linger = linger_of(driver, latency=10.0)
    driver.works(2.0)
    assert linger.at_source() == pytest.approx(5.0)


def test_a_moment_says_nothing(driver: Driver) -> None:
    linger = linger_of(driver)
    driver.works(5.0, MEASURE_SECONDS / 2)
    assert linger.at_source() == pytest.approx(0.025)


def test_at_a_far_store_rows_linger_by_what_a_share_costs() -> None:
    """An object store takes 40 ms for every file: a batch every 2 ms would be nothing but that."""
    costs: list[float | None] = [None]
    seconds = at_a_far_store(lambda: 0.002, lambda: costs[0], longest=0.25)
    assert seconds() == 0.002, "nothing is known yet"
    costs[0] = 0.04
    assert seconds() == pytest.approx(FAR_COSTS * 0.04)
    costs[0] = 0.4
    assert seconds() == 0.25
    assert at_a_far_store(lambda: 1.0, lambda: 0.04, longest=0.25)() == 1.0, "a latency that was chosen stays"
