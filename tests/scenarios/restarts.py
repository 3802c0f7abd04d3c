"""Scenarios in which the driver restarts: the next controller takes back what the last one added, does not try again
what brought nothing or did harm, and keeps to the budget."""

from __future__ import annotations

from checks import (
    as_before,
    changes_an_hour,
    held,
    instances,
    machines,
    met,
    operations,
    same_every_morning,
    throughput,
    told,
    undone,
)
from happenings import Restarted, Slowed, crowded
from scenario import LINE, Op, Scenario

from penstock.autoscaler.goals import Goal
from penstock.simulator import Demand

HOLD = Goal(throughput=1000)
DAY = Demand.of((7, 250), (3, 650), (9, 1000), (5, 250), repeat=True)
#: A window of 100 s is half the work of one of 200 s, where there are many changes.
SHORT = {"window_samples": 10}
RESTART = Restarted()

RESTARTS = [
    Scenario(
        "restarts-by-day-and-by-night",
        DAY,
        HOLD,
        5 * 24,
        (met(), same_every_morning(5.9), held(0.95), instances(14)),
        settings=SHORT,
        # By day, in the evening before anything is taken back, by night, and a quarter of an hour after more is needed.
        happens=((24 + 15, RESTART), (48 + 18.95, RESTART), (72 + 2, RESTART), (72 + 10.25, RESTART)),
    ),
    Scenario(
        "a-restart-with-fewer-machines",
        Demand.of((1, 300), (3, 1000), (8, 300)),
        HOLD,
        12,
        # The machine is gone and its instances are not: another machine comes, and everything is taken back.
        (met(), told("the machine that it added is not there any more"), machines(1, since=5), as_before(0.9, 11.9)),
        settings=SHORT,
        happens=((2, Restarted(fewer=1)),),
    ),
    Scenario(
        "a-restart-where-more-brings-nothing",
        Demand.of((0.5, 300), (4.5, 1000)),
        HOLD,
        5,
        (operations(4), operations(0, since=3), machines(2), throughput(560, 1)),
        operators={**LINE, "work": Op(400, instances=2), "out": Op(2000, works=False, most=600)},
        happens=((3, RESTART),),
    ),
    Scenario(
        "a-restart-after-a-harmful-scale-out",
        Demand.of((0.5, 300), (3.5, 1000)),
        HOLD,
        4,
        (operations(2, least=2), undone(), as_before(0.4, 3.9), throughput(380, 1)),
        happens=((0, Slowed("work", 300, crowded("work", 2))), (2, RESTART)),
    ),
    Scenario(
        "restarts-and-a-budget-of-one-change-an-hour",
        Demand.of((0.5, 300), (4.5, 4000)),
        Goal(throughput=4000),
        5,
        (changes_an_hour(1), told("changes were made within an hour"), operations(4), throughput(3800, 3.5)),
        settings={"changes_per_hour": 1},
        happens=((0.75, RESTART), (1.9, RESTART)),
    ),
    Scenario(
        "a-restart-with-a-damaged-memory",
        Demand.of((1, 300), (3, 1000)),
        HOLD,
        4,
        (met(), told("DECISIONS_UNREADABLE: What the controller remembers"), held(0.9)),
        happens=((2, Restarted(book="{")),),
    ),
]

#: These are not calm, and must not be.
OPPOSITE_BEFORE_RESTART = {
    "a-restart-after-a-harmful-scale-out": "what undoes a harmful change is its opposite, and does not wait",
}
