"""The five phases of Elastic Stateful Storm, section VI, made small enough for two cores, and what `penstock run` is
told for them. Pure.

Time is divided by a factor: phases, rounds and cooldown alike. Rates are divided by RATE_SCALE, and a tweet costs its
detector RATE_SCALE times as much, so an instance is as busy as at the paper's rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

#: Tweets a second of each phase, seconds of a phase, seconds of a round (T_nbs), rounds of cooldown (EM_cld).
RATES, PHASE, PERIOD, COOLDOWN = (120, 350, 900, 250, 120), 900.0, 10.0, 12
#: Instances and tasks of the detector, by table I.
INSTANCES, TASKS = 5, 20
#: Machines, and the cores that each has for instances: a node of the paper has four.
MACHINES, CORES = 5, 4
RATE_SCALE = 100
#: Seconds of an instance that a tweet costs its detector at the paper's rates. The paper does not say it. With
#: 15.5 ms five instances can do 322 tweets/s: 120/s uses 0.37 of each, and 350/s is more than they can. More would be
#: too much for the fullest of 20 instances at 900/s: some tasks have a fifth more to do than the others.
COST = 0.0155
THRESHOLD_OUT, THRESHOLD_IN, THRESHOLD_GAP = 0.7, 0.33, 0.03
#: What micro-batches may cost of each of five instances. With more of it the rule goes another way than the paper's.
BEARABLE = 0.2
#: Samples of the window that decisions are made on, of one micro-batch each: with fewer it would show the batches and
#: not the load, with more it would show a new load late.
WINDOW = 3
#: Micro-batches whose work an instance may save up. It must be more than one, because the work of a micro-batch comes
#: at once; with two of them an overload would be hidden for most of a phase.
SAVED_UP = 1.25


@dataclass(frozen=True)
class Phases:
    """What flows, and how fast time passes."""

    #: Seconds of the paper in one second.
    factor: float
    #: Seconds at the first rate before the first phase: JVMs compile, and nothing of it counts.
    lead: float
    #: Seconds between the starts of two micro-batches.
    linger: float
    rates: tuple[int, ...] = RATES

    @property
    def seconds(self) -> float:
        """Of one phase."""
        return PHASE / self.factor

    @property
    def total(self) -> float:
        return self.lead + self.seconds * len(self.rates)

    @property
    def steps(self) -> list[tuple[float, float]]:
        """For sources.stepped."""
        led = [(self.lead, self.rates[0] / RATE_SCALE)]
        return led + [(self.seconds, rate / RATE_SCALE) for rate in self.rates]

    @property
    def rows(self) -> int:
        """Tweets in all."""
        return round(sum(seconds * rate for seconds, rate in self.steps))

    @property
    def answered(self) -> float:
        """Seconds until a new load is all that the window shows, and a cooldown is over."""
        return WINDOW * self.linger + COOLDOWN * PERIOD / self.factor

    @property
    def burst(self) -> float:
        """Seconds of work that an instance saves up."""
        return SAVED_UP * self.linger

    @property
    def spans(self) -> list[tuple[float, float]]:
        """Begin and end of each phase, in seconds since the first tweet was due."""
        bounds = [self.lead + self.seconds * index for index in range(len(self.rates) + 1)]
        return list(pairwise(bounds))

    def settings(self, elastic: bool, mapping: str) -> dict[str, object]:
        policy: dict[str, object] = {"mapping": mapping}
        if elastic:
            policy |= {
                "strategy": "threshold",
                "threshold_period": PERIOD / self.factor,
                "threshold_cooldown": COOLDOWN,
                "threshold_out": THRESHOLD_OUT,
                "threshold_in": THRESHOLD_IN,
                "threshold_gap": THRESHOLD_GAP,
                "changes_per_hour": 120,
            }
        return policy | {
            "sample_seconds": self.linger,
            "window_samples": WINDOW,
            "window_least_samples": WINDOW,
            "measure_seconds": max(self.seconds / 6, 1.0),
            "latency_spark": self.linger,
            "latency_under_load": self.linger,
            "latency_with_backlog": 2 * self.linger,
            "latency": 0.5,
            "slot_memory_mb": 512,
            "cluster_timeout": 600,
        }


#: What the bars are for, and a look. Micro-batches are long, because 20 tasks on two cores take their time in each of
#: them, and Spark runs another one without rows after each: that time counts as utilisation.
WHOLE = Phases(factor=5.0, lead=90.0, linger=10.0)
LOOK = Phases(factor=12.0, lead=40.0, linger=6.0)


def without_elasticity(phases: Phases, is_whole: bool) -> Phases:
    """A look ends when it was seen what 350/s does."""
    if is_whole:
        return phases
    return replace(phases, rates=phases.rates[:2])


def retimed(phases: Phases, linger: float | None, factor: float | None) -> Phases:
    """The phases with other micro-batches, or a time that passes faster; ValueError where a phase would be over before
    its load is seen and answered."""
    found = replace(phases, linger=linger or phases.linger, factor=factor or phases.factor)
    if not found.answered < found.seconds / 2:
        raise ValueError(
            f"--linger {found.linger:g} is too long for phases of {found.seconds:.0f} s: it takes {found.answered:.0f} "
            f"s until a load is answered, and half a phase must be left. Give a smaller --factor than {found.factor:g}."
        )
    return found


def longer_batches(phases: Phases, cost: float) -> Phases:
    """With micro-batches so long that what they cost of five instances, `cost` now, is bearable, and phases so long
    that a load is answered in half of one."""
    found = replace(phases, linger=math.ceil(phases.linger * cost / (0.75 * BEARABLE)))
    while found.answered >= found.seconds / 2:
        found = replace(found, factor=0.95 * found.factor)
    return replace(found, factor=math.floor(2 * found.factor) / 2 or found.factor)


def utilisation(rate: float, instances: int, overhead: float = 0.0) -> float:
    """Of an instance of the detector at a rate of the paper. `overhead` is what the micro-batches themselves take of
    each of five instances."""
    return rate * COST / instances + overhead * INSTANCES / instances
