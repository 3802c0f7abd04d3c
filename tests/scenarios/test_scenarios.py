"""Every scenario holds: the real controller with its real hands, on a fluid cluster in virtual time."""

from __future__ import annotations

import pytest
from catalogue import SCENARIOS
from scenario import Scenario
from tables import table

#: Scenarios of so many hours are for `make test-live` and `make scenarios`: there are shorter ones like them.
LONG = 20 * 24


def marks(scenario: Scenario) -> list[pytest.MarkDecorator]:
    fails = [pytest.mark.xfail(strict=True, reason=scenario.fails)] if scenario.fails else []
    return fails + ([pytest.mark.live] if scenario.hours >= LONG else [])


@pytest.mark.parametrize("scenario", [pytest.param(one, id=one.name, marks=marks(one)) for one in SCENARIOS])
def test_what_must_hold(scenario: Scenario) -> None:
    trace = scenario.run()
    problems = [problem for check in scenario.holds if (problem := check(scenario, trace))]
    assert not problems, "; ".join(problems) + "\n" + table(scenario, trace)


def test_there_are_enough_of_them_and_each_has_a_name_of_its_own() -> None:
    assert len({one.name for one in SCENARIOS}) == len(SCENARIOS) >= 25
    assert all(one.holds for one in SCENARIOS)
