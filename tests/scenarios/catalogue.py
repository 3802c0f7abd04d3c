"""All scenarios. Where nothing else is said: one machine with two cores to begin with, and a line of operators of which
one, `work`, does nearly all there is to do. 1,000 rows a second need 2.74 cores, so two machines."""

from __future__ import annotations

from dataclasses import replace

from chains import CHAINS
from checks import (
    as_before,
    calm,
    caught_up,
    counts,
    falls_behind,
    few_machines,
    fewest_instances,
    held,
    instances,
    machines,
    met,
    no_removal,
    one_way,
    operations,
    same_every_morning,
    throughput,
    told,
)
from happenings import (
    DriverLimit,
    Retuned,
    fails,
    heard_again,
    late,
    paused,
    person,
    resumed,
    silent,
    works_again,
)
from restarts import OPPOSITE_BEFORE_RESTART, RESTARTS
from safeguards import OPPOSITE, SAFEGUARDS
from scenario import LINE, Check, Op, Scenario, Shortfall

from penstock.autoscaler.goals import Goal
from penstock.simulator import Demand, Seconds

HOLD = Goal(throughput=1000)
KEYED = "rows > parse > count > out"


def line(**changed: Op) -> dict[str, Op]:
    return {**LINE, **changed}


def counting(rate: float, tasks: int, count: int) -> dict[str, Op]:
    """A line whose slow operator is keyed."""
    return {
        "rows": Op(50_000),
        "parse": Op(5_000),
        "count": Op(rate, tasks=tasks, instances=count),
        "out": Op(50_000),
    }


#: Two machines, with the instances that they need for 1,000 rows a second.
READY = line(work=Op(400, instances=4))

STEPS = [
    Scenario("quiet", Demand.constant(300), HOLD, 6, (operations(0),)),
    Scenario("step-up", Demand.of((1, 300), (3, 1000)), HOLD, 4, (met(), operations(3))),
    Scenario(
        "step-down",
        Demand.of((1, 1000), (3, 300)),
        HOLD,
        4,
        (met(), machines(1, since=2), no_removal(0, 1)),
        operators=READY,
        machines=2,
    ),
    Scenario(
        "step-up-and-down",
        Demand.of((1, 300), (2, 1000), (2, 300)),
        HOLD,
        5,
        (met(), as_before(0.9, 4.9)),
    ),
    Scenario(
        "large-step",
        Demand.of((1, 300), (3, 4000)),
        Goal(throughput=4000),
        4,
        (met(),),
    ),
    Scenario(
        "large-step-down",
        Demand.of((1, 4000), (3, 300)),
        Goal(throughput=4000),
        4,
        (met(), machines(2, since=3)),
        operators=line(work=Op(400, instances=12), parse=Op(5000, instances=6)),
        machines=6,
    ),
    Scenario(
        "large-step-up-and-down",
        Demand.of((1, 300), (2, 4000), (4, 300)),
        Goal(throughput=4000),
        7,
        (met(), machines(2, since=5), as_before(0.9, 6.9)),
    ),
    Scenario(
        "what-is-needed-stays",
        Demand.of((1, 300), (2, 1000), (3, 370)),
        HOLD,
        6,
        # One instance could do 370 rows a second as well, in 93% of its time: that is too near to its limit.
        (met(), machines(1, since=4), fewest_instances("work", 2, since=4)),
    ),
    Scenario(
        "declared-instances-stay",
        Demand.of((1, 300), (2, 1000), (2, 300)),
        HOLD,
        5,
        (met(), fewest_instances("parse", 2), machines(1, since=4.5), as_before(0.9, 4.9)),
        operators=line(parse=Op(5_000, instances=2, least=2)),
    ),
    Scenario(
        "hourly-steps",
        Demand.of((1, 300), (1, 1000), repeat=True),
        HOLD,
        12,
        (met(), instances(14), as_before(2.9, 10.9)),
    ),
    Scenario(
        "slow-growth",
        Demand.ramp(300, 1400, hours=8, steps=16),
        Goal(throughput=1400),
        9,
        (held(0.95), operations(6)),
    ),
    Scenario("ends", Demand.of((1, 1000), (3, 0)), HOLD, 4, (machines(1, since=2),), operators=READY, machines=2),
]

