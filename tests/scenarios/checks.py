"""What must hold in a scenario. Each check answers with an empty text, or says what does not hold."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

from scenario import HOUR, Check, Scenario

from penstock.simulator import Done, Moment, Trace

#: Reached is what is not below by more than this share.
TOLERANCE = 0.05
#: A goal counts as met once it is reached for so many seconds on end.
MET = 600.0
MINUTE = 60.0
DAY = 24 * HOUR


def phases(scenario: Scenario, least: float = 0.0) -> list[tuple[float, float]]:
    """From one change of the load or of the truth to the next, in seconds; only those that are long enough."""
    cuts = [0.0, *scenario.changes, scenario.hours * HOUR]
    return [(start, stop) for start, stop in pairwise(cuts) if stop - start >= least]


def calm(scenario: Scenario, trace: Trace) -> str:
    """Under constant load, the controller carries out no two opposite operations within an hour."""
    done = [one for one in trace.operations if one.state == "done" and not _asked_by_a_person(scenario, one)]
    for place, first in enumerate(done):
        for second in done[place + 1 :]:
            near = second.asked - first.ended < HOUR
            # What was decided at the moment of a change was decided on the load before.
            constant = not any(first.asked <= at <= second.asked for at in scenario.loads)
            if near and constant and opposite(first, second):
                apart = _minutes(second.asked - first.ended)
                return f"operations {first.id} and {second.id} are opposite, {apart} apart, under constant load"
    return ""


def opposite(first: Done, second: Done) -> bool:
    """Whether one brings machines, or instances of an operator, and the other takes some away."""
    if first.machines * second.machines < 0:
        return True
    return any(first.instances.get(name, 0) * more < 0 for name, more in second.instances.items())


def met(operations: int = 3, within: float = 30.0, least: float = 40.0, after: float = 0.0) -> Check:
    """After a change of the load, the goal is met for ten minutes on end, within so many operations and minutes, and at
    the end of every time with a constant load that is at least so many minutes long. Only from the hour `after` on."""

    def check(scenario: Scenario, trace: Trace) -> str:
        for start, stop in phases(scenario, least * MINUTE):
            if start < after * HOUR:
                continue
            required = scenario.required(scenario.demand.rate(start)) * (1 - TOLERANCE)
            moments = trace.between(start, stop)
            reached = _stays(moments, required)
            goal = f"{required:,.0f} rows/s after {_hours(start)}"
            if reached is None:
                best = max(one.throughput for one in moments)
                return f"{goal} are never reached; the most are {best:,.0f}"
            asked = [one for one in trace.operations if start <= one.asked < reached]
            if len(asked) > operations:
                return f"it takes {len(asked)} operations to reach {goal}"
            if reached - start > within * MINUTE:
                return f"it takes {_minutes(reached - start)} to reach {goal}"
            mean = mean_throughput(trace, stop - (stop - start) / 4, stop)
            if mean < required:
                return f"{goal} are reached, and not held: {mean:,.0f} in the last quarter"
        return ""

    return check


def few_machines(least: float = 60.0, slack: int = 1) -> Check:
    """After so many minutes of constant load, there is at most one machine more than the fewest possible."""

    def check(scenario: Scenario, trace: Trace) -> str:
        for start, stop in phases(scenario, least * MINUTE):
            fewest, moment = scenario.fewest(scenario.demand.rate(start), start), trace.at(stop - 1)
            if moment.machines > fewest + slack:
                return f"at {_hours(moment.at)} there are {moment.machines} machines; {fewest} would do"
        return ""

    return check


def same_every_morning(hour: float, first_day: int = 1) -> Check:
    """At this hour of every day, machines and instances are those of the first full day."""

    def check(scenario: Scenario, trace: Trace) -> str:
        days = range(first_day, int(scenario.hours // 24))
        first, *others = (trace.at(day * DAY + hour * HOUR) for day in days)
        for moment in others:
            if moment.machines != first.machines:
                return f"{first.machines} machines at {_hours(first.at)}, {moment.machines} at {_hours(moment.at)}"
            if moment.instances != first.instances:
                before, after = sum(first.instances.values()), sum(moment.instances.values())
                return f"{before} instances at {_hours(first.at)}, {after} at {_hours(moment.at)}"
        return ""

    return check


def as_before(at: float, later: float) -> Check:
    """At two hours, machines and instances are the same."""

    def check(_: Scenario, trace: Trace) -> str:
        first, second = trace.at(at * HOUR), trace.at(later * HOUR)
        if (first.machines, first.instances) == (second.machines, second.instances):
            return ""
        return f"{_shape(first)} at {at} h, {_shape(second)} at {later} h"

    return check


def operations(most: int, least: int = 0, since: float = 0.0, until: float = 1e9) -> Check:
    """So many operations are asked for, between these hours."""

    def check(_: Scenario, trace: Trace) -> str:
        asked = [one for one in trace.operations if since * HOUR <= one.asked < until * HOUR]
        wanted = f"{least} to {most}" if least else f"at most {most}"
        return "" if least <= len(asked) <= most else f"{len(asked)} operations instead of {wanted}"

    return check


def no_removal(since: float, until: float) -> Check:
    """No machine goes between these hours."""

    def check(_: Scenario, trace: Trace) -> str:
        gone = [one for one in trace.operations if one.machines < 0 and since * HOUR <= one.asked < until * HOUR]
        return f"operation {gone[0].id} removes a machine at {_hours(gone[0].asked)}" if gone else ""

    return check


def machines(most: int, least: int = 1, since: float = 0.0, until: float = 1e9) -> Check:
    """The number of machines stays within these bounds, between these hours."""

    def check(_: Scenario, trace: Trace) -> str:
        for one in trace.between(since * HOUR, until * HOUR):
            if not least <= one.machines <= most:
                return f"{one.machines} machines at {_hours(one.at)}; {least} to {most} are expected"
        return ""

    return check


def instances(most: int) -> Check:
    """All operators together never have more instances than this."""

    def check(_: Scenario, trace: Trace) -> str:
        for one in trace.moments:
            if sum(one.instances.values()) > most:
                return f"{sum(one.instances.values())} instances at {_hours(one.at)}; at most {most} are expected"
        return ""

    return check


def fewest_instances(operator: str, least: int, since: float = 0.0) -> Check:
    """From this hour on, an operator never has fewer instances than this."""

    def check(_: Scenario, trace: Trace) -> str:
        for one in trace.moments:
            if one.at >= since * HOUR and one.instances[operator] < least:
                return f"{operator} has {one.instances[operator]} instances at {_hours(one.at)} instead of {least}"
        return ""

    return check


def throughput(least: float, since: float, until: float = 1e9) -> Check:
    """The mean throughput between these hours is at least this."""

    def check(_: Scenario, trace: Trace) -> str:
        mean = mean_throughput(trace, since * HOUR, until * HOUR)
        return "" if mean >= least else f"{mean:,.0f} rows/s after {since} h instead of {least:,.0f}"

    return check


def held(share: float, grace: float = 15.0) -> Check:
    """The goal is met in this share of the time, apart from so many minutes after each change of the load."""

    def check(scenario: Scenario, trace: Trace) -> str:
        good = bad = 0.0
        for start, stop in phases(scenario):
            for one, then in pairwise(trace.between(start + grace * MINUTE, stop)):
                required = scenario.required(one.offered / scenario.sources) * (1 - TOLERANCE)
                if one.throughput >= required:
                    good += then.at - one.at
                else:
                    bad += then.at - one.at
        return "" if good >= share * (good + bad) else f"the goal is met in {good / (good + bad):.0%} of the time"

    return check


def counts(operator: str, *expected: int) -> Check:
    """The operator has these numbers of instances, one after the other."""

    def check(_: Scenario, trace: Trace) -> str:
        seen = [number for number, _ in groupby(one.instances[operator] for one in trace.moments)]
        return "" if seen == list(expected) else f"{operator} has {seen} instances instead of {list(expected)}"

    return check


def one_way(scenario: Scenario, trace: Trace) -> str:
    """Within a time of constant load, an operator gets only more instances, or only fewer."""
    for start, stop in phases(scenario):
        moments = [trace.at(start), *trace.between(start, stop)]
        for name in scenario.operators:
            steps = [then.instances[name] - one.instances[name] for one, then in pairwise(moments)]
            if min(steps) < 0 < max(steps):
                return f"{name} gets more and fewer instances between {_hours(start)} and {_hours(stop)}"
    return ""


def caught_up(rows: int) -> Check:
    """At the end of every time of constant load, no more rows wait than this."""

    def check(scenario: Scenario, trace: Trace) -> str:
        for _, stop in phases(scenario):
            if (moment := trace.at(stop - 1)).waiting > rows:
                return f"{moment.waiting:,} rows wait at {_hours(stop)}; at most {rows:,} are expected"
        return ""

    return check


def falls_behind(since: float, until: float) -> Check:
    """Between these hours, more and more rows wait."""

    def check(_: Scenario, trace: Trace) -> str:
        waiting = [one.waiting for one in trace.between(since * HOUR, until * HOUR)]
        grows = all(then >= one for one, then in pairwise(waiting)) and waiting[-1] > waiting[0]
        return "" if grows else f"the rows that wait do not pile up from {since} h to {until} h"

    return check


def told(text: str, since: float = 0.0, until: float = 1e9) -> Check:
    """Somebody who reads the events of these hours finds this."""

    def check(_: Scenario, trace: Trace) -> str:
        found = any(text in said for at, _, said in trace.told if since * HOUR <= at < until * HOUR)
        return "" if found else f'no event says "{text}"'

    return check


def undone(times: int = 1, windows: float = 2.0) -> Check:
    """So many changes were harmful, and each was undone within so many windows after it had been carried out."""

    def check(scenario: Scenario, trace: Trace) -> str:
        pairs = [(one, then) for one, then in pairwise(trace.operations) if "was harmful and is undone" in then.why]
        if len(pairs) != times:
            return f"{len(pairs)} harmful changes were undone instead of {times}"
        for harmful, undo in pairs:
            if undo.asked - harmful.ended > windows * scenario.window:
                return f"operation {harmful.id} was undone after {_minutes(undo.asked - harmful.ended)}"
        return ""

    return check


def changes_an_hour(most: int) -> Check:
    """Within any hour, at most so many operations are asked for."""

    def check(_: Scenario, trace: Trace) -> str:
        asked = [one.asked for one in trace.operations]
        for first, last in zip(asked, asked[most:], strict=False):
            if last - first < HOUR:
                return f"{most + 1} operations are asked for within {_minutes(last - first)} at {_hours(first)}"
        return ""

    return check


def mean_throughput(trace: Trace, start: float, stop: float) -> float:
    seen = [trace.at(start), *trace.between(start, stop)]
    lengths = [then.at - max(one.at, start) for one, then in pairwise(seen)] or [1.0]
    total = sum(one.throughput * length for one, length in zip(seen, lengths, strict=False))
    return total / max(sum(lengths), 1e-9)


def _stays(moments: Sequence[Moment], required: float) -> float | None:
    """Since when the throughput is as required, for as long as counts as met, or until the last moment; None if it
    never is. What piled up during a change flows off faster for a while, and that does not count."""
    since: float | None = None
    for one in moments:
        if one.throughput < required:
            since = None
        elif since is None:
            since = one.at
        elif one.at - since >= MET:
            return since
    return since


def _asked_by_a_person(scenario: Scenario, one: Done) -> bool:
    return any(abs(one.asked - at) < 1 for at in scenario.asked_by_people)


def _shape(moment: Moment) -> str:
    counts = ", ".join(f"{name} {count}" for name, count in moment.instances.items())
    return f"{moment.machines} machines ({counts})"


def _minutes(seconds: float) -> str:
    return f"{seconds / MINUTE:.0f} min"


def _hours(seconds: float) -> str:
    return f"{seconds / HOUR:.2f} h"
