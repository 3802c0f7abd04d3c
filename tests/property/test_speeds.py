"""Ranges of a source that fetches ahead, dealt by measured speeds: every message once and every partition in order,
whatever the speeds are, and no slot waits long for a slower one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kafka_dealing import ranges_of, size_of, supply_of

from penstock.cluster.model import Slot
from penstock.engine.message.shares import Bundle, Share
from penstock.engine.standing.speeds import CHANGE, FORGET_SECONDS, UNIT, Speeds

BUNDLES = tuple(Bundle(Slot(name, 0), instances) for name, instances in (("a", 1), ("b", 2), ("c", 1)))
steps = st.tuples(st.integers(0, 2), st.integers(1, 10_000), st.floats(0.001, 100.0))


@given(
    st.lists(st.integers(0, 500), min_size=1, max_size=9),
    st.lists(st.tuples(st.integers(1, 300), st.lists(steps, max_size=4)), max_size=12),
    st.integers(1, 3),
)
def test_every_message_is_dealt_once_and_every_partition_in_order(
    ends: list[int], batches: list[tuple[int, list[Any]]], count: int
) -> None:
    known, bundles, now = Speeds(), BUNDLES[:count], 0.0
    supply = supply_of(ends, lambda some: known.weights(some, now))
    read = [0] * len(ends)
    for most, done in [*batches, (10**6, [])]:
        for index, size, seconds in done:
            now += seconds
            known.observe(BUNDLES[index], size, seconds, now)
        if (cut := supply.cut(most, bundles)) is None:
            continue
        found = [one for share in cut.shares for one in ranges_of(share)]
        assert len({partition for partition, _, _ in found}) == len(found), "one bundle reads it"
        for partition, first, stop in found:
            assert first == read[partition] < stop, "batches are published in the order in which they are cut"
            read[partition] = stop
    assert read == ends


@given(st.lists(steps, max_size=30), st.integers(1, 3))
def test_each_bundle_counts_and_all_together_are_always_as_much(done: list[Any], count: int) -> None:
    known, now = Speeds(), 0.0
    for index, size, seconds in done:
        now += seconds
        known.observe(BUNDLES[index], size, seconds, now)
        found = known.weights(BUNDLES[:count], now)
        assert min(found) > 0
        assert abs(sum(found) - UNIT * count) <= count + UNIT * count * CHANGE
    assert len(known.weights(BUNDLES[:count], now)) == count


@given(st.lists(st.floats(0.3, 3.0), min_size=2, max_size=3), st.integers(6, 40))
def test_bundles_of_any_speed_are_done_at_about_the_same_time(factors: list[float], partitions: int) -> None:
    """Each batch is worked off by all of them before the next one is cut: as partitions are not cut, a bundle may have
    one more than its part or one less."""
    known, bundles, now = Speeds(), BUNDLES[: len(factors)], 0.0
    supply = supply_of([10**9] * partitions, lambda some: known.weights(some, now))
    shares: tuple[Share, ...] = ()
    for _ in range(5):
        cut = supply.cut(partitions * 1_000, bundles)
        assert cut is not None
        took, shares = {}, cut.shares
        for share in shares:
            speed = factors[bundles.index(share.bundle)] * share.bundle.instances * 10_000
            took[share.bundle] = size_of(share) / speed
            known.observe(share.bundle, size_of(share), took[share.bundle], now + took[share.bundle])
        now += max(took.values())
    whole = sum(factor * bundle.instances for factor, bundle in zip(factors, bundles, strict=True))
    for bundle, factor in zip(bundles, factors, strict=True):
        fair = partitions * factor * bundle.instances / whole
        has = sum(size_of(share) for share in shares if share.bundle == bundle) / 1_000
        assert abs(has - fair) <= 1.01 + fair * CHANGE, "no more than measured changes allow"


def test_what_changes_little_moves_no_partition() -> None:
    known = Speeds()
    for now in range(50):
        for bundle in BUNDLES:
            known.observe(bundle, 1_000 + 50 * (now % 3), 1.0 / bundle.instances, float(now))
        assert known.weights(BUNDLES, float(now)) == (750, 1_500, 750), "one of them has two instances"


def test_a_place_that_was_not_measured_for_long_is_tried_again() -> None:
    known, (one, two) = Speeds(), (BUNDLES[0], BUNDLES[2])
    known.observe(one, 1_000, 1.0, 0.0)
    known.observe(two, 10, 100.0, 0.0)
    fast, slow = known.weights((one, two), 0.0)
    assert fast > 5 * slow > 0
    assert known.weights((one, two), FORGET_SECONDS + 1) == (UNIT, UNIT)


def test_places_that_are_gone_are_forgotten() -> None:
    known = Speeds()
    for number in range(1_000):
        known.observe(Bundle(Slot(f"machine-{number}", 0), 1), 1_000, 1.0, float(number))
    assert len(known._measured) <= FORGET_SECONDS + 1