#: A window of 100 s is half the work of one of 200 s, where there are many changes.
SHORT = {"window_samples": 10}
DAY = Demand.of((7, 250), (3, 650), (9, 1000), (5, 250), repeat=True)
DAYS = [
    *(
        Scenario(
            f"day-and-night-{days}-days",
            DAY,
            HOLD,
            days * 24,
            (met(), same_every_morning(5.9), held(0.95), instances(14)),
            settings=SHORT,
        )
        for days in (8, 30)
    ),
    Scenario(
        "weekdays-and-weekend",
        Demand.of(*([(8, 250), (10, 1000), (6, 250)] * 5), (48, 250), repeat=True),
        HOLD,
        14 * 24,
        (met(), held(0.95), as_before(7 * 24 - 0.1, 14 * 24 - 0.1)),
        settings=SHORT,
    ),
    Scenario(
        "noisy-days",
        Demand.of((1, 300), (1, 1000), repeat=True, noise=0.2),
        HOLD,
        4,
        (operations(6), held(0.9, grace=20), as_before(0.9, 2.9)),
    ),
]

ROUGH = [
    Scenario(
        "bursts",
        Demand.of((28 / 60, 300), (2 / 60, 1000), repeat=True),
        HOLD,
        6,
        (operations(4), machines(3)),
    ),
    Scenario(
        "long-bursts",
        Demand.of((0.75, 300), (0.25, 1000), repeat=True),
        HOLD,
        8,
        (operations(16), machines(3), instances(14), held(0.9, grace=10)),
    ),
    Scenario("noise", Demand.constant(900, noise=0.2), HOLD, 2, (operations(3), throughput(850, 0.5))),
    Scenario("noise-at-the-edge", Demand.constant(720, noise=0.2), HOLD, 2, (operations(3), throughput(680, 0.5))),
    Scenario(
        "slow-leak",
        Demand.constant(500),
        HOLD,
        9,
        (held(0.95), operations(5)),
        happens=tuple((1 + step / 2, Retuned({"work": 400 - 15 * step})) for step in range(1, 15)),
    ),
    Scenario(
        "capacity-halves",
        Demand.constant(600),
        HOLD,
        4,
        (met(),),
        operators=line(work=Op(400, instances=2)),
        happens=((1, Retuned({"work": 200})),),
    ),
    Scenario(
        "capacity-comes-back",
        Demand.constant(600),
        HOLD,
        6,
        (met(), as_before(0.9, 5.9)),
        operators=line(work=Op(400, instances=2)),
        happens=((1, Retuned({"work": 200})), (3, Retuned({"work": 400}))),
    ),
    Scenario(
        "capacity-comes-back-with-room",
        Demand.constant(500),
        HOLD,
        6,
        (met(), as_before(0.9, 5.9)),
        operators=line(work=Op(400, instances=2)),
        happens=((1, Retuned({"work": 200})), (3, Retuned({"work": 400}))),
    ),
]

LIMITS = [
    Scenario(
        "at-the-task-limit",
        Demand.of((0.5, 300), (3, 1500)),
        Goal(throughput=1500),
        3.5,
        (operations(3), machines(4), told("repartition")),
        graph=KEYED,
        operators=counting(200, tasks=4, count=4),
        cores=4,
    ),
    Scenario(
        "at-the-task-limit-until-somebody-repartitions",
        Demand.of((0.5, 300), (4.5, 1500)),
        Goal(throughput=1500),
        5,
        (operations(4, until=2), met(operations=4, after=2, within=45)),
        graph=KEYED,
        operators=counting(200, tasks=4, count=4),
        cores=4,
        happens=((2, person("repartition", "count", 16)),),
    ),
    Scenario(
        "cores-lack-at-the-task-limit",
        Demand.of((0.5, 300), (3, 700)),
        HOLD,
        3.5,
        (met(),),
        graph=KEYED,
        operators=counting(200, tasks=4, count=4),
    ),
    Scenario(
        "uneven-tasks",
        Demand.constant(1500),
        Goal(throughput=950),
        3,
        (met(),),
        graph=KEYED,
        operators=counting(200, tasks=8, count=5),
        cores=8,
        settings={"backlog_rows": 5000},
    ),
    Scenario(
        "driver-is-the-limit",
        Demand.constant(1000),
        HOLD,
        4,
        (operations(3), machines(2), throughput(560, 0.5)),
        operators=READY,
        machines=2,
        happens=((0.01, DriverLimit(600)),),
    ),
    Scenario(
        "service-is-the-limit",
        Demand.of((0.5, 300), (3.5, 1000)),
        HOLD,
        4,
        (operations(4), machines(2), throughput(560, 1)),
        operators=line(work=Op(400, instances=2), out=Op(2000, works=False, most=600)),
    ),
    Scenario(
        "service-is-the-limit-and-machines-come-slowly",
        Demand.of((0.5, 300), (5.5, 1000)),
        HOLD,
        6,
        # Two changes that bring nothing are the last.
        (operations(2), machines(2), throughput(560, 1)),
        operators=line(work=Op(400, instances=2), out=Op(2000, works=False, most=600)),
        seconds=Seconds(machine_comes=600),
    ),
    Scenario("sources-offer-less", Demand.constant(300), Goal(throughput=5000), 4, (operations(0),)),
    Scenario(
        "sources-offer-less-than-before",
        Demand.of((1, 1000), (3, 500)),
        HOLD,
        4,
        (met(), machines(2)),
        operators=READY,
        machines=2,
    ),
    Scenario(
        "no-machine-can-come",
        Demand.of((0.5, 300), (2.5, 1000)),
        HOLD,
        3,
        (met(), instances(16)),
        cores=4,
        machines_most=1,
    ),
    Scenario(
        "instances-on-the-machine-that-is-there",
        Demand.of((0.5, 300), (2.5, 1000)),
        HOLD,
        3,
        (met(), few_machines(slack=0)),
        cores=8,
    ),
    Scenario(
        "instances-that-wait",
        Demand.of((0.5, 90), (2.5, 1000)),
        HOLD,
        3,
        (met(),),
        operators=line(work=Op(100, works=False)),
    ),
]

