"""Scenarios of chains, which run as one and share their instances' time: a chain is taken apart for the operator that
needs it and put together again when that is over, grows as a whole where it is too slow as a whole, and is left alone
by a goal that is met."""

from __future__ import annotations

from dataclasses import replace

from checks import as_before, fewest_instances, held, instances, machines, met, operations, told
from scenario import HOUR, Check, Op, Scenario

from penstock.autoscaler.goals import Goal
from penstock.simulator import Demand, Moment, Trace

HOLD = Goal(throughput=1000)
#: Each of them could do 1,000 rows a second; as a chain they do 250.
EVEN = {"rows": Op(1_000), "first": Op(1_000), "second": Op(1_000), "out": Op(1_000)}
EVENLY = "rows > first > second > out"


def whole(scenario: Scenario, moment: Moment) -> bool:
    return moment.chains == (tuple(scenario.operators),)


def one_chain(since: float = 0.0, until: float = 1e9) -> Check:
    """All operators run as one, all the time between these hours."""

    def check(scenario: Scenario, trace: Trace) -> str:
        for one in trace.between(since * HOUR, until * HOUR):
            if not whole(scenario, one):
                return f"at {one.at / HOUR:.2f} h not all operators are one chain: {one.chains or 'there is none'}"
        return ""

    return check


def apart(operator: str, since: float, until: float) -> Check:
    """At some moment between these hours, an operator is in no chain."""

    def check(_: Scenario, trace: Trace) -> str:
        seen = trace.between(since * HOUR, until * HOUR)
        alone = any(operator not in chain for one in seen for chain in one.chains or ((),))
        return "" if alone else f"{operator} is in a chain all the time between {since} h and {until} h"

    return check


def no_removal_at(rate: float) -> Check:
    """No machine goes while so many rows a second are offered."""

    def check(scenario: Scenario, trace: Trace) -> str:
        for one in trace.operations:
            if one.machines < 0 and scenario.demand.rate(one.asked) == rate:
                return f"operation {one.id} removes a machine at {one.asked / HOUR:.2f} h, while {rate:g} are offered"
        return ""

    return check


def cycles(seconds: float, ends: tuple[int, ...]) -> Check:
    """After each cycle of so many seconds, there are so many machines."""

    def check(_: Scenario, trace: Trace) -> str:
        seen = tuple(trace.at((number + 1) * seconds - 1).machines for number in range(len(ends)))
        return "" if seen == ends else f"the cycles end with {seen} machines instead of {ends}"

    return check


CHAINS = [
    Scenario(
        "chain-of-a-met-goal",
        Demand.constant(300),
        HOLD,
        6,
        (operations(0), one_chain()),
    ),
    Scenario(
        "chain-apart-and-together",
        Demand.of((1, 300), (2, 1000), (2, 300)),
        HOLD,
        5,
        (met(), one_chain(until=1), apart("work", 1.2, 3), one_chain(since=3.25), as_before(0.9, 4.9)),
        cores=8,
    ),
    Scenario(
        "chain-apart-for-a-short-time",
        Demand.of((1, 300), (0.5, 1000), (2, 300)),
        HOLD,
        3.5,
        # Instances that came without a machine are kept for an hour.
        (met(least=25), apart("work", 1.2, 1.5), one_chain(since=2.5), as_before(0.9, 3.4)),
        cores=8,
    ),
    Scenario(
        "chain-on-more-machines-and-together",
        Demand.of((1, 300), (2, 1000), (2, 300)),
        HOLD,
        5,
        (met(), one_chain(until=1), apart("work", 1.2, 3), one_chain(since=3.5), as_before(0.9, 4.9)),
    ),
    Scenario(
        "chain-too-slow-as-a-whole",
        Demand.of((1, 200), (2, 600)),
        Goal(throughput=600),
        3,
        (met(), one_chain()),
        graph=EVENLY,
        operators=EVEN,
        cores=8,
    ),
    Scenario(
        "chain-too-slow-as-a-whole-and-back",
        Demand.of((1, 200), (2, 600), (5, 200)),
        Goal(throughput=600),
        8,
        (met(), one_chain(), as_before(0.9, 7.9)),
        graph=EVENLY,
        operators=EVEN,
        cores=8,
    ),
    Scenario(
        "chain-too-slow-as-a-whole-for-one-machine",
        Demand.of((1, 200), (2, 600)),
        Goal(throughput=600),
        3,
        (met(), one_chain()),
        graph=EVENLY,
        operators=EVEN,
    ),
    Scenario(
        "chain-too-slow-as-a-whole-for-one-machine-and-back",
        Demand.of((1, 200), (2, 600), (5, 200)),
        Goal(throughput=600),
        8,
        (met(), one_chain(until=3), one_chain(since=4.5), as_before(0.9, 7.9)),
        graph=EVENLY,
        operators=EVEN,
    ),
    Scenario(
        "chain-keeps-what-it-needs",
        Demand.of((1, 200), (2, 600), (3, 400)),
        Goal(throughput=600),
        6,
        # Two instances of each can do 500 rows a second, on the one machine that stays.
        (met(), one_chain(), machines(1, since=4), fewest_instances("second", 2, since=4)),
        graph=EVENLY,
        operators=EVEN,
    ),
    Scenario(
        "chain-stepped-load",
        Demand(((150, 200), (300, 600), (150, 200)), repeat=True),
        Goal(throughput=600, machines_max=3),
        10 / 6,
        # A machine that was removed is needed again within the hour: the controller regrets that for half an hour, then
        # for an hour, and keeps the machine meanwhile. It does not come to have more and more of them.
        (
            held(0.95, grace=2),
            no_removal_at(600),
            machines(2),
            instances(6),
            operations(5),
            cycles(600, (1, 2, 2, 2, 1, 2, 2, 2, 2, 2)),
            told("needed another machine right after one was removed"),
        ),
        graph="numbers > slow > out",
        operators={"numbers": Op(20_000), "slow": Op(250, works=False), "out": Op(50_000)},
        cores=1,
        settings={
            "sample_seconds": 1,
            "window_samples": 10,
            "window_least_samples": 5,
            "cooldown_seconds": 10,
            "measure_seconds": 10,
            "slot_instances": 4,
            "changes_per_hour": 60,
        },
    ),
]
CHAINS = [replace(one, chaining="on") for one in CHAINS]
