"""Frequent Pattern Detection: which words are together in many tweets of the last minute?

    penstock run examples/frequent_patterns.py --cluster standalone --machines 2

This is the application of the paper on Elastic Stateful Storm (docs/design/0029 names it), with its operators and their
instances. `input` has the tweets. `generator` makes the candidate patterns of each tweet: every set of its words, up to
LENGTH of them. `detector` counts each pattern in a sliding window of a minute of event time, and says when a pattern
gets above the threshold, when it falls back to it, and when no tweet of the minute has it any more. `reporter` gets
what the detector says.

The tweets are made up, with a seed. PENSTOCK_TWEETS names others: a folder of JSON files (a tweet in each line, as
{"id": 1, "at": "2026-01-01T00:00:00Z", "text": "..."}), or a stream of Redis, as in the paper
(redis://localhost:6379/tweets, with the fields at and text; pip install 'redis>=5').
"""

import itertools
import os
import re
import struct
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from penstock import Topology, sinks, sources, state

TWEET = "id long, at timestamp, text string"
PATTERN = "pattern string, at timestamp, n long"
CHANGE = "pattern string, at timestamp, change string, n long"
#: Seconds of the window, and how often a pattern must be in it to be frequent: more often than this.
WINDOW, THRESHOLD = 60, 20
#: Words of a tweet that count, and words of a pattern.
WORDS, LENGTH = 6, 2
#: Seconds that a tweet may come late.
LATENESS = 5.0
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)

# The tweets