GRAPHS = [
    Scenario(
        "two-bottlenecks",
        Demand.of((0.5, 300), (2.5, 1000)),
        HOLD,
        3,
        (met(),),
        graph="rows > first > second > out",
        operators={"rows": Op(50_000), "first": Op(420), "second": Op(520), "out": Op(50_000)},
    ),
    Scenario(
        "diamond",
        Demand.of((0.5, 150), (2.5, 500)),
        HOLD,
        3,
        (met(),),
        graph="rows > left > join; rows > right > join; join > out",
        operators={
            "rows": Op(50_000),
            "left": Op(300),
            "right": Op(600),
            "join": Op(2_000),
            "out": Op(50_000),
        },
    ),
    Scenario(
        "two-sinks",
        Demand.of((0.5, 300), (2.5, 1000)),
        Goal(throughput=3000),
        3,
        (met(),),
        graph="rows > work > out; rows > other > aside",
        operators={
            "rows": Op(50_000),
            "work": Op(400),
            "other": Op(3_000),
            "out": Op(50_000, weight=2.0),
            "aside": Op(50_000),
        },
    ),
    Scenario(
        "two-sources",
        Demand.of((0.5, 150), (2.5, 500)),
        HOLD,
        3,
        (met(),),
        graph="one > work > out; two > work",
        operators={"one": Op(50_000), "two": Op(50_000), "work": Op(400), "out": Op(50_000)},
    ),
    Scenario(
        "many-rows-from-one",
        Demand.of((0.5, 60), (2.5, 200)),
        HOLD,
        3,
        (met(),),
        operators=line(parse=Op(1_000, emits=5.0)),
    ),
]

