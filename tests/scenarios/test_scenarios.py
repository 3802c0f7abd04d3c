"""Every scenario holds: the real controller with its real hands, on a fluid cluster in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from catalogue import KNOWN, MORE_MACHINES, RESTLESS, SCENARIOS, STRATEGIES
from happenings import Restarted
from restarts import RESTARTS
from scenario import Outcome, Scenario, Shortfall
from tables import table

from penstock.simulator import Trace

#: Scenarios of so many hours are for `make test-live` and `make scenarios`: there are shorter ones like them.
LONG = 20 * 24


def marks(scenario: Scenario) -> list[pytest.MarkDecorator]:
    return [pytest.mark.live] if scenario.hours >= LONG else []


@pytest.mark.parametrize("scenario", [pytest.param(one, id=one.title, marks=marks(one)) for one in SCENARIOS])
def test_what_must_hold(scenario: Scenario) -> None:
    trace = scenario.run()
    outcome = scenario.judge(trace)
    assert not outcome.surprises, "; ".join(outcome.surprises) + "\n" + table(scenario, trace)
    if scenario.shortfall is not None:
        pytest.xfail(f"{'; '.join(outcome.known)}: {scenario.shortfall.why}")


def test_a_controller_without_memory_fails_where_drivers_restart() -> None:
    """Otherwise these scenarios would say nothing of what is remembered."""
    for scenario in (one.under("stela") for one in RESTARTS if "damaged" not in one.name):
        happens = [
            (at, replace(what, book="{") if isinstance(what, Restarted) else what) for at, what in scenario.happens
        ]
        forgetful = replace(scenario, happens=tuple(happens))
        assert forgetful.judge(forgetful.run()).surprises, scenario.name


def test_there_are_enough_of_them_and_each_has_a_name_of_its_own() -> None:
    assert len({one.title for one in SCENARIOS}) == len(SCENARIOS)
    assert len({one.name for one in SCENARIOS}) >= 25
    assert all(one.holds for one in SCENARIOS)


def test_every_goal_is_tried_with_every_strategy_and_every_exception_has_a_reason() -> None:
    goals = {one.name for one in SCENARIOS if one.goal is not None}
    for strategy in STRATEGIES:
        assert {one.name for one in SCENARIOS if one.strategy == strategy} == goals
    for exceptions in (RESTLESS, MORE_MACHINES):
        assert exceptions.keys() <= goals
        assert all(exceptions.values())
    assert KNOWN.keys() <= {(one.name, one.strategy) for one in SCENARIOS}
    assert all(known.problems and known.why for known in KNOWN.values())


def test_a_known_shortfall_excuses_what_it_names_and_must_not_hold() -> None:
    late, lost = "it takes 4 operations", "rows are lost"
    known = Shortfall("the reason", ("4 operations",))
    one = replace(SCENARIOS[0], shortfall=known)

    def outcome(*problems: str) -> Outcome:
        checks = [lambda *_, problem=problem: problem for problem in problems]
        return replace(one, holds=tuple(checks)).judge(Trace())

    assert outcome(late, "") == Outcome((late,), ())
    assert outcome(late, lost) == Outcome((late,), (lost,))
    assert "take it out of KNOWN" in str(outcome("", ""))
    assert replace(one, holds=(lambda *_: late,), shortfall=None).judge(Trace()) == Outcome((), (late,))
