"""Bundles that stand and whose true rate is known, at any moment: their batches overlap, several are published in one
transaction, and are taken off the list of open ones only after they were counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st
from monitor_fakes import CLUSTER, DEFINITION, PLACEMENT, levels, sample, work

from penstock.monitor.counts import Counts
from penstock.monitor.evaluation import snapshot_of

#: Seconds from the begin of the window to the look.
WINDOW = 15.0
RATE = 10_000.0
SLOTS = ("a/1", "b/0")
#: So many batches are published in one transaction at most.
TOGETHER = 16


@dataclass
class Batch:
    cut: float
    ended: float
    slot: str
    rows: float
    #: When the catalog had it, when it was counted, and when it was taken off the list.
    published: float = 0.0
    counted: float = 0.0
    taken_off: float = 0.0


def always_at_work(random: Random, until: float) -> list[Batch]:
    """Each bundle works off 10,000 rows a second, in batches of about a second, one right after the other."""
    batches = []
    for slot in SLOTS:
        now = random.random()
        while now < until:
            seconds = random.uniform(0.8, 1.2)
            batches.append(Batch(now, now + seconds, slot, RATE * seconds))
            now += seconds + random.uniform(0.0, 0.005)
    return sorted(batches, key=lambda batch: batch.cut)


def publish(random: Random, batches: list[Batch]) -> list[Batch]:
    """In their order, by one thread, all that are complete together."""
    free, index = 0.0, 0
    while index < len(batches):
        begins = max(free, batches[index].ended)
        last = index
        while last < len(batches) and batches[last].ended <= begins and last - index < TOGETHER:
            last += 1
        published = free = begins + random.uniform(0.005, 0.1)
        for batch in batches[index:last]:
            free += random.uniform(0.0, 0.01)
            batch.published, batch.counted = published, free
        free += random.choice([0.001, 0.2])
        for batch in batches[index:last]:
            batch.taken_off = free
        index = last
    return batches


def moments(batches: list[Batch], random: Random, first: float) -> Iterator[float]:
    """Any moments of two seconds, and those right after something has happened to a batch."""
    for _ in range(5):
        yield first + random.uniform(0.0, 2.0)
    for batch in batches:
        if first < batch.ended < first + 2.0:
            for at in (batch.cut, batch.ended, batch.published, batch.counted, batch.taken_off):
                yield max(at, first) + 1e-6


def shown(batches: list[Batch], since: float, now: float, looked: float):
    counts = Counts(10, 20, since=0)
    counts.restart(since)
    for number, batch in enumerate(batches):
        if batch.counted <= now:
            slots = (work(batch.slot, int(batch.rows), batch.ended - batch.cut),)
            seen = levels(batch.published, open_batches=seen_at(batches, batch.counted))
            counts.add(
                sample(
                    "work",
                    batch.published,
                    int(batch.rows),
                    batch.published - batch.cut,
                    slots,
                    batch=number,
                    levels=seen,
                )
            )
    counts.see("work", levels(looked, open_batches=seen_at(batches, looked)))
    return snapshot_of(counts.window(now), DEFINITION, PLACEMENT, CLUSTER).operators["work"]


def seen_at(batches: list[Batch], at: float) -> dict[int, float]:
    return {number: batch.cut for number, batch in enumerate(batches) if batch.cut <= at < batch.taken_off}


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.001, 0.05]))
@example(1, 0.0)
def test_the_rate_is_right_at_any_moment(seed: int, before: float) -> None:
    """`before`: so many seconds pass between the look and the reading of what is counted."""
    random = Random(seed)
    since = 25 + random.random()
    batches = publish(random, always_at_work(random, 50.0))
    for now in moments(batches, random, since + WINDOW):
        operator = shown(batches, since, now, now - before)
        assert operator.rate is not None
        assert abs(operator.rate / (RATE * len(SLOTS)) - 1) < 0.02, (now, operator.rate)
        assert operator.utilisation is not None
        assert abs(operator.utilisation * operator.instances / len(SLOTS) - 1) < 0.02


@given(st.integers(0, 10**6), st.floats(0.0, 4.0))
@example(1, 0.0)
def test_the_rate_is_not_much_too_high_as_long_as_few_batches_are_counted(seed: int, age: float) -> None:
    random = Random(seed)
    since = 25 + random.random()
    batches = publish(random, always_at_work(random, 40.0))
    for now in moments(batches, random, since + age):
        operator = shown(batches, since, now, now)
        if operator.rate is not None:
            assert operator.rate / (RATE * len(SLOTS)) < 1.25, (now, operator.rate)


def test_what_is_tried_has_looks_between_counting_and_taking_off_and_several_batches_in_one_transaction() -> None:
    random = Random(1)
    batches = publish(random, always_at_work(random, 50.0))
    assert any(len(list(same)) > 1 for _, same in groupby(batches, key=lambda batch: batch.published))
    assert any(batch.taken_off - batch.counted > 0.1 for batch in batches)