FAULTS = [
    Scenario(
        "metrics-are-missing",
        Demand.constant(1000),
        HOLD,
        2,
        (operations(0, since=0.5), met()),
        operators=READY,
        machines=2,
        happens=((0.5, silent("work")), (0.75, heard_again), (1, silent("rows", "out")), (1.25, heard_again)),
    ),
    Scenario(
        "metrics-are-late",
        Demand.of((1, 300), (2, 1000), (1, 300)),
        HOLD,
        4,
        (met(within=40), few_machines(least=50)),
        happens=((0.01, late(20)),),
    ),
    Scenario(
        "metrics-are-too-late",
        Demand.of((1, 300), (2, 1000)),
        HOLD,
        3,
        (operations(0, until=1.4), met(after=1.3), few_machines(least=50)),
        happens=((0.01, late(60)), (1.4, heard_again)),
    ),
    Scenario(
        "a-backlog-to-catch-up",
        Demand.constant(800),
        HOLD,
        4,
        (no_removal(0.5, 1.5), met(after=1)),
        operators=READY,
        machines=2,
        happens=((0.5, paused), (1, resumed)),
    ),
    Scenario(
        "a-backlog-in-channels",
        Demand.of((0.5, 300), (3, 1000)),
        HOLD,
        3.5,
        (met(),),
        settings={"backlog_policy": "spill"},
        seconds=Seconds(machine_comes=300),
    ),
    Scenario(
        "machines-do-not-come",
        Demand.of((0.5, 300), (4.5, 1000)),
        HOLD,
        5,
        (operations(10, until=2.5), met(after=2.5, operations=3)),
        happens=((0.4, fails("add machine")), (2.5, works_again)),
    ),
    Scenario(
        "changes-are-rolled-back",
        Demand.of((0.5, 300), (4.5, 1000)),
        HOLD,
        5,
        (operations(10, until=2.5), met(after=2.5, operations=3)),
        happens=((0.4, fails("place")), (2.5, works_again)),
    ),
    Scenario(
        "machines-do-not-go",
        Demand.of((0.5, 1000), (4.5, 300)),
        HOLD,
        5,
        (operations(10, since=0.5, until=2.5), machines(1, since=4)),
        operators=READY,
        machines=2,
        happens=((0.4, fails("remove machine")), (2.5, works_again)),
    ),
    Scenario(
        "machines-take-ten-minutes",
        Demand.of((0.5, 300), (3.5, 2000)),
        Goal(throughput=2000),
        4,
        (met(within=45), machines(4)),
        seconds=Seconds(machine_comes=600),
    ),
    Scenario(
        "a-pause-is-no-idleness",
        Demand.constant(1000),
        HOLD,
        4,
        (no_removal(0, 3), met(after=1.5, within=5)),
        operators=READY,
        machines=2,
        happens=((0.5, paused), (1.5, resumed)),
    ),
    Scenario(
        "many-short-pauses",
        Demand.constant(700),
        HOLD,
        3,
        (no_removal(0, 3), machines(3)),
        operators=READY,
        machines=2,
        happens=tuple(
            (0.25 * step + part, what) for step in range(1, 11) for part, what in ((0, paused), (1 / 60, resumed))
        ),
    ),
    Scenario(
        "somebody-adds-machines",
        Demand.constant(300),
        HOLD,
        3,
        (operations(5),),
        happens=((1, person("scale_out", 2, "stela")),),
    ),
]

TWO_GOALS = [
    Scenario(
        "throughput-and-machines-max",
        Demand.of((0.5, 300), (3, 4000)),
        Goal(throughput=4000, machines_max=3),
        3.5,
        (machines(3), throughput(1900, 1.5), operations(5)),
    ),
    Scenario(
        "most-for-three-machines",
        Demand.constant(5000),
        Goal(machines_max=3),
        3,
        (machines(3, least=3, since=1), throughput(1900, 1.5), operations(6)),
    ),
    Scenario(
        "most-for-three-machines-with-little-load",
        Demand.constant(300),
        Goal(machines_max=3),
        3,
        (operations(0),),
    ),
    Scenario(
        "a-tenth-is-lacking",
        Demand.of((0.5, 300), (2.5, 800)),
        Goal(machines_max=2),
        3,
        (met(), operations(3)),
        operators=line(work=Op(400, instances=2)),
    ),
    Scenario(
        "more-machines-than-the-goal-allows",
        Demand.constant(300),
        Goal(throughput=1000, machines_max=2),
        2,
        (machines(2, since=0.5), operations(3)),
        machines=4,
        operators=READY,
    ),
    Scenario(
        "most-for-two-machines-by-other-instances",
        Demand.constant(5000),
        Goal(machines_max=2),
        3,
        (machines(2), throughput(1300, 1.5), operations(5)),
        operators=line(parse=Op(5000, instances=6)),
        machines=2,
    ),
]

#: Elastic Stateful Storm, section VI: phases of 900 s, in tweets a second.
TWEETS = Demand.of((0.25, 120), (0.25, 350), (0.25, 900), (0.25, 250), (0.25, 120))
#: The paper does not say what a row costs its detector, but all that it reports follows from 15 ms: 5 instances fall
#: behind at 350/s, and 10, 20, 10 and 5 are what the thresholds lead to. Its table says that there are 5 of them at the
#: start; its text and figure 5 say 20.
THRESHOLD = {"strategy": "threshold", "mapping": "fewest_moves"}
NODES = {"machines": 5, "cores": 4, "machines_most": 5, "graph": "input > generator > detector > reporter"}


def patterns(detectors: int, generators: int = 2, tasks: int = 20) -> dict[str, Op]:
    """Frequent Pattern Detection."""
    return {
        "input": Op(5_000),
        "generator": Op(2_000, instances=generators),
        "detector": Op(1 / 0.015, tasks=tasks, instances=detectors),
        "reporter": Op(5_000),
    }