class Tweets:
    """Made-up tweets, the same for the same seed: `rows(first, count)` gives them by their numbers.

    A tweet has a topic and mostly that topic's words. Few topics have most of the tweets, and which ones these are
    changes from minute to minute: so patterns become frequent, and cease to be. Tweet n is at `when(n)` seconds."""

    BLOCK = 256
    SYLLABLES = tuple(a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u"))

    def __init__(self, when, seed=0, topics=200, vocabulary=12, common=400):
        self.when = when
        self.seed = seed
        self.topics = topics
        self.vocabulary = vocabulary
        self.common = common

    def __call__(self, first, count):
        numbers = range(first, first + count)
        blocks = {block: self._block(block) for block in sorted({number // self.BLOCK for number in numbers})}
        return pa.RecordBatch.from_pydict(
            {
                "id": pa.array(numbers, pa.int64()),
                "at": pa.array([self.at(number) for number in numbers], pa.timestamp("us", "UTC")),
                "text": pa.array([blocks[one // self.BLOCK][one % self.BLOCK] for one in numbers], pa.string()),
            }
        )

    def at(self, number):
        return START + timedelta(microseconds=round(self.when(number) * 1_000_000))

    def _block(self, block):
        """The texts of one block of tweets. Blocks have seeds of their own, so that any tweet can be made by itself."""
        random = np.random.default_rng((self.seed, block))
        # The topics of a minute are those of the minute before, turned by a few places.
        minute = int(self.when(block * self.BLOCK) // 60)
        ranks = np.minimum(random.zipf(1.4, self.BLOCK) - 1, self.topics - 1)
        topics = (ranks + 7 * minute) % self.topics
        texts = []
        for topic in topics:
            words = [self._word(topic, rank) for rank in self._ranks(random, self.vocabulary, 4)]
            words += [self._word(self.topics, rank) for rank in self._ranks(random, self.common, 4)]
            texts.append(" ".join(words))
        return texts

    def _ranks(self, random, most, longest):
        return np.minimum(random.zipf(1.5, random.integers(1, longest + 1)) - 1, most - 1)

    def _word(self, topic, rank):
        """A word that no other topic and rank have."""
        number = int(topic) * 1_000 + int(rank) + len(self.SYLLABLES)
        word = ""
        while number:
            number, digit = divmod(number, len(self.SYLLABLES))
            word = self.SYLLABLES[digit] + word
        return word


def made_up(rate=120, rows=None, seed=0):
    """A source of made-up tweets: at a rate, or by a schedule of sources.stepped(...). Event time follows the rate."""
    schedule = sources.constant(rate) if isinstance(rate, int | float) else rate
    return sources.rate(schedule, sources.generated(Tweets(schedule.when, seed), TWEET), rows=rows)


# The generator


def patterns_of(text):
    """All sets of the words of a tweet, up to LENGTH words of the first WORDS different ones, each as its words in
    alphabetical order."""
    words = sorted(dict.fromkeys(re.findall(r"\w+", text.lower())[: 4 * WORDS]))[:WORDS]
    for length in range(1, LENGTH + 1):
        for chosen in itertools.combinations(words, length):
            yield " ".join(chosen)


def candidates(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The patterns of some tweets, by the second of event time. A pattern of several of these tweets is one row."""
    counted = {}
    for at, text in zip(batch.column("at").to_pylist(), batch.column("text").to_pylist(), strict=True):
        second = (at - EPOCH) // SECOND
        for pattern in patterns_of(text):
            counted[pattern, second] = counted.get((pattern, second), 0) + 1
    return pa.RecordBatch.from_pydict(
        {
            "pattern": pa.array([pattern for pattern, _ in counted], pa.string()),
            "at": pa.array([EPOCH + second * SECOND for _, second in counted], pa.timestamp("us", "UTC")),
            "n": pa.array(list(counted.values()), pa.int64()),
        }
    )


# The detector


class Detector(state.Processor):
    """Counts one pattern in the seconds of the last minute. A window ends at every full second: it has the WINDOW
    seconds before. A pattern is looked at when the watermark has passed a second at which its count changes.

    What a pattern needs is in one value, and it has one timer: each costs a call to Spark's state store."""

    #: The tweets in each second that counts, as pairs of whole numbers; the last second that was looked at; when it is
    #: looked at next; how many tweets since the pattern came.
    held = state.value("bins binary, looked long, next long, total long, frequent boolean")

    def __init__(self, threshold=THRESHOLD):
        self.threshold = threshold

    def rows(self, key, rows):
        held = self.held.get({"bins": b"", "looked": -1, "next": -1, "total": 0, "frequent": False})
        bins = unpacked(held["bins"])
        for row in rows:
            second = (row["at"] - EPOCH) // SECOND
            bins[second] = bins.get(second, 0) + row["n"]
        self._keep(held, bins)
        return ()

    def timer(self, key, at):
        held = self.held.get()
        bins = unpacked(held["bins"])
        passed = (self.watermark - EPOCH) // SECOND
        for end in self._moments(bins, held["looked"], passed):
            held["total"] += bins.get(end - 1, 0)
            n = sum(count for second, count in bins.items() if end - WINDOW <= second < end)
            if held["frequent"] != (n > self.threshold):
                held["frequent"] = n > self.threshold
                yield self._change(key, end, "above" if held["frequent"] else "below", n)
            if not n:
                yield self._change(key, end, "gone", held["total"])
                held["total"] = 0
        held["looked"], held["next"] = passed, -1  # Spark removes a timer that has come
        self._keep(held, {second: count for second, count in bins.items() if second + WINDOW + 1 > passed})

    def _moments(self, bins, looked, passed):
        """The ends of windows, after the last one that was looked at, at which the count changes."""
        ends = {second + 1 for second in bins} | {second + WINDOW + 1 for second in bins}
        return sorted(end for end in ends if looked < end <= passed)

    def _keep(self, held, bins):
        if not bins:
            self.held.clear()
            return
        # A pattern that cannot have become frequent is only looked at when it is gone.
        calm = not held["frequent"] and sum(bins.values()) <= self.threshold
        soonest = gone_at(bins) if calm else min(self._moments(bins, held["looked"], max(bins) + WINDOW + 1))
        if soonest != held["next"]:
            if held["next"] >= 0:
                self.timers.cancel(EPOCH + held["next"] * SECOND)
            self.timers.set(EPOCH + soonest * SECOND)
        self.held.set({**held, "bins": packed(bins), "next": soonest})

    def _change(self, key, end, change, n):
        return {**key, "at": EPOCH + end * SECOND, "change": change, "n": n}


def gone_at(bins):
    """The first end of a window in which no second of these is any more."""
    seconds = sorted(bins)
    gaps = (second for second, after in itertools.pairwise(seconds) if after > second + WINDOW)
    return next(gaps, seconds[-1]) + WINDOW + 1


def packed(bins):
    return struct.pack(f"<{2 * len(bins)}q", *itertools.chain.from_iterable(sorted(bins.items())))


def unpacked(data):
    numbers = struct.unpack(f"<{len(data) // 8}q", data)
    return dict(zip(numbers[::2], numbers[1::2], strict=True))


# The topology


def given(tweets):
    """The source that PENSTOCK_TWEETS names."""
    if not tweets:
        return made_up()
    if tweets.startswith(("redis://", "rediss://")):
        server, _, stream = tweets.rpartition("/")
        return sources.redis(server, stream, schema="at timestamp, text string")
    return sources.files(tweets, format="json", schema=TWEET)


def frequent_patterns(source, reporter, threshold=THRESHOLD, instances=5, tasks=20, detector=None, weight=1.0):
    """The topology of the paper: instances, tasks and minimum of each operator are those of its table I. A test gives
    the detector fewer: every task is a process of Python. A benchmark gives a detector of its own, and says how much
    the reporter counts in the throughput."""
    topology = Topology("frequent_patterns")
    tweets = topology.source("input", source, instances=1)
    patterns = topology.map(
        "generator",
        candidates,
        inputs=tweets,
        schema=PATTERN,
        instances=2,
        min_instances=1,
        tasks=2,
    )
    changes = topology.stateful(
        "detector",
        detector or Detector(threshold),
        inputs=patterns,
        key="pattern",
        schema=CHANGE,
        event_time="at",
        lateness=LATENESS,
        instances=instances,
        tasks=tasks,
        min_instances=1,
    )
    topology.sink("reporter", reporter, inputs=changes, instances=1, weight=weight)
    return topology


topology = frequent_patterns(given(os.environ.get("PENSTOCK_TWEETS", "")), sinks.console(rows=20))
