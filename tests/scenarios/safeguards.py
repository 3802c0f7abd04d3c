"""Scenarios of what keeps a controller from doing harm: harmful changes are undone, changes have a budget, and nothing
changes in a freeze window or against a guard of the user's own."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from checks import as_before, changes_an_hour, machines, met, operations, throughput, told, undone
from happenings import Slowed, cramped, crowded
from scenario import HOUR, LINE, Op, Scenario

from penstock.autoscaler.goals import Goal
from penstock.autoscaler.guards import Guard
from penstock.autoscaler.policy import View
from penstock.autoscaler.proposals import Proposal, machines_fewer, machines_more
from penstock.plans.plan import Plan, SetInstances
from penstock.simulator import Demand
from penstock.simulator.clock import MIDNIGHT

HOLD = Goal(throughput=1000)
#: Two machines, with the instances that they need for 1,000 rows a second.
READY = {**LINE, "work": Op(400, instances=4)}
STEP = Demand.of((0.5, 300), (3.5, 1000))
#: More than two instances of `work` get in each other's way: all of them together are slower than one.
CROWDED = ((0, Slowed("work", 300, crowded("work", 2))),)


def freeze(*hours: tuple[float, float]) -> str:
    """Freeze windows between these hours of the scenario, by the clock of this computer's time zone."""
    return "; ".join(f"{_clock(start)}-{_clock(stop)}" for start, stop in hours)


def _clock(hour: float) -> str:
    return f"{datetime.fromtimestamp(MIDNIGHT + hour * HOUR):%H:%M}"


def waits_for(hour: float) -> Guard:
    """Lets nothing pass before this hour."""

    def not_before_the_release(_: Proposal, view: View) -> str:
        return "the release is not out yet" if view.now < MIDNIGHT + hour * HOUR else ""

    return not_before_the_release


def keeps_two_machines(proposal: Proposal, view: View) -> str:
    left = view.machines + machines_more(proposal.plan) - machines_fewer(proposal.plan)
    return "we keep two machines" if left < 2 else ""


def more_parsers(proposal: Proposal, view: View) -> str | Proposal:
    """With every machine comes another instance of `parse`, where the others are."""
    actions = proposal.plan.actions
    resized = {one.operator for one in actions if isinstance(one, SetInstances)}
    if not machines_more(proposal.plan) or "parse" in resized:
        return ""
    slots = dict(view.snapshot.placement.of("parse"))
    slots[min(slots)] += 1
    plan = Plan((*actions, SetInstances("parse", slots)), proposal.plan.reason)
    return replace(proposal, plan=plan)


SAFEGUARDS = [
    Scenario(
        "a-harmful-removal-is-undone",
        Demand.of((1, 1000), (5, 500)),
        HOLD,
        6,
        # The machine is not removed again while the load is the same.
        (operations(2, least=2), undone(), machines(2, least=2, since=1.5), met(operations=2)),
        operators=READY,
        machines=2,
        happens=((0, Slowed("work", 300, cramped(2))),),
    ),
    Scenario(
        "a-harmful-scale-out-is-undone",
        STEP,
        HOLD,
        4,
        # The same change is not made again while the load is the same.
        (operations(2, least=2), undone(), as_before(0.4, 3.9), throughput(380, 1)),
        happens=CROWDED,
    ),
    Scenario(
        "a-harmful-scale-out-is-undone-at-every-load",
        Demand.of((0.5, 300), (2, 1000), (2, 2000)),
        Goal(throughput=2000),
        4.5,
        (operations(4, least=4), undone(times=2), as_before(0.4, 4.4), throughput(380, 3)),
        happens=CROWDED,
    ),
    Scenario(
        "a-harmful-scale-out-is-undone-beyond-the-budget",
        STEP,
        HOLD,
        4,
        (operations(2, least=2), undone(), as_before(0.4, 3.9)),
        happens=CROWDED,
        settings={"changes_per_hour": 1, "cooldown_seconds": 1800},
    ),
    Scenario(
        "a-harmful-scale-out-is-undone-after-the-freeze",
        STEP,
        HOLD,
        4,
        (
            operations(1, least=1, until=2),
            told("nothing may change within the freeze window", until=2),
            operations(1, least=1, since=2, until=2.2),
            operations(2),
            as_before(0.4, 3.9),
        ),
        happens=CROWDED,
        settings={"freeze": freeze((0.6, 2))},
    ),
    Scenario(
        "a-budget-of-one-change-an-hour",
        Demand.of((0.5, 300), (4.5, 4000)),
        Goal(throughput=4000),
        5,
        (
            changes_an_hour(1),
            told("changes were made within an hour"),
            operations(4),
            throughput(3800, 3.5),
        ),
        settings={"changes_per_hour": 1},
    ),
    Scenario(
        "a-freeze-window",
        Demand.of((1, 300), (3, 1000), (2, 300)),
        HOLD,
        6,
        (
            operations(0, until=2),
            operations(0, since=3.75, until=4.75),
            told("nothing may change within the freeze window", until=2),
            told("nothing may change within the freeze window", since=4),
            throughput(950, 2.75, 4),
            machines(1, since=5.5),
            as_before(0.9, 5.9),
        ),
        settings={"freeze": freeze((0.75, 2), (3.75, 4.75))},
    ),
    Scenario(
        "a-guard-vetoes",
        STEP,
        HOLD,
        4,
        (
            operations(0, until=2),
            told("the release is not out yet", until=2),
            operations(3),
            throughput(950, 2.75),
        ),
        guards=(waits_for(2),),
    ),
    Scenario(
        "a-guard-keeps-machines",
        Demand.of((1, 1000), (3, 300)),
        HOLD,
        4,
        (operations(0), machines(2, least=2), told("we keep two machines"), met()),
        operators=READY,
        machines=2,
        guards=(keeps_two_machines,),
    ),
    Scenario(
        "a-guard-changes-what-is-done",
        Demand.of((1, 300), (2, 1000), (2, 300)),
        HOLD,
        5,
        (met(), told("a guard changed it"), operations(2), as_before(0.9, 4.9)),
        guards=(more_parsers,),
    ),
]

#: These are not calm, and must not be.
OPPOSITE = {
    one.name: "what undoes a harmful change is its opposite, and does not wait"
    for one in SAFEGUARDS
    if one.name.startswith("a-harmful-")
}
