"""What `make bench-stateful` runs: examples/frequent_patterns.py, with tweets of which no word is in most, and a
detector whose instances have so much to do for each tweet. The environment variable STATEFUL says the rest, as JSON."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "examples"))

from frequent_patterns import TWEET, WORDS, Detector, Tweets, frequent_patterns
from stateful_instances import Work
from stateful_schedule import COST, INSTANCES, RATE_SCALE, TASKS

from penstock import Topology, sinks, sources

VARIABLE = "STATEFUL"
#: Patterns of a tweet, on average: it has four, five or six words, and patterns are of one word or two.
PATTERNS = (10 + 15 + 21) / 3
#: How often a pattern must be in a minute's tweets to be frequent: more often than this. With a hundredth of the tweets
#: the paper's 20 would be out of reach.
FREQUENT = 5
#: Which part of its time an instance computes. All instances of a full machine use a part of its cores (MACHINE_CORES),
#: and leave the rest to what Spark's Python workers cost.
CPU_SHARE, MACHINE_CORES = 0.03, 0.4
#: How much a row of the reporter counts in the throughput by which Penstock judges its decisions: nothing. Most rows
#: say that a pattern is gone, a minute after its tweets. So after a fall of the load the throughput falls a minute
#: later, and the scale-in that was made meanwhile would be taken for the cause, and undone, if what waits between two
#: micro-batches seems to grow just then.
REPORTER_WEIGHT = 0.0


@dataclass(frozen=True)
class Given:
    """What a run is told."""

    #: (seconds, tweets a second), one after the other.
    steps: list[tuple[float, float]]
    #: Tweets until the source ends.
    rows: int
    #: Folders: of the seats, and of what the reporter gets.
    seats: str
    out: str
    rounds_per_cpu_second: float
    burst: float
    instances: int = INSTANCES
    tasks: int = TASKS

    def as_text(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def read(text: str) -> Given:
        return Given(**json.loads(text))

    @property
    def schedule(self) -> Any:
        return sources.stepped([(seconds, rate) for seconds, rate in self.steps])

    @property
    def tweets(self) -> FlatTweets:
        return FlatTweets(self.schedule.when)

    @property
    def work(self) -> Work:
        seconds = COST * RATE_SCALE / PATTERNS
        return Work(self.seats, seconds, CPU_SHARE, self.rounds_per_cpu_second, self.burst)


class FlatTweets(Tweets):
    """A few topics have all the tweets of a minute, and their words are equally likely. So patterns become frequent and
    cease to be, and all tasks have about the same to do: one word that is in most tweets would fill one task."""

    ACTIVE = 12

    def __repr__(self) -> str:
        """The same in every process: a run that is started again compares it with what was there."""
        return "FlatTweets"

    def _block(self, block: int) -> list[str]:
        random = np.random.default_rng((self.seed, block))
        minute = int(self.when(block * self.BLOCK) // 60)
        texts = []
        for topic in (random.integers(self.ACTIVE, size=self.BLOCK) + self.ACTIVE * minute) % self.topics:
            # As many words as the patterns of a tweet are made of.
            words = [self._word(topic, rank) for rank in random.choice(self.vocabulary, 3, replace=False)]
            count = random.integers(1, WORDS - 3, endpoint=True)
            words += [self._word(self.topics, rank) for rank in random.choice(self.common, count, replace=False)]
            texts.append(" ".join(words))
        return texts


class WorkingDetector(Detector):
    """The example's detector, which has to work for every pattern of every tweet."""

    def __init__(self, work: Work) -> None:
        super().__init__(FREQUENT)
        self.work = work

    def rows(self, key: Any, rows: Any) -> Any:
        taken = list(rows)
        self.work.spend(sum(row["n"] for row in taken))
        return super().rows(key, iter(taken))


def declared(given: Given) -> Topology:
    source = sources.rate(given.schedule, sources.generated(given.tweets, TWEET), rows=given.rows)
    detector = WorkingDetector(given.work)
    reporter = sinks.parquet(given.out)
    return frequent_patterns(
        source, reporter, instances=given.instances, tasks=given.tasks, detector=detector, weight=REPORTER_WEIGHT
    )


if VARIABLE in os.environ:
    topology = declared(Given.read(os.environ[VARIABLE]))
