"""What must hold in a scenario. Each check answers with an empty text, or says what does not hold."""

from __future__ import annotations

from itertools import pairwise

from scenario import HOUR, Check, Scenario

from penstock.simulator import Done, Trace

#: Reached is what is not below by more than this share.
TOLERANCE = 0.05
MINUTE = 60.0


def phases(scenario: Scenario, least: float = 0.0) -> list[tuple[float, float]]:
    """From one change of the load to the next, in seconds; only those that are long enough."""
    cuts = [0.0, *scenario.demand.changes(scenario.hours), scenario.hours * HOUR]
    return [(start, stop) for start, stop in pairwise(cuts) if stop - start >= least]


def calm(scenario: Scenario, trace: Trace) -> str:
    """Under constant load, no two opposite operations within an hour."""
    changes = [*scenario.demand.changes(scenario.hours), *(hours * HOUR for hours, _ in scenario.happens)]
    done = [one for one in trace.operations if one.state == "done"]
    for place, first in enumerate(done):
        for second in done[place + 1 :]:
            near = second.asked - first.ended < HOUR
            constant = not any(first.asked < at <= second.asked for at in changes)
            if near and constant and opposite(first, second):
                return (
                    f"operations {first.id} and {second.id} are opposite, {_minutes(second.asked - first.ended)} apart"
                )
    return ""


def opposite(first: Done, second: Done) -> bool:
    if first.machines or second.machines:
        return first.machines * second.machines < 0
    return any(first.instances.get(name, 0) * more < 0 for name, more in second.instances.items())


def met(operations: int = 3, within: float = 30.0, least: float = 40.0) -> Check:
    """After a change of the load, the goal is met within so many operations and minutes, and at the end."""

    def check(scenario: Scenario, trace: Trace) -> str:
        for start, stop in phases(scenario, least * MINUTE):
            required = scenario.required(scenario.demand.rate(start)) * (1 - TOLERANCE)
            moments = trace.between(start, stop)
            reached = next(
                (one.at for one, later in pairwise(moments) if min(one.throughput, later.throughput) >= required), None
            )
            if reached is None:
                best = max(one.throughput for one in moments)
                return f"from {_hours(start)} on, {required:,.0f} rows/s are never reached; the most are {best:,.0f}"
            asked = [one for one in trace.operations if start <= one.asked < reached]
            if len(asked) > operations:
                return f"it takes {len(asked)} operations after {_hours(start)} to reach {required:,.0f} rows/s"
            if reached - start > within * MINUTE:
                return f"it takes {_minutes(reached - start)} after {_hours(start)} to reach {required:,.0f} rows/s"
            last = moments[-1]
            if last.throughput < required:
                return f"at {_hours(last.at)} {last.throughput:,.0f} rows/s are below {required:,.0f} again"
        return ""

    return check


def few_machines(least: float = 60.0, slack: int = 1) -> Check:
    """After so many minutes of constant load, there are at most one machine more than the fewest possible."""

    def check(scenario: Scenario, trace: Trace) -> str:
        for start, stop in phases(scenario, least * MINUTE):
            fewest, moment = scenario.fewest(scenario.demand.rate(start)), trace.at(stop - 1)
            if moment.machines > fewest + slack:
                return f"at {_hours(moment.at)} there are {moment.machines} machines; {fewest} would do"
        return ""

    return check


def _minutes(seconds: float) -> str:
    return f"{seconds / MINUTE:.0f} min"


def _hours(seconds: float) -> str:
    return f"{seconds / HOUR:.2f} h"