THRESHOLDS = [
    Scenario(
        "frequent-patterns-as-in-the-paper",
        TWEETS,
        None,
        1.25,
        (counts("detector", 20, 10, 5, 10, 20, 10, 5), counts("generator", 2, 1), one_way, calm, caught_up(100)),
        operators=patterns(20),
        settings=THRESHOLD,
        **NODES,
    ),
    Scenario(
        "frequent-patterns-from-five",
        TWEETS,
        None,
        1.25,
        (counts("detector", 5, 10, 20, 10, 5), counts("generator", 2, 1), one_way, caught_up(100), machines(5, 5)),
        operators=patterns(5),
        settings=THRESHOLD,
        **NODES,
    ),
    Scenario(
        "frequent-patterns-in-any-mapping",
        TWEETS,
        None,
        1.25,
        (counts("detector", 5, 10, 20, 10, 5), one_way, caught_up(100)),
        operators=patterns(5),
        settings={"strategy": "threshold"},
        **NODES,
    ),
    Scenario(
        "frequent-patterns-without-elasticity",
        Demand.of((0.25, 120), (0.25, 350)),
        None,
        0.5,
        (operations(0), counts("detector", 5), falls_behind(0.3, 0.5)),
        operators=patterns(5),
        **NODES,
    ),
    Scenario(
        "frequent-patterns-with-noise",
        replace(TWEETS, noise=0.1),
        None,
        1.25,
        (counts("detector", 5, 10, 20, 10, 5), one_way, caught_up(2_000)),
        operators=patterns(5),
        settings=THRESHOLD,
        **NODES,
    ),
    Scenario(
        "threshold-at-the-task-limit",
        Demand.of((0.25, 120), (0.5, 900)),
        None,
        0.75,
        (counts("detector", 4, 8), one_way, told("penstock repartition detector 16")),
        operators=patterns(4, tasks=8),
        settings=THRESHOLD,
        **NODES,
    ),
    Scenario(
        "threshold-keeps-the-minimum",
        Demand.constant(10),
        None,
        0.5,
        (counts("detector", 8, 4, 3), counts("generator", 4, 3), counts("reporter", 1), one_way),
        operators=patterns(8, generators=4),
        settings={**THRESHOLD, "threshold_minimum": 3},
        **NODES,
    ),
    Scenario(
        "threshold-does-not-take-silence-for-idleness",
        Demand.constant(120),
        None,
        0.5,
        (counts("detector", 5), operations(1, least=1)),
        operators=patterns(5),
        settings=THRESHOLD,
        happens=((0.2, silent("detector")), (0.3, heard_again)),
        **NODES,
    ),
    Scenario(
        "threshold-does-not-take-a-pause-for-idleness",
        Demand.constant(120),
        None,
        0.75,
        # What has piled up meanwhile is load: by the rule, more instances work it off.
        (operations(0, since=0.2, until=0.4), counts("detector", 5, 10, 20, 10, 5)),
        operators=patterns(5),
        settings=THRESHOLD,
        happens=((0.2, paused), (0.4, resumed)),
        **NODES,
    ),
]

#: With each of these strategies, all scenarios with a goal must hold.
STRATEGIES = ("stela", "gain")
#: Every scenario with a goal must be calm as well, but for these.
RESTLESS: dict[str, str] = {**OPPOSITE, **OPPOSITE_BEFORE_RESTART}
#: And every one must end each hour of constant load with few machines, but for these.
MORE_MACHINES: dict[str, str] = {}
#: What is known not to hold, by scenario and strategy, each with the reason. Whoever mends it takes it out here: the
#: test fails if it holds.
KNOWN: dict[tuple[str, str], Shortfall] = {}

GOALS = (*STEPS, *DAYS, *ROUGH, *LIMITS, *GRAPHS, *FAULTS, *TWO_GOALS, *SAFEGUARDS, *RESTARTS, *CHAINS)


def always(name: str) -> tuple[Check, ...]:
    """What must hold in every scenario with a goal."""
    bars = ((calm, RESTLESS), (few_machines(), MORE_MACHINES))
    return tuple(check for check, exceptions in bars if name not in exceptions)


SCENARIOS = [
    *(
        replace(one.under(strategy), holds=(*one.holds, *always(one.name)), shortfall=KNOWN.get((one.name, strategy)))
        for one in GOALS
        for strategy in STRATEGIES
    ),
    *THRESHOLDS,
]
