"""Every scenario holds: the real controller with its real hands, on a fluid cluster in virtual time."""

from __future__ import annotations

import pytest
from catalogue import SCENARIOS
from scenario import Scenario
from tables import table


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(one, id=one.name, marks=[pytest.mark.xfail(strict=True, reason=one.fails)] if one.fails else [])
        for one in SCENARIOS
    ],
)
def test_what_must_hold(scenario: Scenario) -> None:
    trace = scenario.run()
    problems = [problem for check in scenario.holds if (problem := check(scenario, trace))]
    assert not problems, "; ".join(problems) + "\n" + table(scenario, trace)


def test_there_are_enough_of_them_and_each_has_a_name_of_its_own() -> None:
    assert len({one.name for one in SCENARIOS}) == len(SCENARIOS) >= 25
    assert all(one.holds for one in SCENARIOS)
